//! Errors of SQLite files.

use std::path::{Path, PathBuf};

use hob_domain::StoreError;

/// The reason why a database file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file is not a database, or it is encrypted with another key.
    #[error("cannot decrypt {}: it was encrypted with another key or is damaged; restore the matching key or a backup", .0.display())]
    WrongKey(PathBuf),
    /// A newer Hob has changed the schema.
    #[error("{} was written by a newer hob (schema {found}; this one supports up to {known}): update this hob", path.display())]
    Newer { path: PathBuf, found: u32, known: u32 },
    /// The schema is older than the one that can be imported.
    #[error(
        "{} was written by an earlier hob (schema {found}), which this version cannot upgrade: first open it \
         with a hob version that uses schema {oldest}, then with this one", path.display()
    )]
    Older { path: PathBuf, found: u32, oldest: u32 },
    #[error("{} is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("cannot open {}: {error}", path.display())]
    Failed { path: PathBuf, error: rusqlite::Error },
    #[error("cannot open {} for writing: {error}", path.display())]
    NoThread { path: PathBuf, error: std::io::Error },
}

impl OpenError {
    /// Returns whether the file is merely locked by another process.
    pub fn is_temporary(&self) -> bool {
        let OpenError::Failed { error, .. } = self else { return false };
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
        matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked))
    }
}

/// Maps an error of opening a file.
pub(super) fn open_error(path: &Path, error: rusqlite::Error) -> OpenError {
    match error {
        rusqlite::Error::SqliteFailure(code, _)
            if code.code == rusqlite::ErrorCode::NotADatabase =>
        {
            OpenError::WrongKey(path.to_owned())
        }
        error => OpenError::Failed { path: path.to_owned(), error },
    }
}

/// Maps an error of a statement: temporary if the same call may succeed later.
pub(crate) fn failed(error: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode::{
        CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, SystemIoFailure,
    };
    match error.sqlite_error_code() {
        Some(DatabaseBusy | DatabaseLocked | DiskFull | SystemIoFailure | CannotOpen) => {
            StoreError::Unavailable(error.to_string())
        }
        _ => StoreError::Failed(error.to_string()),
    }
}
