//! Private files, written whole or not at all; and files of agents, reached without following links.
//!
//! `std::fs::write` and `File::create` use the default mode and leave half a file after a crash, and the functions of
//! `std::fs` follow any link. Production code uses this crate instead, which `clippy.toml` enforces.

#![allow(clippy::disallowed_methods, reason = "this is the one crate that opens files")]

mod listing;
pub mod owned;
mod trash;
mod untrusted;
mod usage;

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

pub use listing::{FoundFile, files_below};
pub use trash::{Trash, remove_contents};
pub use untrusted::{
    Folder, open_linked_regular, open_parent, open_regular, read_regular, real_path,
};
pub use usage::bytes_below;

/// Creates a file with mode 0600. Fails if it exists.
pub fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)
}

/// Creates a file with mode 0600. Returns `false`, and changes nothing, if it exists.
pub fn write_new(path: &Path, content: &[u8]) -> io::Result<bool> {
    let is_new = link_new(path, content, Durability::Synced)?;
    if is_new {
        sync_folder(path)?;
    }
    Ok(is_new)
}

/// Creates a file like [`write_new`], without waiting for the disk. It survives the end of this process; after a power
/// failure it may be missing or damaged, unless [`sync`] was called.
pub fn write_new_unsynced(path: &Path, content: &[u8]) -> io::Result<bool> {
    link_new(path, content, Durability::Unsynced)
}

/// Waits until a file and its name are on the disk.
pub fn sync(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()?;
    sync_folder(path)
}

fn link_new(path: &Path, content: &[u8], durability: Durability) -> io::Result<bool> {
    let temporary = write_temporary(path, content, durability)?;
    // A link, unlike a rename, never replaces a file that another process has just created.
    let linked = fs::hard_link(&temporary, path);
    let _ = fs::remove_file(&temporary);
    match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates or replaces a file with this mode.
pub fn write_over(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let temporary = write_temporary(path, content, Durability::Synced)?;
    replace(path, &temporary, mode)?;
    sync_folder(path)
}

/// Creates or replaces a file with this mode, without waiting for the disk. After a power failure the file
/// may be missing or old. Use it for frequent writes whose loss is harmless.
pub fn write_over_unsynced(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let temporary = write_temporary(path, content, Durability::Unsynced)?;
    replace(path, &temporary, mode)
}

fn replace(path: &Path, temporary: &Path, mode: u32) -> io::Result<()> {
    let placed = fs::set_permissions(temporary, Permissions::from_mode(mode))
        .and_then(|()| fs::rename(temporary, path));
    if placed.is_err() {
        let _ = fs::remove_file(temporary);
    }
    placed
}

/// Removes temporary files that killed processes left in a folder. `older_than` must be longer than any
/// write takes.
pub fn remove_temporaries(folder: &Path, older_than: Duration) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_temporary = entry.file_name().to_string_lossy().ends_with(".tmp");
        let modified = entry.metadata().and_then(|metadata| metadata.modified()).ok();
        let age = modified.and_then(|at| at.elapsed().ok()).unwrap_or_default();
        if is_temporary && age > older_than {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Syncs the folder of a file: its name is on the disk only then.
fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}

/// Whether a write waits for the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Durability {
    Synced,
    Unsynced,
}

/// Writes a temporary file in the same folder.
fn write_temporary(path: &Path, content: &[u8], durability: Durability) -> io::Result<PathBuf> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", Uuid::new_v4()));
    let temporary = path.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = file.write_all(content).and_then(|()| match durability {
        Durability::Synced => file.sync_all(),
        Durability::Unsynced => Ok(()),
    });
    if let Err(error) = written {
        // Partial files must not fill a disk that is already full.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    Ok(temporary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn write_new_never_replaces_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        assert!(write_new(&path, b"first").unwrap());
        assert!(!write_new(&path, b"second").unwrap());
        assert!(!write_new_unsynced(&path, b"second").unwrap());
        assert!(create(&path, b"second").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        write_over(&path, b"third", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"third");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        write_over_unsynced(&path, b"fourth", 0o644).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"fourth");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        fs::remove_file(&path).unwrap();
        assert!(sync(&path).is_err());
        assert!(write_new_unsynced(&path, b"fifth").unwrap());
        sync(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }
}
