//! Looks at a database file: a quick look, a full check, and the number by which a rewound file is noticed.

use std::path::Path;
use std::time::Duration;

use hob_domain::DataKey;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::commit_mark::{count_commit, read_number};
use super::database::{Access, BUSY_TIMEOUT, connect, connect_with};
use super::error::{OpenError, open_error};
use super::migrations;

/// How often a check that finds damage is repeated: another process may be writing a page while it is read.
const MAX_CHECKS: usize = 3;
const CHECK_PAUSE: Duration = Duration::from_millis(200);

/// What a database holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseState {
    /// The version of the schema.
    pub schema: u32,
    /// The number of rows in each table.
    pub rows: Vec<(String, u64)>,
}

/// Opens a database, without migrating it, and reads its schema and the number of rows in these tables. Blocks.
pub fn inspect_database(
    path: &Path,
    key: &DataKey,
    access: Access,
    tables: &[&str],
) -> Result<DatabaseState, OpenError> {
    let look = || {
        let connection = connect_with(path, key, access)?;
        let names = tables.iter().map(|name| (*name).to_owned()).collect();
        Ok(DatabaseState {
            schema: migrations::version(&connection)?,
            rows: count(&connection, names)?,
        })
    };
    look().map_err(|error| open_error(path, error))
}

/// Reads and verifies every page of a database. Returns its schema and the number of rows in each of its tables. Blocks.
pub fn verify_database(
    path: &Path,
    key: &DataKey,
    access: Access,
) -> Result<DatabaseState, OpenError> {
    let failed = |error| open_error(path, error);
    let connection = connect_with(path, key, access).map_err(failed)?;
    let mut what = None;
    for attempt in 0..MAX_CHECKS {
        if attempt > 0 {
            std::thread::sleep(CHECK_PAUSE);
        }
        what = fault(&connection).map_err(failed)?;
        if what.is_none() {
            break;
        }
    }
    if let Some(what) = what {
        return Err(OpenError::Damaged { path: path.to_owned(), what });
    }
    let state = || {
        let names = table_names(&connection)?;
        Ok(DatabaseState {
            schema: migrations::version(&connection)?,
            rows: count(&connection, names)?,
        })
    };
    state().map_err(failed)
}

/// Returns the first fault of a file.
fn fault(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let texts = |pragma: &str| -> rusqlite::Result<Vec<String>> {
        let mut found = Vec::new();
        connection.pragma_query(None, pragma, |row| {
            found.push(row.get(0)?);
            Ok(())
        })?;
        Ok(found)
    };
    // The first lists pages whose authentication fails. The second reads every row and index.
    let pages = texts("cipher_integrity_check")?;
    if let Some(page) = pages.first() {
        return Ok(Some(format!("{} pages cannot be read; the first: {page}", pages.len())));
    }
    Ok(match texts("integrity_check")?.as_slice() {
        [ok] if ok == "ok" => None,
        faults => Some(faults.first().cloned().unwrap_or_default()),
    })
}

fn table_names(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";
    connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
}

fn count(connection: &Connection, tables: Vec<String>) -> rusqlite::Result<Vec<(String, u64)>> {
    let rows = tables.into_iter().map(|name| {
        let sql = format!("SELECT count(*) FROM \"{name}\"");
        let count: i64 = connection.query_row(&sql, [], |row| row.get(0))?;
        Ok((name, count.cast_unsigned()))
    });
    rows.collect()
}

/// Returns the generation of a file, a number that every commit changes once a server has used the file. A file whose
/// generation is lower than it was has been replaced by an older copy, or has lost its write-ahead log. Blocks.
pub fn generation(path: &Path, key: &DataKey, access: Access) -> Result<u32, OpenError> {
    let read = || read_number(&connect_with(path, key, access)?);
    read().map_err(|error| open_error(path, error))
}

/// How far a memory has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryMark {
    /// The number of turns that it has ever stored, which never decreases.
    pub turns: u64,
    /// See [`generation`].
    pub generation: u32,
}

/// Returns how far a memory has come. Another process may just be creating it: it has no tables then. Blocks.
pub fn memory_mark(path: &Path, key: &DataKey, access: Access) -> Result<MemoryMark, OpenError> {
    let read = || {
        let connection = connect_with(path, key, access)?;
        if migrations::version(&connection)? == 0 {
            return Ok(MemoryMark { turns: 0, generation: 0 });
        }
        let sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'turns'";
        let turns: i64 = connection.query_row(sql, [], |row| row.get(0))?;
        Ok(MemoryMark { turns: turns.cast_unsigned(), generation: read_number(&connection)? })
    };
    read().map_err(|error| open_error(path, error))
}

/// Increments the generation of a file and returns it. It is durable then, with everything that was committed before.
/// Blocks.
pub fn advance_generation(path: &Path, key: &DataKey) -> Result<u32, OpenError> {
    advance(path, key, |_| Ok(()))
}

/// Notes in a file that a server has started on it, by the random name of that run, and increments its generation. Returns
/// the generation. Blocks.
pub fn begin_run(path: &Path, key: &DataKey, run: &str) -> Result<u32, OpenError> {
    advance(path, key, |transaction| {
        let sql = "INSERT INTO home_run (id, run) VALUES (1, ?1)
             ON CONFLICT (id) DO UPDATE SET run = excluded.run";
        transaction.execute(sql, [run]).map(drop)
    })
}

/// Gives the turns of a ledger's outbox that were set aside their attempts back. Blocks.
pub fn retry_set_aside(path: &Path, key: &DataKey) -> Result<u32, OpenError> {
    advance(path, key, |transaction| {
        let sql = "UPDATE outbox SET set_aside = 0, attempts = 0 WHERE set_aside <> 0";
        transaction.execute(sql, []).map(drop)
    })
}

/// Returns the latest run of a server on a file; `None` if there was none, or before its schema is migrated. Blocks.
pub fn latest_run(path: &Path, key: &DataKey, access: Access) -> Result<Option<String>, OpenError> {
    let read = || {
        let connection = connect_with(path, key, access)?;
        let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'home_run'";
        if connection.query_row(sql, [], |row| row.get::<_, i64>(0))? == 0 {
            return Ok(None);
        }
        connection.query_row("SELECT run FROM home_run", [], |row| row.get(0)).optional()
    };
    read().map_err(|error| open_error(path, error))
}

fn advance(
    path: &Path,
    key: &DataKey,
    change: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<u32, OpenError> {
    let advance = || {
        let mut connection = connect(path, key, OpenFlags::empty(), BUSY_TIMEOUT)?;
        let transaction =
            connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        change(&transaction)?;
        let next = count_commit(&transaction, read_number(&transaction)?)?;
        transaction.commit()?;
        Ok(next)
    };
    advance().map_err(|error| open_error(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_another_process_is_creating_holds_no_turns() {
        let folder = tempfile::tempdir().unwrap();
        let (path, key) = (folder.path().join("memory.db"), DataKey::from_bytes([7; 32]));
        let creating =
            connect(&path, &key, OpenFlags::SQLITE_OPEN_CREATE, Duration::from_secs(1)).unwrap();
        creating.execute_batch("CREATE TABLE other (id INTEGER)").unwrap();
        let mark = memory_mark(&path, &key, Access::ReadWrite).unwrap();
        assert_eq!(mark, MemoryMark { turns: 0, generation: 0 });
    }
}
