//! The schema's history. A step that has landed is frozen: the tidy test knows its digest.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::error::OpenError;

/// Each step is applied once, in order, and counted in `user_version`.
pub(crate) const LEDGER: &[&str] = &[
    include_str!("migrations/0001_apps.sql"),
    include_str!("migrations/0002_sessions.sql"),
    include_str!("migrations/0003_usage.sql"),
    include_str!("migrations/0004_events.sql"),
    include_str!("migrations/0005_audit.sql"),
    include_str!("migrations/0006_usage_turns.sql"),
    include_str!("migrations/0007_holds.sql"),
];
pub(crate) const MEMORY: &[&str] = &[
    include_str!("migrations/memory/0001_turns.sql"),
    include_str!("migrations/memory/0002_postings.sql"),
    include_str!("migrations/memory/0003_recent.sql"),
    include_str!("migrations/memory/0004_model_vectors.sql"),
];

pub(crate) fn run(
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Sessions from before there were sums keep all they had, and their sums are right.
    #[test]
    fn what_was_there_comes_along() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.pragma_update(None, "foreign_keys", true).unwrap();
        run(&mut connection, Path::new("x"), &LEDGER[..2]).unwrap();
        connection
            .execute_batch(
                "INSERT INTO sessions VALUES ('s', 'a', 'claude', '{}', '/', NULL, NULL, 'deny',
                     '[]', 5, NULL, 3, 2, 9, NULL);
                 INSERT INTO sessions VALUES ('t', 'a', 'claude', '{}', '/', NULL, NULL, 'deny',
                     '[]', 6, NULL, 0, 1, NULL, NULL);
                 INSERT INTO turns VALUES ('s', 1, 'finished', '', '', NULL, NULL, 1, 2, 3, NULL,
                     NULL, 1, 2, 3, 4, 0.5);
                 INSERT INTO turns VALUES ('s', 2, 'finished', '', '', NULL, NULL, 1, 2,
                     86400000000, NULL, NULL, 10, 20, 30, 40, 0.25);
                 INSERT INTO turns VALUES ('s', 3, 'queued', '', '', NULL, NULL, 1, NULL, NULL,
                     NULL, NULL, 0, 0, 0, 0, 0.0);
                 INSERT INTO events VALUES ('t', 1, 4, 'create', NULL, '{}');
                 INSERT INTO events VALUES ('s', 2, 5, 'turn', 1, '{}');
                 INSERT INTO events VALUES ('s', 1, 4, 'create', NULL, '{}');",
            )
            .unwrap();
        run(&mut connection, Path::new("x"), LEDGER).unwrap();
        let numbers = |sql: &str| -> Vec<(i64, f64)> {
            let mut statement = connection.prepare(sql).unwrap();
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            rows.map(Result::unwrap).collect()
        };
        assert_eq!(
            numbers("SELECT cached_write_tokens, cost_usd FROM sessions ORDER BY id"),
            [(44, 0.75), (0, 0.0)]
        );
        assert_eq!(
            numbers("SELECT cached_write_tokens, cost_usd FROM usage WHERE app = 'a' ORDER BY day"),
            [(4, 0.5), (40, 0.25)]
        );
        assert_eq!(
            numbers("SELECT turns, CAST(failed AS REAL) FROM usage WHERE app = 'a' ORDER BY day"),
            [(1, 0.0), (1, 0.0)]
        );
        assert_eq!(
            numbers("SELECT seq, CAST(at AS REAL) FROM events WHERE session = 's' ORDER BY seq"),
            [(1, 4.0), (2, 5.0)]
        );
        connection.execute("DELETE FROM sessions WHERE id = 's'", []).unwrap();
        assert_eq!(numbers("SELECT count(*), 0.0 FROM events"), [(1, 0.0)]);
    }
}
