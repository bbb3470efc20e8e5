//! Where a value came from, and why a value was refused.

use std::fmt;
use std::io;

/// One setting as `hob doctor` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub key: String,
    pub value: String,
    pub source: Source,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Flag,
    /// The name of the variable.
    Environment(String),
    File,
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag => f.write_str("flag"),
            Source::Environment(name) => write!(f, "${name}"),
            Source::File => f.write_str("config.toml"),
            Source::Default => f.write_str("default"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("cannot determine Hob's home folder: set HOB_HOME or HOME")]
    NoHome,
    #[error("cannot read {path}: {error}")]
    Unreadable { path: String, error: io::Error },
    #[error("{path} is not valid TOML: {error}")]
    NotToml { path: String, error: Box<toml::de::Error> },
    #[error("{key} (from {origin}): {problem}")]
    BadValue { key: String, origin: Source, problem: String },
}
