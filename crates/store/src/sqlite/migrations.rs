//! The schema's history. A step that has landed is frozen: the tidy test knows its digest.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::OpenError;

/// Each step is applied once, in order, and counted in `user_version`.
pub(super) const LEDGER: &[&str] =
    &[include_str!("migrations/0001_apps.sql"), include_str!("migrations/0002_sessions.sql")];
pub(super) const MEMORY: &[&str] = &[include_str!("migrations/memory/0001_turns.sql")];

pub(super) fn run(
    connection: &mut Connection,
    path: &Path,
    steps: &[&str],
) -> Result<(), OpenError> {
    let failed = |error| OpenError::Failed { path: path.to_owned(), error };
    if version(connection).map_err(failed)? == steps.len() {
        return Ok(());
    }
    // Two processes may come here at once; the second finds the work done.
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let found = version(&transaction).map_err(failed)?;
    if found > steps.len() {
        return Err(OpenError::Newer { path: path.to_owned(), found, known: steps.len() });
    }
    for step in &steps[found..] {
        transaction.execute_batch(step).map_err(failed)?;
    }
    transaction.pragma_update(None, "user_version", steps.len() as u32).map_err(failed)?;
    transaction.commit().map_err(failed)
}

fn version(connection: &Connection) -> rusqlite::Result<usize> {
    connection
        .pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0))
        .map(|n| n as usize)
}
