//! Resolves the project that a folder belongs to. Reading and writing both use this module.

use std::fs;
use std::path::{Component, Path, PathBuf};

use hob_domain::memory::ProjectLocation;

use super::masked_name::masked_name;

/// The files of Git that point to a folder are one line long.
const MAX_POINTER_BYTES: u64 = 4096;

/// Returns the repository's common root and the working tree of a folder, or the folder itself outside
/// a repository. The folder need not exist. All working trees of one repository have one project.
///
/// Everything in the folder may be forged: it may be an unpacked archive, or an agent's workspace.
pub fn locate_project(folder: &Path) -> ProjectLocation {
    if is_of_windows(folder) {
        let shown = shown(folder);
        return ProjectLocation { project: shown.clone(), worktree: shown };
    }
    let folder = real_path(folder);
    for ancestor in folder.ancestors() {
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
    let shown = shown(&folder);
    ProjectLocation { project: shown.clone(), worktree: shown }
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

/// Returns an absolute path without `.` and `..`, with links resolved as far as the path exists.
fn real_path(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                // A link must be resolved before its parent is known.
                plain = plain.canonicalize().unwrap_or(plain);
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    for ancestor in plain.ancestors() {
        if let (Ok(real), Ok(rest)) = (ancestor.canonicalize(), plain.strip_prefix(ancestor)) {
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    plain
}

/// Returns a path as it is stored and shown.
fn shown(path: &Path) -> String {
    masked_name(&path.to_string_lossy())
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
}
