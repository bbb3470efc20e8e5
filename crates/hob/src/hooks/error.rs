//! Why a settings file was not changed.

use std::io;
use std::path::PathBuf;

/// An error that left the settings file as it was.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    #[error("{} was not changed: {reason}", file.display())]
    Broken { file: PathBuf, reason: String },
    #[error("{} was not changed: the file is read-only; make it writable and try again", file.display())]
    ReadOnly { file: PathBuf },
    #[error("{} was not changed: another program keeps writing to it; close that program and try again", file.display())]
    Contended { file: PathBuf },
    #[error("the hooks cannot call {}: {reason}", program.display())]
    Program { program: PathBuf, reason: &'static str },
    #[error("cannot {action} {}: {error}", file.display())]
    Io { action: &'static str, file: PathBuf, error: io::Error },
}
