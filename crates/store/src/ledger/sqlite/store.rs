//! The ledger in a SQLite file: opening it.

use std::path::Path;

use hob_domain::DataKey;

use crate::sqlite::{BUSY_TIMEOUT, Database, MIN_CACHE_KIB, OpenError, Reading, migrations};

/// `hob.db`: apps, sessions, turns and events. Cloning shares it.
#[derive(Clone)]
pub struct Ledger {
    pub(super) database: Database,
}

impl Ledger {
    /// Opens the file, creates it if it is missing, and brings its schema to the current version. Blocks for a few
    /// milliseconds.
    pub fn open(path: &Path, key: &DataKey) -> Result<Ledger, OpenError> {
        let reading = Reading { readers: 8, max_cache_kib: MIN_CACHE_KIB };
        let database = Database::open(path, key, &migrations::LEDGER, BUSY_TIMEOUT, reading)?;
        Ok(Ledger { database })
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }
}
