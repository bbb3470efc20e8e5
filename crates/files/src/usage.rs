//! How much of the disk the files below a folder take.

use std::ffi::CStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use nix::dir::{Dir, OwningIter};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstatat};

use crate::untrusted::{Folder, is_folder};

/// An entry counts as at least this many bytes, so that the number of entries is bounded too.
const MIN_ENTRY_BYTES: u64 = 4 << 10;
/// The unit in which the kernel counts what a file takes.
const BLOCK_BYTES: u64 = 512;
/// How many folders inside each other are open at once. Each holds two descriptors.
const MAX_OPEN_DEPTH: usize = 128;
/// How many folders that lie deeper may wait to be counted.
const MAX_WAITING: usize = 128;

/// Returns how many bytes the files below a folder take on the disk. Counting ends when there are more than `limit`.
///
/// The folder may change meanwhile, and an agent may have made it. No link is followed, and what disappears is not
/// counted. More than [`MAX_WAITING`] deep folders, as no program makes them, count as more than the limit.
pub fn bytes_below(folder: &Folder, limit: u64) -> io::Result<u64> {
    let mut bytes = 0u64;
    let mut open = vec![Listing::of(folder.descriptor()?)?];
    let mut waiting = Vec::new();
    while bytes <= limit {
        let Some(listing) = open.last_mut() else {
            match waiting.pop() {
                Some(deep) => open.push(Listing::of(deep)?),
                None => break,
            }
            continue;
        };
        // A folder that cannot be read to its end has been removed, for example.
        let Some(Ok(entry)) = listing.entries.next() else {
            open.pop();
            continue;
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let Ok(status) = fstatat(&listing.folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) else {
            continue;
        };
        let taken = u64::try_from(status.st_blocks).unwrap_or_default() * BLOCK_BYTES;
        bytes = bytes.saturating_add(taken.max(MIN_ENTRY_BYTES));
        if is_folder(&status)
            && let Some(below) = listing.enter(name)?
        {
            match (open.len() < MAX_OPEN_DEPTH, waiting.len() < MAX_WAITING) {
                (true, _) => open.push(Listing::of(below)?),
                (false, true) => waiting.push(below),
                (false, false) => return Ok(u64::MAX),
            }
        }
    }
    Ok(bytes)
}

/// A folder whose entries are being read.
struct Listing {
    folder: OwnedFd,
    entries: OwningIter,
}

impl Listing {
    fn of(folder: OwnedFd) -> io::Result<Listing> {
        let entries = Dir::from_fd(folder.try_clone()?)?.into_iter();
        Ok(Listing { folder, entries })
    }

    /// Opens a folder in this one. Returns `None` for one that cannot be read, or is gone.
    fn enter(&self, name: &CStr) -> io::Result<Option<OwnedFd>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match openat(&self.folder, name, flags, Mode::empty()) {
            Ok(folder) => Ok(Some(folder)),
            Err(error @ (Errno::EMFILE | Errno::ENFILE)) => Err(error.into()),
            Err(Errno::EACCES) => Ok(self.enter_closed(name).ok()),
            Err(_) => Ok(None),
        }
    }

    /// Opens a folder whose mode does not let its owner read it; files can be written into it all the same. The mode is as
    /// before when this returns.
    fn enter_closed(&self, name: &CStr) -> io::Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let closed = openat(&self.folder, name, flags, Mode::empty())?;
        let path = format!("/proc/self/fd/{}", closed.as_raw_fd());
        let mode = fs::metadata(&path)?.permissions().mode();
        fs::set_permissions(&path, Permissions::from_mode(mode | 0o500))?;
        let opened = fs::File::open(&path);
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        Ok(opened?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::symlink;

    fn bytes(path: &std::path::Path, limit: u64) -> u64 {
        bytes_below(&Folder::open(path).unwrap(), limit).unwrap()
    }

    #[test]
    fn files_at_any_depth_count_by_what_they_take() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(bytes(root.path(), u64::MAX), 0);
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::write(root.path().join("a/b/file"), vec![1; 1 << 20]).unwrap();
        // A sparse file takes no room, whatever its length.
        File::create(root.path().join("a/sparse")).unwrap().set_len(1 << 40).unwrap();
        symlink("/", root.path().join("a/link")).unwrap();
        let found = bytes(root.path(), u64::MAX);
        assert!((1 << 20..2 << 20).contains(&found), "{found}");
    }

    #[test]
    fn files_in_a_closed_folder_count() {
        let root = tempfile::tempdir().unwrap();
        let closed = root.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::write(closed.join("file"), vec![1; 1 << 20]).unwrap();
        fs::set_permissions(&closed, Permissions::from_mode(0o300)).unwrap();
        let found = bytes(root.path(), u64::MAX);
        assert!(found > 1 << 20, "{found}");
        assert_eq!(fs::metadata(&closed).unwrap().permissions().mode() & 0o777, 0o300);
        fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn many_empty_files_count() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..100 {
            fs::write(root.path().join(number.to_string()), "").unwrap();
        }
        assert_eq!(bytes(root.path(), u64::MAX), 100 * MIN_ENTRY_BYTES);
        let cut = bytes(root.path(), 10 * MIN_ENTRY_BYTES);
        assert_eq!(cut, 11 * MIN_ENTRY_BYTES, "counting ends at the limit");
    }

    #[test]
    fn deep_folders_count() {
        let root = tempfile::tempdir().unwrap();
        let deep: std::path::PathBuf = std::iter::repeat_n("d", 3 * MAX_OPEN_DEPTH).collect();
        fs::create_dir_all(root.path().join(&deep)).unwrap();
        fs::write(root.path().join(deep).join("file"), vec![1; 1 << 20]).unwrap();
        let found = bytes(root.path(), u64::MAX);
        assert!(found >= (1 << 20) + 3 * MAX_OPEN_DEPTH as u64 * MIN_ENTRY_BYTES, "{found}");
        let wide: std::path::PathBuf = std::iter::repeat_n("w", MAX_OPEN_DEPTH - 1).collect();
        for number in 0..=MAX_WAITING {
            fs::create_dir_all(root.path().join(&wide).join(number.to_string())).unwrap();
        }
        assert_eq!(bytes(root.path(), u64::MAX - 1), u64::MAX, "too many of them");
    }
}
