//! Copies of a database that others may be using, and how much a memory has stored.

use std::path::Path;
use std::time::{Duration, Instant};

use hob_domain::DataKey;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::database::{BUSY_TIMEOUT, connect, key_literal};
use super::error::{OpenError, open_error};

/// Copies a database to a new file with the same key. Others may read and write it meanwhile: the copy is what it held at
/// one moment. Blocks.
pub fn copy_database(from: &Path, key: &DataKey, to: &Path) -> Result<(), OpenError> {
    let source = connect(from, key, OpenFlags::empty(), BUSY_TIMEOUT)
        .map_err(|error| open_error(from, error))?;
    let run = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut target = Connection::open_with_flags(to, flags)?;
        target.pragma_update(None, "key", key_literal(key).as_str())?;
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
    run().map_err(|error| match open_error(from, error) {
        OpenError::Failed { error, .. } => open_error(to, error),
        damaged => damaged,
    })
}

fn busy() -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
    rusqlite::Error::SqliteFailure(code, Some("another process is using it".to_owned()))
}
