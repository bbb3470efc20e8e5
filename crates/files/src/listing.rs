//! The files below a folder that agents can change.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::untrusted::{Folder, is_folder, is_regular};

/// A regular file below a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// The path below the folder.
    pub path: PathBuf,
    pub bytes: u64,
    /// When the content, the name or the mode changed last. Unlike the time of the content alone, a program cannot set it.
    pub changed_at: SystemTime,
}

/// Returns the regular files below a folder, in the order of their paths. At most `limit` entries are read, and at most
/// `depth` folders inside each other.
///
/// No link is followed. Hidden files and folders are left out, and so is what cannot be read or disappears meanwhile.
pub fn files_below(folder: &Folder, limit: usize, depth: usize) -> io::Result<Vec<FoundFile>> {
    let mut files = Vec::new();
    let mut waiting = vec![PathBuf::new()];
    let mut left = limit;
    while left > 0
        && let Some(path) = waiting.pop()
    {
        let below = if path.as_os_str().is_empty() { Path::new(".") } else { path.as_path() };
        let Ok(opened) = folder.folder(below) else { continue };
        let Ok(entries) = opened.entries(left) else { continue };
        left -= entries.len().min(left);
        for (name, _) in entries {
            if name.as_bytes().starts_with(b".") {
                continue;
            }
            let Ok(status) = opened.status(&name) else { continue };
            let path = path.join(&name);
            if is_folder(&status) && path.components().count() < depth {
                waiting.push(path);
            } else if is_regular(&status) {
                let seconds = u64::try_from(status.st_ctime).unwrap_or_default();
                let nanoseconds = u32::try_from(status.st_ctime_nsec).unwrap_or_default();
                files.push(FoundFile {
                    path,
                    bytes: u64::try_from(status.st_size).unwrap_or_default(),
                    changed_at: UNIX_EPOCH + Duration::new(seconds, nanoseconds),
                });
            }
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn found(folder: &Path, limit: usize, depth: usize) -> Vec<(String, u64)> {
        let files = files_below(&Folder::open(folder).unwrap(), limit, depth).unwrap();
        files.into_iter().map(|file| (file.path.display().to_string(), file.bytes)).collect()
    }

    #[test]
    fn only_visible_regular_files_are_found() {
        let root = tempfile::tempdir().unwrap();
        let (inside, outside) = (root.path().join("in"), root.path().join("out"));
        for folder in [inside.join("a/b"), inside.join(".git"), outside.clone()] {
            fs::create_dir_all(folder).unwrap();
        }
        for file in ["a/b/deep", "a/near", "top", ".hidden", ".git/config"] {
            fs::write(inside.join(file), file).unwrap();
        }
        fs::write(outside.join("secret"), "s").unwrap();
        symlink(&outside, inside.join("link")).unwrap();
        symlink(outside.join("secret"), inside.join("file")).unwrap();
        let expect = [("a/b/deep", 8), ("a/near", 6), ("top", 3)];
        assert_eq!(found(&inside, 100, 16), expect.map(|(path, bytes)| (path.to_owned(), bytes)));
        assert!(found(&inside, 3, 16).len() <= 3);
        assert!(found(&inside, 0, 16).is_empty());
        assert_eq!(found(&inside, 100, 1), [("top".to_owned(), 3)]);
    }

    #[test]
    fn time_is_that_of_the_last_change() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("old");
        let file = fs::File::create(&path).unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
        let files = files_below(&Folder::open(root.path()).unwrap(), 10, 16).unwrap();
        assert!(files[0].changed_at > UNIX_EPOCH + Duration::from_secs(1_000_000_000));
    }
}
