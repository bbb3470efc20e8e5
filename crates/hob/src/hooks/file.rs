//! Reads and replaces a settings file that belongs to somebody else.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::error::HookError;

/// A settings file as it was when it was read.
#[derive(Debug)]
pub struct Loaded {
    /// The name by which the client knows the file.
    named: PathBuf,
    /// The file itself, which differs where the name is a link.
    target: PathBuf,
    before: Option<Before>,
}

#[derive(Debug)]
struct Before {
    bytes: Vec<u8>,
    metadata: Metadata,
}

/// What became of an attempt to write.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Written,
    /// Somebody else wrote the file since it was read, and nothing was done.
    ChangedMeanwhile,
}

/// Settings are small; something this large is not a settings file.
const LARGEST_FILE: u64 = 64 * 1024 * 1024;
const MOST_LINKS: usize = 40;
const OWNER_MAY_WRITE: u32 = 0o200;
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;

impl Loaded {
    pub fn read(named: &Path) -> Result<Self, HookError> {
        let target = resolved(named)?;
        let before = read_target(&target)?;
        Ok(Self { named: named.to_owned(), target, before })
    }

    /// The text of the file, or `None` where there is no file.
    pub fn text(&self) -> Result<Option<&str>, HookError> {
        let Some(before) = &self.before else { return Ok(None) };
        let text = std::str::from_utf8(&before.bytes);
        text.map(Some).map_err(|error| self.broken(format!("it is not UTF-8: {error}")))
    }

    pub fn broken(&self, reason: String) -> HookError {
        HookError::Broken { file: self.named.clone(), reason }
    }

    /// Sees to it that a backup exists before the file changes, and says where.
    ///
    /// `restored` is the file without our entries, that is what uninstalling gives. A backup that
    /// holds just that is as good as one can be and stays. Any other was made before settings were
    /// changed by somebody else, so the file as it is now takes its place. Where nothing would
    /// remain, there is nothing of the user's to keep.
    pub fn back_up(&self, restored: Option<&str>) -> Result<(), HookError> {
        let (Some(before), Some(restored)) = (&self.before, restored) else { return Ok(()) };
        let backup = backup_path(&self.named);
        match fs::read(&backup) {
            Ok(kept) if kept == restored.as_bytes() => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("read", &backup)(error));
            }
            _ => {}
        }
        let temporary = Temporary::write(&backup, &before.bytes, PRIVATE_FILE)?;
        temporary.become_file(&backup)
    }

    /// Refuses a read-only file: a rename would succeed all the same, but the mode says that a
    /// change is not wanted.
    pub fn check_writable(&self) -> Result<(), HookError> {
        match &self.before {
            Some(before) if before.metadata.mode() & OWNER_MAY_WRITE == 0 => {
                Err(HookError::ReadOnly { file: self.named.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Puts the new text in place of the old one in one step, or removes the file.
    pub fn replace(&self, text: Option<&str>) -> Result<Outcome, HookError> {
        let Some(text) = text else {
            if self.has_changed()? {
                return Ok(Outcome::ChangedMeanwhile);
            }
            if self.before.is_some() {
                match fs::remove_file(&self.target) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        return Ok(Outcome::ChangedMeanwhile);
                    }
                    removed => removed.map_err(failed("remove", &self.target))?,
                }
                sync_folder_of(&self.target);
            }
            return Ok(Outcome::Written);
        };
        if let Some(folder) = self.target.parent() {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(PRIVATE_FOLDER);
            builder.create(folder).map_err(failed("create", folder))?;
        }
        let temporary = Temporary::write(&self.target, text.as_bytes(), PRIVATE_FILE)?;
        if let Some(before) = &self.before {
            temporary.take_over(&before.metadata)?;
        }
        if self.has_changed()? {
            return Ok(Outcome::ChangedMeanwhile);
        }
        temporary.become_file(&self.target)?;
        Ok(Outcome::Written)
    }

    fn has_changed(&self) -> Result<bool, HookError> {
        let now = read_target(&resolved(&self.named)?)?;
        Ok(now.map(|now| now.bytes) != self.before.as_ref().map(|before| before.bytes.clone()))
    }
}

/// The backup of a settings file.
pub fn backup_path(named: &Path) -> PathBuf {
    let mut name = named.as_os_str().to_owned();
    name.push(".hob-backup");
    PathBuf::from(name)
}

/// Removes the backup when it holds nothing that is not in the file again.
pub fn drop_backup_equal_to(named: &Path, restored: Option<&str>) -> Result<(), HookError> {
    let backup = backup_path(named);
    match fs::read(&backup) {
        Ok(kept) if restored.is_some_and(|restored| restored.as_bytes() == kept) => {
            match fs::remove_file(&backup) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed.map_err(failed("remove", &backup)),
            }
        }
        _ => Ok(()),
    }
}

/// A file that is thrown away unless it takes its final name.
struct Temporary {
    path: PathBuf,
    file: File,
}

impl Temporary {
    /// Writes a new file beside `target`, so that a rename is possible.
    fn write(target: &Path, bytes: &[u8], mode: u32) -> Result<Self, HookError> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let path = target.with_file_name(format!(".{name}.hob-{}-{now}", std::process::id()));
        let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let mut temporary = Self { file: opened.map_err(failed("create", &path))?, path };
        let written = temporary.file.write_all(bytes).and_then(|()| temporary.file.sync_all());
        written.map_err(failed("write", &temporary.path))?;
        Ok(temporary)
    }

    /// Gives the file the owner and the mode of the one that it is to replace.
    fn take_over(&self, metadata: &Metadata) -> Result<(), HookError> {
        let ours = self.file.metadata().map_err(failed("read", &self.path))?;
        if (ours.uid(), ours.gid()) != (metadata.uid(), metadata.gid()) {
            fchown(&self.file, Some(metadata.uid()), Some(metadata.gid()))
                .map_err(failed("keep the owner of", &self.path))?;
        }
        let mode = fs::Permissions::from_mode(metadata.mode() & 0o7777);
        self.file.set_permissions(mode).map_err(failed("keep the mode of", &self.path))?;
        self.file.sync_all().map_err(failed("write", &self.path))
    }

    fn become_file(self, target: &Path) -> Result<(), HookError> {
        fs::rename(&self.path, target).map_err(failed("replace", target))?;
        sync_folder_of(target);
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename there is nothing left under this name, and that is as it should be.
        let _ = fs::remove_file(&self.path);
    }
}

/// Follows links to the file, which need not exist yet, so that a link stays a link.
fn resolved(named: &Path) -> Result<PathBuf, HookError> {
    let mut path = named.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&path) {
            Ok(to) => path = path.parent().unwrap_or(Path::new("")).join(to),
            // Not a link, or not there.
            Err(_) => return Ok(path),
        }
    }
    Err(HookError::Broken { file: named.to_owned(), reason: "it is a link to itself".to_owned() })
}

fn read_target(target: &Path) -> Result<Option<Before>, HookError> {
    let broken =
        |reason: &str| HookError::Broken { file: target.to_owned(), reason: reason.to_owned() };
    let metadata = match fs::metadata(target) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", target)(error)),
    };
    if !metadata.is_file() {
        return Err(broken("it is not a regular file"));
    }
    if metadata.len() > LARGEST_FILE {
        return Err(broken("it is too large for a settings file"));
    }
    match fs::read(target) {
        Ok(bytes) => Ok(Some(Before { bytes, metadata })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", target)(error)),
    }
}

/// Makes the new name last. A file system that cannot do it has the right content all the same.
fn sync_folder_of(path: &Path) {
    if let Some(folder) = path.parent() {
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
}

fn failed(action: &'static str, file: &Path) -> impl FnOnce(io::Error) -> HookError + use<> {
    let file = file.to_owned();
    move |source| HookError::Io { action, file, source }
}
