//! Errors of SQLite files.

use std::path::{Path, PathBuf};

use hob_domain::StoreError;
use rusqlite::ErrorCode::{
    CannotOpen, DatabaseBusy, DatabaseCorrupt, DatabaseLocked, DiskFull, NotADatabase, ReadOnly,
    SystemIoFailure,
};

/// What the owner can do about a damaged file.
const NEXT_STEP: &str =
    "save what can be read with `hob store salvage`, or restore a backup with `hob restore FILE`";

/// The reason why a database file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file is not a database, or it is encrypted with another key.
    #[error(
        "cannot decrypt {}: it was encrypted with another key or is damaged; copy the matching file `key` back, \
         {NEXT_STEP}", .0.display()
    )]
    WrongKey(PathBuf),
    /// A newer Hob has changed the schema.
    #[error(
        "{} was written by a newer hob (schema {found}; this one supports up to {known}): install the newer hob again, or go back \
         to a backup from before the upgrade with `hob restore FILE`", path.display()
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
    /// The schema is older than the one that can be imported.
    #[error(
        "{} was written by an earlier hob (schema {found}), which this version cannot upgrade: first open it \
         with a hob version that uses schema {oldest}, then with this one", path.display()
    )]
    Older { path: PathBuf, found: u32, oldest: u32 },
    /// The schema is an earlier one, and the caller does not want the file migrated.
    #[error("{} must be upgraded from schema {found} to {known}", path.display())]
    Earlier { path: PathBuf, found: u32, known: u32 },
    #[error("{} is damaged: {what}; {NEXT_STEP}", path.display())]
    Damaged { path: PathBuf, what: String },
    /// The file can only be read, and its schema is not the current one.
    #[error(
        "{} must be upgraded from schema {found} to {known}, but is not writable: copy Hob's home folder to a writable place, and \
         set HOB_HOME to the copy", path.display()
    )]
    CannotMigrate { path: PathBuf, found: u32, known: u32 },
    #[error("cannot open {}: {error}{}", path.display(), advice(error))]
    Failed { path: PathBuf, error: rusqlite::Error },
    #[error("cannot open {} for writing: {error}", path.display())]
    NoThread { path: PathBuf, error: std::io::Error },
}

impl OpenError {
    /// Returns in a few words, without a path, why the file cannot be written.
    pub fn reason(&self) -> &'static str {
        let OpenError::Failed { error, .. } = self else { return "a database is damaged" };
        match error.sqlite_error_code() {
            Some(DiskFull) => "the disk is full",
            Some(ReadOnly) => "the disk is read-only",
            Some(DatabaseBusy | DatabaseLocked) => "another process is writing for too long",
            Some(SystemIoFailure | CannotOpen) => "the disk reports an error",
            _ => "a database cannot be written",
        }
    }

    /// Returns whether the disk is full, cannot be written or fails.
    pub fn is_of_the_disk(&self) -> bool {
        let OpenError::Failed { error, .. } = self else { return false };
        matches!(
            error.sqlite_error_code(),
            Some(DiskFull | ReadOnly | SystemIoFailure | CannotOpen)
        )
    }

    /// Returns whether the file is merely locked by another process.
    pub fn is_temporary(&self) -> bool {
        let OpenError::Failed { error, .. } = self else { return false };
        matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked))
    }
}

/// Returns what may be the cause of an error that SQLite does not explain. On a full disk it cannot make the index of its log.
fn advice(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(SystemIoFailure) => "; the disk may be full, or fail",
        _ => "",
    }
}

/// Maps an error of opening a file.
pub(crate) fn open_error(path: &Path, error: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(NotADatabase) => OpenError::WrongKey(path),
        Some(DatabaseCorrupt) => OpenError::Damaged { path, what: error.to_string() },
        _ => OpenError::Failed { path, error },
    }
}

/// Maps an error of a statement: temporary if the same call may succeed later.
pub(crate) fn failed(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(DatabaseBusy | DatabaseLocked | DiskFull | SystemIoFailure | CannotOpen) => {
            StoreError::Unavailable(error.to_string())
        }
        Some(DatabaseCorrupt | NotADatabase) => {
            StoreError::Damaged(format!("the file is damaged ({error}); {NEXT_STEP}"))
        }
        _ => StoreError::Failed(error.to_string()),
    }
}
