//! The ledger in a SQLite file: opening it.

use std::path::Path;

use hob_domain::DataKey;

use crate::sqlite::{
    BUSY_TIMEOUT, Database, EarlierSchema, MIN_CACHE_KIB, OpenError, Reading, migrations,
};

/// `hob.db`: apps, sessions, turns and events. Cloning shares it.
#[derive(Clone)]
pub struct Ledger {
    pub(super) database: Database,
}

impl Ledger {
    /// Opens the file, creates it if it is missing, and brings its schema to the current version. Blocks for a few
    /// milliseconds.
    pub fn open(path: &Path, key: &DataKey) -> Result<Ledger, OpenError> {
        Ledger::open_with(path, key, EarlierSchema::Migrate)
    }

    /// Opens the file like [`Ledger::open`]. Fails with [`OpenError::Earlier`] instead of migrating the schema.
    pub fn open_current(path: &Path, key: &DataKey) -> Result<Ledger, OpenError> {
        Ledger::open_with(path, key, EarlierSchema::Refuse)
    }

    fn open_with(path: &Path, key: &DataKey, earlier: EarlierSchema) -> Result<Ledger, OpenError> {
        let reading = Reading { readers: 8, max_cache_kib: MIN_CACHE_KIB };
        let schema = &migrations::LEDGER;
        let database = Database::open(path, key, schema, BUSY_TIMEOUT, reading, earlier)?;
        Ok(Ledger { database })
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }
}
