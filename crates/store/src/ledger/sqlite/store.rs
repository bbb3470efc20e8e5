//! The ledger's file.

use std::path::Path;

use hob_domain::DataKey;

use crate::sqlite::{BUSY_TIMEOUT, CACHE, Database, OpenError, Reading, migrations};

/// `hob.db`: apps, sessions, turns and events. Cloning shares it.
#[derive(Clone)]
pub struct Ledger {
    pub(super) database: Database,
}

impl Ledger {
    /// Opens the database, making it and bringing its schema up to date where needed. Blocking, a
    /// few milliseconds.
    pub fn open(path: &Path, key: &DataKey) -> Result<Ledger, OpenError> {
        let reading = Reading { readers: 8, most: CACHE };
        let database = Database::open(path, key, &migrations::LEDGER, BUSY_TIMEOUT, reading)?;
        Ok(Ledger { database })
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }
}
