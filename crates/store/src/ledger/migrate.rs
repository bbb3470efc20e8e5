//! Migrations of a ledger.

use crate::ledger::postgres::PostgresLedger;
use crate::ledger::sqlite::Ledger;
use crate::migrate::{Migration, TABLES, Table};

/// Migrates a ledger from its file to a database.
pub fn ledger_to_postgres(from: &Ledger, to: &PostgresLedger) -> Migration<'static> {
    Migration::new::<&'static Table>(from.clone(), to.clone(), TABLES)
}

/// Migrates a ledger from a database to a file, which must be empty or partially migrated.
pub fn ledger_to_sqlite(from: &PostgresLedger, to: &Ledger) -> Migration<'static> {
    Migration::new::<&'static Table>(from.clone(), to.clone(), TABLES)
}
