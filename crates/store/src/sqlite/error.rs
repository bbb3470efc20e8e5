//! Errors of SQLite files.

use std::path::{Path, PathBuf};

use hob_domain::StoreError;

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file is not a database, or not one of this key.
    #[error("{} cannot be read with this key: it was made with another one, or it is damaged", .0.display())]
    WrongKey(PathBuf),
    /// A newer Hob has been here.
    #[error("{} was written by a newer hob (schema {found}, this one knows {known})", path.display())]
    Newer { path: PathBuf, found: usize, known: usize },
    #[error("{} cannot be opened: {error}", path.display())]
    Failed { path: PathBuf, error: rusqlite::Error },
    #[error("there is no thread to write {}: {error}", path.display())]
    NoThread { path: PathBuf, error: std::io::Error },
}

impl OpenError {
    /// Whether it is only that somebody else is at the file.
    pub fn is_temporary(&self) -> bool {
        let OpenError::Failed { error, .. } = self else { return false };
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
        matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked))
    }
}

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
