//! Files and folders that an agent can change or replace.
//!
//! Hob never opens by name what an agent can rename. A path that was checked may lead elsewhere a moment later, through
//! a link that the agent put in its place. So everything below a folder that agents can write is reached from a
//! [`Folder`], a descriptor of a folder whose own path only Hob and the owner can change. No link is followed on the way.
//!
//! A file that an agent has left may also be a pipe, a device or enormous. So only regular files are opened, without
//! waiting, and reads have a limit.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use rustix::fs::{RenameFlags, renameat_with};

/// A folder, held by its descriptor. Paths below it are relative, without `..`, and never lead through a link.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// Opens a folder by its path. Only Hob and the owner may be able to change the path; links in it are followed.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlag::O_DIRECTORY.bits());
        Ok(Folder(options.open(path)?.into()))
    }

    /// Opens a folder by a path that has been checked. Fails if there is a link on the way, which somebody may have put there
    /// since.
    pub fn open_real(path: &Path) -> io::Result<Folder> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
        Ok(Folder(openat2(AT_FDCWD, path, how)?))
    }

    /// Opens a folder below this one.
    pub fn folder(&self, below: &Path) -> io::Result<Folder> {
        Ok(Folder(self.open_below(below, OFlag::O_RDONLY | OFlag::O_DIRECTORY, 0)?))
    }

    /// Creates a folder below this one, with the folders on the way, and opens it. Existing folders are kept.
    pub fn create_folders(&self, below: &Path, mode: u32) -> io::Result<Folder> {
        let mut folder = Folder(self.0.try_clone()?);
        for part in below.components() {
            let Component::Normal(name) = part else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            match mkdirat(&folder.0, name, Mode::from_bits_truncate(mode)) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(error) => return Err(error.into()),
            }
            folder = folder.folder(Path::new(name))?;
        }
        Ok(folder)
    }

    /// Creates a folder in this one and opens it. Fails if the name is taken.
    pub fn create_folder(&self, name: &str, mode: u32) -> io::Result<Folder> {
        mkdirat(&self.0, name, Mode::from_bits_truncate(mode))?;
        self.folder(Path::new(name))
    }

    /// Opens a regular file below this folder for reading.
    pub fn file(&self, below: &Path) -> io::Result<File> {
        regular(self.open_below(below, OFlag::O_RDONLY, 0)?.into())
    }

    /// Reads a regular file below this folder. Fails if it has more than `limit` bytes.
    pub fn read(&self, below: &Path, limit: u64) -> io::Result<Vec<u8>> {
        read_all(self.file(below)?, limit)
    }

    /// Creates a file below this folder. Fails if the name is taken.
    pub fn create_file(&self, below: &Path, mode: u32) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        Ok(self.open_below(below, flags, mode)?.into())
    }

    /// Opens a regular file below this folder for writing and empties it, or creates it.
    pub fn overwrite_file(&self, below: &Path, mode: u32) -> io::Result<File> {
        // The file is emptied only once it is known to be a regular one.
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT;
        let file = regular(self.open_below(below, flags, mode)?.into())?;
        file.set_len(0)?;
        Ok(file)
    }

    /// Renames an entry of this folder. Fails if the new name is taken.
    pub fn rename(&self, name: &OsStr, to: &Folder, new_name: &OsStr) -> io::Result<()> {
        // `nix` has this call only for glibc.
        Ok(renameat_with(&self.0, name, &to.0, new_name, RenameFlags::NOREPLACE)?)
    }

    /// Renames an entry of this folder. A file or link of the new name is replaced; a folder is not.
    pub fn replace(&self, name: &OsStr, new_name: &OsStr) -> io::Result<()> {
        Ok(renameat_with(&self.0, name, &self.0, new_name, RenameFlags::empty())?)
    }

    /// Removes a file, a link or any other entry of this folder that is not a folder.
    pub fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Returns whether an entry of this folder exists. A link counts as itself.
    pub fn contains(&self, name: &OsStr) -> bool {
        self.status(name).is_ok()
    }

    /// Returns the names of at most `limit` entries, in no particular order.
    pub fn names(&self, limit: usize) -> io::Result<Vec<OsString>> {
        Ok(self.entries(limit)?.into_iter().map(|(name, _)| name).collect())
    }

    pub(crate) fn status(&self, name: &OsStr) -> nix::Result<FileStat> {
        fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    /// Returns at most `limit` entries, each with whether it is a folder.
    pub(crate) fn entries(&self, limit: usize) -> io::Result<Vec<(OsString, bool)>> {
        // A descriptor of its own: reading moves the position, which duplicates share.
        let mut listing = Dir::from_fd(self.descriptor()?)?;
        let mut entries = Vec::new();
        for entry in listing.iter() {
            let entry = entry?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if name == "." || name == ".." {
                continue;
            }
            let is_folder = match entry.file_type() {
                Some(kind) => kind == Type::Directory,
                None => self.status(&name).is_ok_and(|status| is_folder(&status)),
            };
            entries.push((name, is_folder));
            if entries.len() == limit {
                break;
            }
        }
        Ok(entries)
    }

    /// Returns another descriptor of this folder, with its own position.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.folder(Path::new("."))?.0)
    }

    pub(crate) fn remove_empty_folder(&self, name: &OsStr) -> nix::Result<()> {
        unlinkat(&self.0, name, UnlinkatFlags::RemoveDir)
    }

    /// Opens a folder in this one that its owner may have closed to himself, and reopens it to him.
    pub(crate) fn reclaim(&self, name: &OsStr) -> io::Result<Folder> {
        match self.folder(Path::new(name)) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let path = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
                let closed = self.open_below(Path::new(name), path, 0)?;
                let link = format!("/proc/self/fd/{}", closed.as_raw_fd());
                fs::set_permissions(link, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
                self.folder(Path::new(name))
            }
            opened => opened,
        }
    }

    fn open_below(&self, below: &Path, flags: OFlag, mode: u32) -> io::Result<OwnedFd> {
        let flags = flags | OFlag::O_CLOEXEC;
        // A pipe must not block, and the path-only flag allows no other.
        let flags = if flags.contains(OFlag::O_PATH) {
            flags
        } else {
            flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY
        };
        let how = OpenHow::new()
            .flags(flags)
            .mode(Mode::from_bits_truncate(if flags.contains(OFlag::O_CREAT) { mode } else { 0 }))
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        Ok(openat2(&self.0, below, how)?)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Opens a regular file for reading by a path that others may control. The last component may not be a link, and a pipe
/// does not block. Use [`Folder::file`] where the folders on the way matter.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    regular(options.read(true).custom_flags(flags.bits()).open(path)?)
}

/// Opens a regular file for reading by a path that others may control, also through links. A pipe does not block. The
/// caller must not tell others what is in the file.
pub fn open_linked_regular(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    regular(options.read(true).custom_flags(flags.bits()).open(path)?)
}

/// Reads a regular file by a path that others may control. Fails if it has more than `limit` bytes.
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_all(open_regular(path)?, limit)
}

/// Returns the path to which a path leads through links. The system finds it in one step, so that a path of thousands of
/// names takes no longer than to open it.
pub fn real_path(path: &Path) -> io::Result<PathBuf> {
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC);
    let opened = openat2(AT_FDCWD, path, how)?;
    fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}

/// Splits a path into its folder, opened, and its last component.
pub fn open_parent(path: &Path) -> io::Result<(Folder, PathBuf)> {
    let parts = path.parent().zip(path.file_name());
    let (parent, name) = parts.ok_or(io::ErrorKind::InvalidInput)?;
    Ok((Folder::open(parent)?, name.into()))
}

fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

fn read_all(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let text = format!("the file has more than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

pub(crate) fn is_folder(status: &FileStat) -> bool {
    SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR
}

pub(crate) fn is_regular(status: &FileStat) -> bool {
    SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::mkfifo;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    fn path(text: &str) -> &Path {
        Path::new(text)
    }

    #[test]
    fn nothing_outside_is_reached_through_links_or_parents() {
        let root = tempfile::tempdir().unwrap();
        let (inside, outside) = (root.path().join("in"), root.path().join("out"));
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "s").unwrap();
        symlink(&outside, inside.join("link")).unwrap();
        symlink(outside.join("secret"), inside.join("file")).unwrap();
        let folder = Folder::open(&inside).unwrap();
        let absolute = outside.join("secret");
        for bad in [path("link/secret"), path("file"), path("../out/secret"), &absolute] {
            assert!(folder.file(bad).is_err(), "{bad:?}");
            assert!(folder.create_file(bad, 0o600).is_err(), "{bad:?}");
            assert!(folder.overwrite_file(bad, 0o600).is_err(), "{bad:?}");
        }
        assert!(folder.folder(path("link")).is_err());
        assert!(folder.create_folders(path("link/new"), 0o700).is_err());
        assert!(folder.create_folders(path("../new"), 0o700).is_err());
        assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "s");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn only_regular_files_of_bounded_size_are_read() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        folder.create_file(path("text"), 0o600).unwrap().write_all(b"12345").unwrap();
        assert_eq!(folder.read(path("text"), 5).unwrap(), b"12345");
        assert_eq!(folder.read(path("text"), 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        mkfifo(&root.path().join("pipe"), Mode::S_IRWXU).unwrap();
        symlink("/dev/zero", root.path().join("zero")).unwrap();
        for bad in ["pipe", "zero", "."] {
            assert!(folder.read(path(bad), 10).is_err(), "{bad}");
            assert!(read_regular(&root.path().join(bad), 10).is_err(), "{bad}");
            assert!(folder.overwrite_file(path(bad), 0o600).is_err(), "{bad}");
        }
        assert!(read_regular(path("/dev/zero"), 10).is_err());
        assert_eq!(read_regular(&root.path().join("text"), 5).unwrap(), b"12345");
    }

    #[test]
    fn folders_are_created_and_entries_renamed() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let deep = folder.create_folders(path("a/b"), 0o700).unwrap();
        deep.overwrite_file(path("f"), 0o600).unwrap().write_all(b"longer").unwrap();
        deep.overwrite_file(path("f"), 0o600).unwrap().write_all(b"new").unwrap();
        assert_eq!(folder.read(path("a/b/f"), 9).unwrap(), b"new");
        assert!(folder.create_folder("a", 0o700).is_err());
        let other = folder.create_folder("other", 0o700).unwrap();
        deep.rename("f".as_ref(), &other, "g".as_ref()).unwrap();
        assert!(other.contains("g".as_ref()) && !deep.contains("f".as_ref()));
        other.create_file(path("h"), 0o600).unwrap();
        assert!(other.rename("g".as_ref(), &other, "h".as_ref()).is_err(), "nothing is replaced");
        let mut names = folder.names(9).unwrap();
        names.sort();
        assert_eq!(names, ["a", "other"]);
        other.remove_file("g".as_ref()).unwrap();
        assert_eq!(other.names(9).unwrap(), ["h"]);
    }
}
