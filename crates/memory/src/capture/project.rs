//! Resolves the project that a folder belongs to. Reading and writing both use this module.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use hob_domain::memory::{ProjectLocation, TurnKey};

use crate::redact::masked_name;

/// The files of Git that point to a folder are one line long.
const MAX_POINTER_BYTES: u64 = 4096;
/// The system knows no longer path (`PATH_MAX`, without its final zero).
const MAX_PATH_BYTES: usize = 4095;
/// The system knows no longer name of a file (`NAME_MAX`).
const MAX_NAME_BYTES: usize = 255;
/// How many characters of a longer path its project is called by.
const MAX_SHOWN_CHARS: usize = 200;
/// How many names are looked up for one path, with those in its links. Each lookup takes as long as the path.
const MAX_LOOKUPS: usize = 4096;
/// How many links a path may lead through, as for the system.
const MAX_LINKS: usize = 40;
/// In how many folders a repository is looked for, from the innermost to the outermost.
const MAX_REPOSITORY_LEVELS: usize = 256;

/// Returns the repository's common root and the working tree of a folder, or the folder itself outside
/// a repository. The folder need not exist. All working trees of one repository have one project.
///
/// Everything in the folder may be forged: it may be an unpacked archive, or an agent's workspace. So may be
/// its path, which anyone can write into a transcript; one that no folder can have is not looked up.
pub fn locate_project(folder: &Path) -> ProjectLocation {
    let alone = |shown: String| ProjectLocation { project: shown.clone(), worktree: shown };
    if folder.as_os_str().len() > MAX_PATH_BYTES {
        return alone(shown_in_short(folder));
    }
    if is_of_windows(folder) || folder.iter().any(|name| name.len() > MAX_NAME_BYTES) {
        return alone(shown(folder));
    }
    let folder = real_path(folder);
    for ancestor in folder.ancestors().take(MAX_REPOSITORY_LEVELS) {
        let git = ancestor.join(".git");
        let Ok(metadata) = fs::metadata(&git) else { continue };
        let root = if metadata.is_dir() {
            Some(ancestor.to_owned())
        } else {
            root_of_worktree(ancestor, &git)
        };
        if let Some(root) = root {
            return ProjectLocation { project: shown(&root), worktree: shown(ancestor) };
        }
    }
    alone(shown(&folder))
}

/// Returns whether a path is an absolute one of Windows on another system: `D:\\repo`. A transcript from
/// there may be imported here, and its folder is below none of this machine.
fn is_of_windows(path: &Path) -> bool {
    let path = path.to_string_lossy();
    let is_drive = match path.as_bytes() {
        [drive, b':', b'\\' | b'/', ..] => drive.is_ascii_alphabetic(),
        bytes => bytes.starts_with(b"\\\\"),
    };
    cfg!(not(windows)) && is_drive
}

/// Returns the repository's root for a working tree whose `.git` is a file. That file points to the
/// tree's own part of the repository, and `commondir` in there to the part that all trees share. A
/// submodule has no `commondir` and is a repository of its own. So is a tree that the repository does
/// not know: otherwise any folder could claim to belong to another project.
fn root_of_worktree(tree: &Path, git: &Path) -> Option<PathBuf> {
    let own = real_path(&tree.join(read_pointer(git)?.strip_prefix("gitdir:")?.trim()));
    let common = read_pointer(&own.join("commondir")).map(|path| real_path(&own.join(path)));
    let Some(common) = common.filter(|common| is_registered(common, &own, git)) else {
        return Some(tree.to_owned());
    };
    match (common.file_name(), common.parent()) {
        (Some(name), Some(parent)) if name == ".git" => Some(parent.to_owned()),
        _ => Some(common),
    }
}

/// Returns whether a repository lists a working tree: the tree's part lies in the repository's folder
/// `worktrees`, and its file `gitdir` points back to the tree's `.git`.
fn is_registered(common: &Path, own: &Path, git: &Path) -> bool {
    let back = || read_pointer(&own.join("gitdir")).map(|path| real_path(&own.join(path)));
    own.parent() == Some(&common.join("worktrees")) && back().as_deref() == Some(git)
}

/// Reads the one line of a file that points to a folder.
fn read_pointer(path: &Path) -> Option<String> {
    let bytes = hob_files::read_regular(path, MAX_POINTER_BYTES).ok()?;
    Some(String::from_utf8(bytes).ok()?.trim().to_owned())
}

/// Returns an absolute path without `.` and `..`, with links resolved as far as the path exists. Every name is
/// looked up once.
fn real_path(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // The names that are left, the next one last.
    let mut left = names_backwards(&path);
    let mut real = PathBuf::new();
    // How many names at the end of `real` do not exist.
    let mut missing = 0_usize;
    let (mut lookups, mut links) = (0, 0);
    while let Some(name) = left.pop() {
        match name.as_encoded_bytes() {
            b"/" => (real, missing) = (PathBuf::from("/"), 0),
            b"." => {}
            b".." => {
                real.pop();
                missing = missing.saturating_sub(1);
            }
            _ => {
                real.push(&name);
                lookups += 1;
                if missing > 0 || lookups > MAX_LOOKUPS {
                    missing += 1;
                    continue;
                }
                match fs::read_link(&real) {
                    Ok(target) if links < MAX_LINKS => {
                        links += 1;
                        real.pop();
                        left.extend(names_backwards(&target));
                    }
                    // It is something else than a link.
                    Err(error) if error.kind() == ErrorKind::InvalidInput => {}
                    _ => missing = 1,
                }
            }
        }
    }
    real
}

fn names_backwards(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
}

/// Returns a path as it is stored and shown.
fn shown(path: &Path) -> String {
    masked_name(&path.to_string_lossy())
}

/// Returns a path that is too long for the system as it is stored and shown: its beginning, and a digest.
fn shown_in_short(path: &Path) -> String {
    let text = path.to_string_lossy();
    let digest = TurnKey::of(&["folder", &text]).to_hex();
    let begin: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    format!("{}…#{}", masked_name(&begin), &digest[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn folder_of_windows_is_a_project_of_its_own() {
        for path in ["D:\\code\\repo", "c:/code/repo", "\\\\server\\share"] {
            assert_eq!(locate_project(Path::new(path)).project, path);
        }
        assert_ne!(locate_project(Path::new("d:repo")).project, "d:repo");
    }

    #[test]
    fn working_trees_share_a_project_and_can_be_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let main = base.join("main");
        fs::create_dir_all(main.join(".git/worktrees/other")).unwrap();
        fs::create_dir_all(main.join("deep/er")).unwrap();
        write(&main.join(".git/worktrees/other/commondir"), "../..\n");
        let other = base.join("other");
        let back = format!("{}\n", other.join(".git").display());
        write(&main.join(".git/worktrees/other/gitdir"), &back);
        write(
            &other.join(".git"),
            &format!("gitdir: {}\n", main.join(".git/worktrees/other").display()),
        );
        let text = |path: &Path| path.display().to_string();
        let place = |project: &Path, worktree: &Path| ProjectLocation {
            project: text(project),
            worktree: text(worktree),
        };
        assert_eq!(locate_project(&main.join("deep/er")), place(&main, &main));
        assert_eq!(locate_project(&other), place(&main, &other));
        assert_eq!(locate_project(&other.join("not/there")), place(&main, &other));

        // A submodule is a repository of its own; a bare repository's trees share it.
        write(&main.join("sub/.git"), "gitdir: ../.git/modules/sub\n");
        assert_eq!(locate_project(&main.join("sub")), place(&main.join("sub"), &main.join("sub")));
        fs::create_dir_all(base.join("bare.git/worktrees/w")).unwrap();
        write(&base.join("bare.git/worktrees/w/commondir"), "../..");
        write(&base.join("bare.git/worktrees/w/gitdir"), "../../../w/.git");
        write(&base.join("w/.git"), "gitdir: ../bare.git/worktrees/w");
        assert_eq!(locate_project(&base.join("w")), place(&base.join("bare.git"), &base.join("w")));
    }

    #[test]
    fn a_folder_cannot_claim_another_project() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let bank = base.join("bank");
        fs::create_dir_all(bank.join(".git/worktrees/real")).unwrap();
        write(&bank.join(".git/worktrees/real/commondir"), "../..");
        write(&bank.join(".git/worktrees/real/gitdir"), &format!("{}/real/.git", base.display()));
        let archive = base.join("archive");
        let own = archive.display().to_string();
        // A forged part, with a forged link back.
        write(&archive.join(".git"), "gitdir: fake");
        write(&archive.join("fake/commondir"), &bank.join(".git").display().to_string());
        write(&archive.join("fake/gitdir"), &format!("{own}/.git"));
        assert_eq!(locate_project(&archive).project, own);
        // The part of another tree.
        let part = format!("gitdir: {}", bank.join(".git/worktrees/real").display());
        write(&archive.join(".git"), &part);
        assert_eq!(locate_project(&archive).project, own);
    }

    #[test]
    fn a_hostile_git_entry_neither_blocks_nor_fills_memory() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let expect = base.display().to_string();
        let git = base.join(".git");
        std::os::unix::fs::symlink("/dev/zero", &git).unwrap();
        assert_eq!(locate_project(&base).project, expect);
        fs::remove_file(&git).unwrap();
        nix::unistd::mkfifo(&git, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(locate_project(&base).project, expect);
        fs::remove_file(&git).unwrap();
        fs::File::create(&git).unwrap().set_len(9 << 30).unwrap();
        assert_eq!(locate_project(&base).project, expect);
    }

    #[test]
    fn without_a_repository_it_is_the_folder_itself() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&base, base.join("link")).unwrap();
        let expect = base.join("a/b").display().to_string();
        for path in ["a/b", "./a/./b/", "a/c/../b", "link/a/b"] {
            assert_eq!(locate_project(&base.join(path)).project, expect, "{path}");
        }
    }

    #[test]
    fn links_are_resolved_also_after_parents_and_missing_names() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("real/in")).unwrap();
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, base.join(name)).unwrap();
        };
        link("real/in", "relative");
        link(base.join("relative").to_str().unwrap(), "absolute");
        link("loop", "loop");
        fs::write(base.join("file"), "").unwrap();
        for (path, expect) in [
            ("absolute/x", "real/in/x"),
            ("relative/../in", "real/in"),
            ("missing/../relative", "real/in"),
            ("missing/more/../relative", "missing/relative"),
            ("loop/../relative", "relative"),
            ("loop/x", "loop/x"),
            ("file/x", "file/x"),
            ("../../../../../../../../../../../..", "/"),
        ] {
            assert_eq!(real_path(&base.join(path)), base.join(expect), "{path}");
        }
    }

    #[test]
    fn path_that_no_folder_can_have_is_a_project_of_its_own() {
        let long = |count: usize| locate_project(Path::new(&"/a".repeat(count))).project;
        assert_ne!(long(4_000_000), long(3_999_999));
        assert!(long(4_000_000).starts_with("/a/a") && long(4_000_000).len() < 300);
        assert_eq!(long(2000), "/a".repeat(2000));
        let name = format!("/{}/../..", "n".repeat(256));
        assert_eq!(locate_project(Path::new(&name)).project, name);
        let windows = format!("D:\\{}", "n".repeat(300));
        assert_eq!(locate_project(Path::new(&windows)).project, windows);
    }

    /// A path cannot lead through links to a lookup without an end.
    #[test]
    fn lookups_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        fs::create_dir(base.join("d")).unwrap();
        let around = "d/../".repeat(800);
        for number in 0..MAX_LINKS {
            let target = format!("{around}l{}", number + 1);
            std::os::unix::fs::symlink(target, base.join(format!("l{number}"))).unwrap();
        }
        let found = real_path(&base.join("l0"));
        assert!(found.starts_with(&base), "{}", found.display());
        let levels = "/d".repeat(MAX_REPOSITORY_LEVELS + 1);
        fs::create_dir_all(base.join(&levels[1..])).unwrap();
        fs::create_dir(base.join(".git")).unwrap();
        let deep = format!("{}{levels}", base.display());
        assert_eq!(locate_project(Path::new(&deep)).project, deep);
        assert_eq!(locate_project(&base.join("d")).project, base.display().to_string());
    }
}
