//! Files and folders whose paths only Hob and the owner can change: Hob's home, the owner's own
//! configuration, and what the kernel shows as files.
//!
//! Each function is the one of `std::fs` with its name. Other crates may not call those of `std::fs`, which `clippy.toml`
//! says. So every place that opens a file decides between this module and [`crate::Folder`], which is for everything that an
//! agent can rename or replace.

use std::fs::{self, DirBuilder, File, Permissions, ReadDir};
use std::io::{self, Write};
use std::iter::Flatten;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Opens a file for reading.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    File::open(path)
}

/// Creates a file with this mode and opens it for writing. Fails if the name is taken.
pub fn create_new(path: impl AsRef<Path>, mode: u32) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(mode).open(path)
}

/// Opens a file for reading and writing, or creates it with this mode.
pub fn open_or_create(path: impl AsRef<Path>, mode: u32) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).mode(mode).open(path)
}

/// Opens a file for adding to its end, or creates it with this mode.
pub fn open_to_append(path: impl AsRef<Path>, mode: u32) -> io::Result<File> {
    File::options().append(true).create(true).mode(mode).open(path)
}

/// Writes to a file that exists, such as one of the kernel's. What the file holds is not removed first.
pub fn write_existing(path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    File::options().write(true).open(path)?.write_all(bytes)
}

/// Reads a whole file.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    fs::read(path)
}

/// Reads a whole file as text.
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read_to_string(path)
}

/// Returns the entries of a folder that can be read. A folder that cannot be listed has none.
pub fn entries(folder: impl AsRef<Path>) -> Entries {
    read_dir(folder).into_iter().flatten().flatten()
}

/// The entries of a folder.
pub type Entries = Flatten<Flatten<std::result::IntoIter<ReadDir>>>;

/// Lists a folder.
pub fn read_dir(folder: impl AsRef<Path>) -> io::Result<ReadDir> {
    fs::read_dir(folder)
}

/// Creates a folder. Fails if the name is taken.
pub fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    fs::create_dir(path)
}

/// Creates a folder, with the folders on the way. Existing folders are kept.
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Creates a folder, with the folders on the way, all of them with this mode. Existing folders are kept as they are.
pub fn create_private_dirs(path: impl AsRef<Path>, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(path)
}

/// Removes a file or a link.
pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    fs::remove_file(path)
}

/// Removes an empty folder.
pub fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    fs::remove_dir(path)
}

/// Removes a folder with everything in it. Use [`crate::Trash`] for what an agent could write.
pub fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    fs::remove_dir_all(path)
}

/// Renames a file or a folder. A file of the new name is replaced.
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    fs::rename(from, to)
}

/// Copies the content and the mode of a file. A file of the new name is replaced.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    fs::copy(from, to)
}

/// Gives a file a second name. Fails if the name is taken.
pub fn hard_link(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    fs::hard_link(from, to)
}

/// Creates a link.
pub fn symlink(target: impl AsRef<Path>, path: impl AsRef<Path>) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

/// Sets the mode of a file or a folder.
pub fn set_mode(path: impl AsRef<Path>, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}
