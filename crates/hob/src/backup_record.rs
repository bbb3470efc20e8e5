//! How the last scheduled backups went, for `hob doctor`.

use std::path::PathBuf;

use hob_domain::Timestamp;
use hob_files::owned;
use serde::{Deserialize, Serialize};

use crate::home::Home;

/// The record of scheduled backups.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BackupRecord {
    /// The last backup that was written and read back.
    pub saved: Option<SavedBackup>,
    /// The last attempt, if it failed.
    pub failure: Option<BackupFailure>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SavedBackup {
    pub at: Timestamp,
    pub file: PathBuf,
    pub bytes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BackupFailure {
    pub at: Timestamp,
    pub error: String,
}

impl BackupRecord {
    /// Reads the record; it is empty if there is none yet.
    pub fn read(home: &Home) -> BackupRecord {
        let text = owned::read(home.backup_record()).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    pub fn write(&self, home: &Home) -> anyhow::Result<()> {
        Ok(hob_files::write_over(&home.backup_record(), &serde_json::to_vec(self)?, 0o600)?)
    }
}
