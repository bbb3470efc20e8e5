//! Reads and replaces a settings file of another program.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use hob_files::owned;

use super::error::HookError;

/// A settings file as it was when it was read.
#[derive(Debug)]
pub struct SettingsFile {
    /// The path that the client uses.
    named: PathBuf,
    /// The file itself, which differs if the path is a symbolic link.
    target: PathBuf,
    before: Option<FileContents>,
}

#[derive(Debug)]
struct FileContents {
    bytes: Vec<u8>,
    metadata: Metadata,
}

/// The result of an attempt to write.
#[derive(Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    Written,
    /// Another program changed the file since it was read, so nothing was written.
    ChangedMeanwhile,
}

/// The text to write; `None` removes the file.
pub type Edited = Option<String>;

/// The maximum number of attempts if another program writes to the same file.
const MAX_ATTEMPTS: usize = 5;
/// The maximum size of a settings file. A larger file is something else.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
const MAX_LINKS: usize = 40;
const OWNER_MAY_WRITE: u32 = 0o200;
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;

impl SettingsFile {
    pub fn read(named: &Path) -> Result<Self, HookError> {
        let target = resolved(named)?;
        let before = read_target(&target)?;
        Ok(Self { named: named.to_owned(), target, before })
    }

    /// Reads the file and lets `edit` change it, again if another program writes to it meanwhile. `edit` returns `None`
    /// if there is nothing to change. Returns whether the file changed.
    pub fn edit(
        named: &Path,
        mut edit: impl FnMut(&SettingsFile) -> Result<Option<Edited>, HookError>,
    ) -> Result<bool, HookError> {
        for _ in 0..MAX_ATTEMPTS {
            let loaded = SettingsFile::read(named)?;
            let Some(text) = edit(&loaded)? else { return Ok(false) };
            if loaded.replace(text.as_deref())? == WriteOutcome::Written {
                return Ok(true);
            }
        }
        Err(HookError::Contended { file: named.to_owned() })
    }

    /// Returns the text of the file, or `None` if there is no file.
    pub fn text(&self) -> Result<Option<&str>, HookError> {
        let Some(before) = &self.before else { return Ok(None) };
        let text = std::str::from_utf8(&before.bytes);
        text.map(Some).map_err(|error| self.broken(format!("the file is not UTF-8: {error}")))
    }

    pub fn broken(&self, reason: String) -> HookError {
        HookError::Broken { file: self.named.clone(), reason }
    }

    /// Makes sure that a backup exists before the file changes.
    ///
    /// `restored` is the file without Hob's entries. A backup with that content stays. Any other
    /// backup is older than the user's latest changes, and the current file replaces it. If
    /// `restored` is `None`, the file holds no settings of the user, and needs no backup.
    pub fn back_up(&self, restored: Option<&str>) -> Result<(), HookError> {
        let (Some(before), Some(restored)) = (&self.before, restored) else { return Ok(()) };
        let backup = backup_path(&self.named);
        match owned::read(&backup) {
            Ok(kept) if kept == restored.as_bytes() => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("read", &backup)(error));
            }
            _ => {}
        }
        let temporary = Temporary::write(&backup, &before.bytes, PRIVATE_FILE)?;
        temporary.rename_to(&backup)
    }

    /// Refuses a read-only file. Replacing it would succeed, but its mode says that the user does
    /// not want changes.
    pub fn check_writable(&self) -> Result<(), HookError> {
        match &self.before {
            Some(before) if before.metadata.mode() & OWNER_MAY_WRITE == 0 => {
                Err(HookError::ReadOnly { file: self.named.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Replaces the text in one step, or removes the file if `text` is `None`.
    pub fn replace(&self, text: Option<&str>) -> Result<WriteOutcome, HookError> {
        let Some(text) = text else {
            if self.has_changed()? {
                return Ok(WriteOutcome::ChangedMeanwhile);
            }
            if self.before.is_some() {
                match owned::remove_file(&self.target) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        return Ok(WriteOutcome::ChangedMeanwhile);
                    }
                    removed => removed.map_err(failed("remove", &self.target))?,
                }
                sync_folder_of(&self.target);
            }
            return Ok(WriteOutcome::Written);
        };
        let is_link = self.target != self.named;
        if let Some(folder) = self.target.parent().filter(|folder| is_link && !folder.exists()) {
            let reason = format!("it is a link into {}, which does not exist", folder.display());
            return Err(self.broken(reason));
        }
        if let Some(folder) = self.target.parent() {
            owned::create_private_dirs(folder, PRIVATE_FOLDER).map_err(failed("create", folder))?;
        }
        let temporary = Temporary::write(&self.target, text.as_bytes(), PRIVATE_FILE)?;
        if let Some(before) = &self.before {
            temporary.copy_owner_and_mode(&before.metadata)?;
        }
        if self.has_changed()? {
            return Ok(WriteOutcome::ChangedMeanwhile);
        }
        temporary.rename_to(&self.target)?;
        Ok(WriteOutcome::Written)
    }

    fn has_changed(&self) -> Result<bool, HookError> {
        let now = read_target(&resolved(&self.named)?)?;
        Ok(now.map(|now| now.bytes) != self.before.as_ref().map(|before| before.bytes.clone()))
    }
}

/// Returns the path of the backup of a settings file.
pub fn backup_path(named: &Path) -> PathBuf {
    let mut name = named.as_os_str().to_owned();
    name.push(".hob-backup");
    PathBuf::from(name)
}

/// Removes the backup if it equals the restored file.
pub fn drop_backup_equal_to(named: &Path, restored: Option<&str>) -> Result<(), HookError> {
    let backup = backup_path(named);
    match owned::read(&backup) {
        Ok(kept) if restored.is_some_and(|restored| restored.as_bytes() == kept) => {
            match owned::remove_file(&backup) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed.map_err(failed("remove", &backup)),
            }
        }
        _ => Ok(()),
    }
}

/// A temporary file, which is removed unless it is renamed to its final name.
struct Temporary {
    path: PathBuf,
    file: File,
}

impl Temporary {
    /// Writes a new file next to `target`, so that it can be renamed.
    fn write(target: &Path, bytes: &[u8], mode: u32) -> Result<Self, HookError> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        remove_leftovers(target, &format!(".{name}.hob-"));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let path = target.with_file_name(format!(".{name}.hob-{}-{now}", std::process::id()));
        let opened = owned::create_new(&path, mode);
        let mut temporary = Self { file: opened.map_err(failed("create", &path))?, path };
        let written = temporary.file.write_all(bytes).and_then(|()| temporary.file.sync_all());
        written.map_err(failed("write", &temporary.path))?;
        Ok(temporary)
    }

    /// Gives the file the owner and the mode of the file that it replaces.
    fn copy_owner_and_mode(&self, metadata: &Metadata) -> Result<(), HookError> {
        let own = self.file.metadata().map_err(failed("read", &self.path))?;
        if (own.uid(), own.gid()) != (metadata.uid(), metadata.gid()) {
            fchown(&self.file, Some(metadata.uid()), Some(metadata.gid()))
                .map_err(failed("copy the owner of", &self.path))?;
        }
        let mode = fs::Permissions::from_mode(metadata.mode() & 0o7777);
        self.file.set_permissions(mode).map_err(failed("copy the mode of", &self.path))?;
        self.file.sync_all().map_err(failed("write", &self.path))
    }

    fn rename_to(self, target: &Path) -> Result<(), HookError> {
        owned::rename(&self.path, target).map_err(failed("replace", target))?;
        sync_folder_of(target);
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After a rename there is no file of this name, and the error does not matter.
        let _ = owned::remove_file(&self.path);
    }
}

/// Removes temporary files of processes that were killed. They may hold copies of secrets.
fn remove_leftovers(target: &Path, start: &str) {
    let entries = target.parent().and_then(|folder| owned::read_dir(folder).ok());
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid =
            name.strip_prefix(start).and_then(|rest| rest.split_once('-')?.0.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = owned::remove_file(entry.path());
        }
    }
}

/// Follows symbolic links to the file, which need not exist yet. The edit then keeps the links.
fn resolved(named: &Path) -> Result<PathBuf, HookError> {
    let mut path = named.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(to) => path = path.parent().unwrap_or(Path::new("")).join(to),
            // Not a link, or not a file.
            Err(_) => return Ok(path),
        }
    }
    Err(HookError::Broken {
        file: named.to_owned(),
        reason: "the symbolic link leads to itself".to_owned(),
    })
}

fn read_target(target: &Path) -> Result<Option<FileContents>, HookError> {
    let broken =
        |reason: &str| HookError::Broken { file: target.to_owned(), reason: reason.to_owned() };
    let metadata = match fs::metadata(target) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", target)(error)),
    };
    if !metadata.is_file() {
        return Err(broken("not a regular file"));
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(broken("too large for a settings file"));
    }
    match owned::read(target) {
        Ok(bytes) => Ok(Some(FileContents { bytes, metadata })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", target)(error)),
    }
}

/// Makes a rename durable. On a file system that cannot do this, the content is still right.
fn sync_folder_of(path: &Path) {
    if let Some(folder) = path.parent() {
        let _ = owned::open(folder).and_then(|folder| folder.sync_all());
    }
}

fn failed(action: &'static str, file: &Path) -> impl FnOnce(io::Error) -> HookError + use<> {
    let file = file.to_owned();
    move |error| HookError::Io { action, file, error }
}
