//! Removal of folders that agents have filled.
//!
//! An agent can leave a tree that takes long to remove, for example one of many thousand nested folders. So a folder
//! is first renamed into a trash folder, which takes one step however large the tree is, and then removed by a thread
//! of its own. The time grows with the number of entries, not with their depth: every folder found on the way is moved
//! to the top of the trash before its own entries are removed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use uuid::Uuid;

use crate::untrusted::{Folder, open_parent};

/// How many entries of a folder are listed at a time. It bounds the memory that a folder of many entries takes.
const BATCH_ENTRIES: usize = 10_000;

/// The trash folder, with the thread that empties it. Clones share both. The thread ends with the last clone; what it
/// has not removed by then is removed by the next [`Trash::open`].
#[derive(Debug, Clone)]
pub struct Trash {
    folder: Arc<Folder>,
    work: Arc<Mutex<Sender<()>>>,
}

impl Trash {
    /// Creates the trash folder unless it exists, and starts to empty it. It must be on the file system of what will be
    /// removed, and no agent may be able to change it.
    pub fn open(path: &Path) -> io::Result<Trash> {
        std::fs::create_dir_all(path)?;
        let folder = Arc::new(Folder::open(path)?);
        let (work, requests) = channel();
        let emptied = folder.clone();
        std::thread::Builder::new()
            .name("hob-trash".into())
            .spawn(move || run(&emptied, &requests))?;
        let trash = Trash { folder, work: Arc::new(Mutex::new(work)) };
        trash.empty_soon();
        Ok(trash)
    }

    /// Removes a file or a folder with everything in it. The name is free when this returns; the content is removed
    /// later. A name that does not exist is no error.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = match open_parent(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        self.remove_from(&parent, name.as_os_str())
    }

    /// Removes an entry of a folder; see [`Trash::remove`].
    pub fn remove_from(&self, parent: &Folder, name: &OsStr) -> io::Result<()> {
        match move_into(parent, name, &self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                remove_in_place(parent, name)
            }
            moved => moved.map(|()| self.empty_soon()),
        }
    }

    fn empty_soon(&self) {
        // The receiver lives as long as its sender.
        let _ = self.work.lock().unwrap_or_else(PoisonError::into_inner).send(());
    }
}

/// Removes the entries of a folder that agents have filled, at once. It needs write access to the folder itself.
pub fn remove_contents(folder: &Folder) -> io::Result<()> {
    let mut failed = None;
    loop {
        let mut removed = false;
        for (name, is_folder) in folder.entries(BATCH_ENTRIES)? {
            let result = if is_folder { flatten(folder, &name) } else { folder.remove_file(&name) };
            match result {
                Ok(()) => removed = true,
                Err(error) => failed = Some(error),
            }
        }
        if !removed {
            // What is left cannot be removed; a repetition would not end.
            return failed.map_or(Ok(()), Err);
        }
        failed = None;
    }
}

/// Removes an entry of a folder on another file system than the trash.
fn remove_in_place(parent: &Folder, name: &OsStr) -> io::Result<()> {
    let unique = format!(".{}", Uuid::new_v4().simple());
    let trash = parent.create_folder(&unique, 0o700)?;
    let removed = move_into(parent, name, &trash).and_then(|()| remove_contents(&trash));
    let _ = parent.remove_empty_folder(unique.as_ref());
    removed
}

fn run(trash: &Folder, requests: &Receiver<()>) {
    while requests.recv().is_ok() {
        // What cannot be removed now is tried again with the next request and at the next start.
        let _ = remove_contents(trash);
    }
}

/// Removes a folder's files and moves its folders to the top of the trash. Then removes the folder.
fn flatten(trash: &Folder, name: &OsStr) -> io::Result<()> {
    match trash.remove_empty_folder(name) {
        Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
        removed => return Ok(removed?),
    }
    let folder = trash.reclaim(name)?;
    for (entry, is_folder) in folder.entries(BATCH_ENTRIES)? {
        if !is_folder {
            folder.remove_file(&entry)?;
        } else if folder.remove_empty_folder(&entry).is_err() {
            move_into(&folder, &entry, trash)?;
        }
    }
    match trash.remove_empty_folder(name) {
        // There are more entries than one batch, and the caller comes again.
        Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(()),
        removed => Ok(removed?),
    }
}

/// Moves an entry under a new unique name.
fn move_into(from: &Folder, name: &OsStr, to: &Folder) -> io::Result<()> {
    let unique = OsString::from(Uuid::new_v4().simple().to_string());
    match from.rename(name, to, &unique) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // A folder that its owner cannot write cannot get another parent.
            drop(from.reclaim(name)?);
            from.rename(name, to, &unique)
        }
        moved => moved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, Instant};

    #[test]
    fn a_deep_and_closed_tree_is_removed_and_links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let kept = root.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        let tree = root.path().join("tree");
        fs::create_dir(&tree).unwrap();
        symlink(&kept, tree.join("link")).unwrap();
        let closed = tree.join("closed");
        fs::create_dir_all(closed.join("inner/more")).unwrap();
        fs::write(closed.join("inner/file"), "x").unwrap();
        fs::set_permissions(closed.join("inner"), fs::Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
        // Deeper than any path may be long.
        let mut folder = Folder::open(&tree).unwrap();
        for _ in 0..5_000 {
            folder = folder.create_folder("d", 0o700).unwrap();
        }
        drop(folder);
        let path = root.path().join("trash");
        let trash = Trash::open(&path).unwrap();
        trash.remove(&tree).unwrap();
        assert!(!tree.exists(), "the name is free at once");
        trash.remove(&tree).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while fs::read_dir(&path).unwrap().next().is_some() {
            assert!(Instant::now() < until, "the trash was not emptied");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(fs::read(kept.join("file")).unwrap(), b"x");
    }

    #[test]
    fn leftovers_are_removed_at_the_next_start() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("old/a/b")).unwrap();
        fs::write(root.path().join("old/a/f"), "x").unwrap();
        remove_contents(&Folder::open(root.path()).unwrap()).unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
