//! The schemas of SQLite files, and how a file of an earlier schema is brought to the current one.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::error::{OpenError, open_error};

/// The schema of a file. Its version is in the file's `user_version`. The SQL is frozen: the tidy test knows its hash.
pub(crate) struct Schema {
    /// The version that `create` and `import` make.
    first: u32,
    /// Creates everything in an empty file.
    create: &'static str,
    /// The one earlier version that can be imported, and the statements that bring it to the first version.
    import: (u32, &'static str),
    /// The later changes. Each makes the next version.
    changes: &'static [&'static str],
}

impl Schema {
    /// The current version.
    pub(crate) const fn version(&self) -> u32 {
        self.first + self.changes.len() as u32
    }
}

pub(crate) const LEDGER: Schema = Schema {
    first: 8,
    create: include_str!("migrations/ledger/0001_ledger.sql"),
    import: (7, include_str!("migrations/ledger/import_7.sql")),
    changes: &[
        include_str!("migrations/ledger/0002_responses.sql"),
        include_str!("migrations/ledger/0003_documents.sql"),
        include_str!("migrations/ledger/0004_outbox_attempts.sql"),
        include_str!("migrations/ledger/0005_home_run.sql"),
    ],
};

pub(crate) const MEMORY: Schema = Schema {
    first: 5,
    create: include_str!("migrations/memory/0001_memory.sql"),
    import: (4, include_str!("migrations/memory/import_4.sql")),
    changes: &[
        include_str!("migrations/memory/0002_hidden_turns.sql"),
        include_str!("migrations/memory/0003_home_run.sql"),
    ],
};

/// Brings a file to this schema.
pub(crate) fn run(
    connection: &mut Connection,
    path: &Path,
    schema: &Schema,
) -> Result<(), OpenError> {
    let failed = |error| open_error(path, error);
    let newest = schema.version();
    if version(connection).map_err(failed)? == newest {
        return Ok(());
    }
    // Two processes may come here at the same time; the second finds the work done.
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let found = version(&transaction).map_err(failed)?;
    let (oldest, import) = schema.import;
    let (base, is_at) = match found {
        found if found == newest => return Ok(()),
        0 => (schema.create, schema.first),
        found if found == oldest => (import, schema.first),
        found if found > newest => {
            return Err(OpenError::Newer { path: path.to_owned(), found, known: newest });
        }
        found if found >= schema.first => ("", found),
        found => return Err(OpenError::Older { path: path.to_owned(), found, oldest }),
    };
    let missing = &schema.changes[(is_at - schema.first) as usize..];
    for sql in std::iter::once(&base).chain(missing) {
        transaction.execute_batch(sql).map_err(failed)?;
    }
    transaction.pragma_update(None, "user_version", newest).map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// Fails with [`OpenError::Earlier`] if [`run`] would migrate this file. An empty file is none of an earlier schema.
pub(super) fn refuse_earlier(
    connection: &Connection,
    path: &Path,
    schema: &Schema,
) -> Result<(), OpenError> {
    let found = version(connection).map_err(|error| open_error(path, error))?;
    let known = schema.version();
    match found {
        found if found != 0 && found < known => {
            Err(OpenError::Earlier { path: path.to_owned(), found, known })
        }
        _ => Ok(()),
    }
}

pub(super) fn version(connection: &Connection) -> rusqlite::Result<u32> {
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
    const MEMORY_4: &str = include_str!("../../tests/fixtures/sqlite_memory_4.sql");

    #[test]
    fn imported_schema_equals_a_new_one() {
        for (fixture, version, schema) in [(LEDGER_7, 7, &LEDGER), (MEMORY_4, 4, &MEMORY)] {
            let mut imported = old_file(fixture, version);
            run(&mut imported, Path::new("x"), schema).unwrap();
            let mut new = Connection::open_in_memory().unwrap();
            run(&mut new, Path::new("x"), schema).unwrap();
            assert_eq!(described(&imported), described(&new));
        }
    }

    #[test]
    fn file_of_every_later_version_gets_the_changes_it_misses() {
        let first = Schema { changes: &[], ..MEMORY };
        let mut connection = Connection::open_in_memory().unwrap();
        run(&mut connection, Path::new("x"), &first).unwrap();
        run(&mut connection, Path::new("x"), &MEMORY).unwrap();
        let mut new = Connection::open_in_memory().unwrap();
        run(&mut new, Path::new("x"), &MEMORY).unwrap();
        assert_eq!(described(&connection), described(&new));
        assert_eq!(version(&connection).unwrap(), MEMORY.version());
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
    fn memory_of_the_last_schema_keeps_its_turns_and_indexes_what_was_in_the_first_index() {
        let mut connection = old_file(MEMORY_4, 4);
        let turn = "INSERT INTO turns (id, speaker, session, project, worktree, words, role, tier, text, ts, at,
                client, source, rules)
             VALUES (?1, '', 1, 1, '/p', x'00', 'user', 'episodic', 'the port', 5, 5, 'claude', 'hook', 3)";
        connection
            .execute_batch(
                "INSERT INTO projects VALUES (1, '', '/p');
                 INSERT INTO sessions VALUES (1, '', 's', 'claude', 1, 5, 5, 2);
                 INSERT INTO term_index (rowid, terms, scope) VALUES (1, 'the port', 'o p1 s1');
                 INSERT INTO terms VALUES (2, 'the port');",
            )
            .unwrap();
        for id in ["a", "b"] {
            connection.execute(turn, [id]).unwrap();
        }
        run(&mut connection, Path::new("x"), &MEMORY).unwrap();
        let text =
            |sql: &str| -> String { connection.query_row(sql, [], |row| row.get(0)).unwrap() };
        assert_eq!(
            text("SELECT group_concat(id || text || rules) FROM turns"),
            "athe port0,bthe port3"
        );
        assert_eq!(text("SELECT seq || terms FROM terms"), "2the port");
    }

    #[test]
    fn only_files_of_earlier_schemas_would_be_migrated() {
        for (fixture, version, schema) in [(LEDGER_7, 7, &LEDGER), (MEMORY_4, 4, &MEMORY)] {
            let earlier = old_file(fixture, version);
            let refused = refuse_earlier(&earlier, Path::new("x"), schema).unwrap_err();
            assert!(matches!(refused, OpenError::Earlier { found, .. } if found == version));
            assert_eq!(super::version(&earlier).unwrap(), version);
            let mut new = Connection::open_in_memory().unwrap();
            refuse_earlier(&new, Path::new("x"), schema).unwrap();
            run(&mut new, Path::new("x"), schema).unwrap();
            refuse_earlier(&new, Path::new("x"), schema).unwrap();
        }
    }

    #[test]
    fn older_and_newer_schemas_are_refused() {
        for schema in [&LEDGER, &MEMORY] {
            for version in 1..schema.import.0 {
                let refused = run(&mut old_file("", version), Path::new("x"), schema).unwrap_err();
                assert!(matches!(refused, OpenError::Older { .. }), "{refused}");
            }
            let newer = schema.version() + 1;
            let refused = run(&mut old_file("", newer), Path::new("x"), schema).unwrap_err();
            assert!(matches!(refused, OpenError::Newer { .. }), "{refused}");
        }
    }
}
