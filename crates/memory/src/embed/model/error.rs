//! The error of a folder that is not a usable model, and the reader of its JSON files.

use std::io;
use std::path::{Path, PathBuf};

use hob_files::owned;
use serde::de::DeserializeOwned;

/// The reason why a folder cannot be used as a model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{}: {reason}", path.display())]
    Unsupported { path: PathBuf, reason: String },
}

impl ModelError {
    pub(super) fn unsupported(path: &Path, reason: &str) -> ModelError {
        ModelError::Unsupported { path: path.to_owned(), reason: reason.to_owned() }
    }
}

pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, ModelError> {
    let bytes = owned::read(path)
        .map_err(|error| ModelError::Unreadable { path: path.to_owned(), error })?;
    serde_json::from_slice(&bytes)
        .map_err(|error| ModelError::unsupported(path, &format!("cannot parse it: {error}")))
}
