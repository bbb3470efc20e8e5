//! Copies of a database that others may be using, and a full check of one.

use std::path::Path;
use std::time::{Duration, Instant};

use hob_domain::{DataKey, secret::hex};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::database::{BUSY_TIMEOUT, connect};
use super::error::{OpenError, open_error};

/// Copies a database to a new file with the same key. Others may read and write it meanwhile: the copy is what it held at
/// one moment. Blocks.
pub fn copy_database(from: &Path, key: &DataKey, to: &Path) -> Result<(), OpenError> {
    let source = connect(from, key, OpenFlags::empty(), BUSY_TIMEOUT)
        .map_err(|error| open_error(from, error))?;
    let run = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut target = Connection::open_with_flags(to, flags)?;
        target.pragma_update(None, "key", format!("x'{}'", hex(key.expose())))?;
        target.pragma_update(None, "cipher_log_level", "NONE")?;
        let backup = Backup::new(&source, &mut target)?;
        // All pages at once: a reader of a write-ahead log does not block its writers, and is not restarted by them.
        let deadline = Instant::now() + BUSY_TIMEOUT;
        loop {
            match backup.step(-1)? {
                StepResult::Done => break,
                _ if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                _ => return Err(busy()),
            }
        }
        drop(backup);
        // One file, without a write-ahead log beside it.
        target.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(()))
    };
    run().map_err(|error| open_error(to, error))
}

/// Reads and verifies every page of a database. Returns the number of rows in each of its tables. Blocks.
pub fn verify_database(path: &Path, key: &DataKey) -> Result<Vec<(String, u64)>, OpenError> {
    let damaged = |what: String| OpenError::Damaged { path: path.to_owned(), what };
    let failed = |error| open_error(path, error);
    let connection = connect(path, key, OpenFlags::empty(), BUSY_TIMEOUT).map_err(failed)?;
    let texts = |pragma: &str| -> rusqlite::Result<Vec<String>> {
        let mut found = Vec::new();
        connection.pragma_query(None, pragma, |row| {
            found.push(row.get(0)?);
            Ok(())
        })?;
        Ok(found)
    };
    // The first lists pages whose authentication fails. The second reads every row and index.
    let pages = texts("cipher_integrity_check").map_err(failed)?;
    if let Some(page) = pages.first() {
        return Err(damaged(format!("{} damaged pages; the first: {page}", pages.len())));
    }
    match texts("integrity_check").map_err(failed)?.as_slice() {
        [ok] if ok == "ok" => {}
        faults => return Err(damaged(faults.first().cloned().unwrap_or_default())),
    }
    let count = || {
        let names: Vec<String> = connection
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        let rows = names.into_iter().map(|name| {
            let sql = format!("SELECT count(*) FROM \"{name}\"");
            let count: i64 = connection.query_row(&sql, [], |row| row.get(0))?;
            Ok((name, count.cast_unsigned()))
        });
        rows.collect::<rusqlite::Result<_>>()
    };
    count().map_err(failed)
}

/// Returns the number of turns that a memory has ever stored, which never decreases. Blocks.
pub fn memory_mark(path: &Path, key: &DataKey) -> Result<u64, OpenError> {
    let read = || {
        let connection = connect(path, key, OpenFlags::empty(), BUSY_TIMEOUT)?;
        let sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'turns'";
        connection.query_row(sql, [], |row| row.get::<_, i64>(0))
    };
    read().map(i64::cast_unsigned).map_err(|error| open_error(path, error))
}

fn busy() -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
    rusqlite::Error::SqliteFailure(code, Some("another process is using it".to_owned()))
}
