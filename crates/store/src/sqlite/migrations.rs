//! The schemas of SQLite files, and how a file of an earlier schema is brought to the current one.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::error::OpenError;

/// The schema of a file. Its version is in the file's `user_version`. The SQL is frozen: the tidy test knows its hash.
pub(crate) struct Schema {
    pub(crate) version: u32,
    /// Creates everything in an empty file.
    create: &'static str,
    /// The one earlier version that can be imported, and the statements that bring it to this version.
    import: Option<(u32, &'static str)>,
}

pub(crate) const LEDGER: Schema = Schema {
    version: 8,
    create: include_str!("migrations/ledger/0001_ledger.sql"),
    import: Some((7, include_str!("migrations/ledger/import_7.sql"))),
};

pub(crate) const MEMORY: Schema = Schema {
    version: 4,
    create: concat!(
        include_str!("migrations/memory/0001_turns.sql"),
        include_str!("migrations/memory/0002_postings.sql"),
        include_str!("migrations/memory/0003_recent.sql"),
        include_str!("migrations/memory/0004_model_vectors.sql"),
    ),
    import: None,
};

/// Brings a file to this schema.
pub(crate) fn run(
    connection: &mut Connection,
    path: &Path,
    schema: &Schema,
) -> Result<(), OpenError> {
    let failed = |error| OpenError::Failed { path: path.to_owned(), error };
    if version(connection).map_err(failed)? == schema.version {
        return Ok(());
    }
    // Two processes may come here at the same time; the second finds the work done.
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let found = version(&transaction).map_err(failed)?;
    let sql = match (found, schema.import) {
        (found, _) if found == schema.version => return Ok(()),
        (0, _) => schema.create,
        (found, Some((from, sql))) if found == from => sql,
        (found, _) if found > schema.version => {
            return Err(OpenError::Newer { path: path.to_owned(), found, known: schema.version });
        }
        (found, import) => {
            let oldest = import.map_or(schema.version, |(from, _)| from);
            return Err(OpenError::Older { path: path.to_owned(), found, oldest });
        }
    };
    transaction.execute_batch(sql).map_err(failed)?;
    transaction.pragma_update(None, "user_version", schema.version).map_err(failed)?;
    transaction.commit().map_err(failed)
}

fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a file of the last schema before the squash from its fixture.
    fn old_file(fixture: &str, version: u32) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.pragma_update(None, "foreign_keys", true).unwrap();
        connection.execute_batch(fixture).unwrap();
        connection.pragma_update(None, "user_version", version).unwrap();
        connection
    }

    /// Describes tables, columns and indexes. The order of columns does not matter.
    fn described(connection: &Connection) -> Vec<String> {
        let sql = "SELECT s.name || coalesce(' ' || c.name || ' ' || c.type || ' ' || c.\"notnull\" || ' '
                 || coalesce(c.dflt_value, 'none') || ' ' || c.pk, '')
             FROM sqlite_schema s LEFT JOIN pragma_table_info(s.name) c ORDER BY s.name, c.name";
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    const LEDGER_7: &str = include_str!("../../tests/fixtures/sqlite_ledger_7.sql");

    #[test]
    fn imported_schema_equals_a_new_one() {
        for (fixture, version, schema) in [(LEDGER_7, 7, &LEDGER)] {
            let mut imported = old_file(fixture, version);
            run(&mut imported, Path::new("x"), schema).unwrap();
            let mut new = Connection::open_in_memory().unwrap();
            run(&mut new, Path::new("x"), schema).unwrap();
            assert_eq!(described(&imported), described(&new));
        }
    }

    #[test]
    fn ledger_of_the_last_schema_keeps_its_rows() {
        let mut connection = old_file(LEDGER_7, 7);
        connection
            .execute_batch(
                "INSERT INTO sessions (id, app, agent, meta, cwd, permissions, mcp_servers, created_at,
                     turn_count, cost_usd, holder, fence)
                 VALUES ('s', 'a', 'claude', '{}', '/', 'deny', '[]', 5, 1, 0.5, 'n', 3);
                 INSERT INTO turns (session, number, state, prompt, text, queued_at, input_tokens,
                     output_tokens, cached_read_tokens, cached_write_tokens, cost_usd, first_event)
                 VALUES ('s', 1, 'finished', 'ask', 'answer', 6, 1, 2, 3, 4, 0.5, 2);
                 INSERT INTO events (session, seq, at, kind, turn, body, fence)
                 VALUES ('s', 1, 5, 'create', NULL, '{}', 1), ('s', 2, 6, 'turn', 1, '{}', 3);
                 INSERT INTO nodes VALUES ('n', '', 7);",
            )
            .unwrap();
        run(&mut connection, Path::new("x"), &LEDGER).unwrap();
        let text =
            |sql: &str| -> String { connection.query_row(sql, [], |row| row.get(0)).unwrap() };
        let turn = "SELECT prompt || files || text || cost_usd || first_event FROM turns";
        assert_eq!(text(turn), "ask[]answer0.52");
        assert_eq!(text("SELECT holder || fence || cost_usd FROM sessions"), "n30.5");
        assert_eq!(text("SELECT group_concat(kind || fence, ' ') FROM events"), "create1 turn3");
        assert_eq!(text("SELECT id || heartbeat_at FROM nodes"), "n7");
    }

    #[test]
    fn older_and_newer_schemas_are_refused() {
        for version in 1..7 {
            let mut connection = old_file("", version);
            let refused = run(&mut connection, Path::new("x"), &LEDGER).unwrap_err();
            assert!(matches!(refused, OpenError::Older { oldest: 7, .. }), "{refused}");
        }
        let refused = run(&mut old_file("", 9), Path::new("x"), &LEDGER).unwrap_err();
        assert!(matches!(refused, OpenError::Newer { found: 9, known: 8, .. }), "{refused}");
    }
}
