//! An encrypted SQLite file: one writer, several readers, write-ahead log.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hob_domain::{DataKey, StoreError};
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction};
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use super::commit_mark::{CommitMark, forget_commits};
use super::error::{OpenError, failed, open_error};
use super::migrations::{self, Schema};
use super::writer::Writer;

/// How long a call waits for another process that is writing.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of pages after which the write-ahead log is written back into the file.
const CHECKPOINT_PAGES: i64 = 4000;
/// The minimum page cache of a connection, in KiB: decrypting a page costs more than most reads of it.
pub(crate) const MIN_CACHE_KIB: u64 = 8000;

/// The size of a page, in KiB.
const PAGE_KIB: u64 = 4;

/// How long to wait before another attempt to switch a new file to a write-ahead log.
const WAL_RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// The options for reading a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// The maximum number of concurrent reads, each on a connection of its own. Opening a connection costs as much as a
    /// hundred small reads, so connections are kept open and further reads wait.
    pub(crate) readers: usize,
    /// The maximum page cache of a connection, in KiB, for files of which an eighth exceeds [`MIN_CACHE_KIB`].
    pub(crate) max_cache_kib: u64,
}

/// Whether a file can be changed. A home on a failing disk, for example, can only be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    ReadWrite,
    ReadOnly,
}

/// Whether a file of an earlier schema is migrated when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EarlierSchema {
    Migrate,
    Refuse,
}

/// An encrypted file. Clones share it; when the last clone is dropped, the file is closed.
#[derive(Clone)]
pub(crate) struct Database {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    key: DataKey,
    busy: Duration,
    max_cache_kib: u64,
    /// `None` if the file is only read.
    writer: Option<Writer>,
    /// Idle read connections.
    readers: Mutex<Vec<Connection>>,
    reading: Arc<Semaphore>,
}

impl Database {
    pub(crate) fn open(
        path: &Path,
        key: &DataKey,
        schema: &Schema,
        busy: Duration,
        reading: Reading,
        earlier: EarlierSchema,
    ) -> Result<Database, OpenError> {
        // A mark that is there belonged to another file.
        if std::fs::metadata(path).map_or(true, |metadata| metadata.len() == 0) {
            forget_commits(path)
                .map_err(|error| OpenError::NoThread { path: path.to_owned(), error })?;
        }
        let mut writer = connect(path, key, OpenFlags::SQLITE_OPEN_CREATE, busy)
            .map_err(|error| open_error(path, error))?;
        if earlier == EarlierSchema::Refuse {
            migrations::refuse_earlier(&writer, path, schema)?;
        }
        migrations::run(&mut writer, path, schema)?;
        let mark = CommitMark::of(path);
        let writer = Writer::start(writer, Some(mark))
            .map_err(|error| OpenError::NoThread { path: path.to_owned(), error })?;
        Ok(Database {
            inner: Arc::new(Inner {
                path: path.to_owned(),
                key: key.clone(),
                busy,
                max_cache_kib: reading.max_cache_kib,
                writer: Some(writer),
                readers: Mutex::new(Vec::new()),
                reading: Arc::new(Semaphore::new(reading.readers)),
            }),
        })
    }

    /// Opens a file that exists and is only read. It must have the current schema.
    pub(crate) fn open_read_only(
        path: &Path,
        key: &DataKey,
        schema: &Schema,
        busy: Duration,
        reading: Reading,
    ) -> Result<Database, OpenError> {
        let failed = |error| open_error(path, error);
        let reader = connect_read_only(path, key, busy).map_err(failed)?;
        let (found, known) = (migrations::version(&reader).map_err(failed)?, schema.version());
        if found != known {
            return Err(OpenError::CannotMigrate { path: path.to_owned(), found, known });
        }
        Ok(Database {
            inner: Arc::new(Inner {
                path: path.to_owned(),
                key: key.clone(),
                busy,
                max_cache_kib: reading.max_cache_kib,
                writer: None,
                readers: Mutex::new(vec![reader]),
                reading: Arc::new(Semaphore::new(reading.readers)),
            }),
        })
    }

    /// Runs a unit of work in a transaction on the writer thread.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match &self.inner.writer {
            Some(writer) => writer.run(work).await.map_err(|error| self.inner.named(error)),
            None => {
                let text = format!("{} can only be read", self.inner.path.display());
                Err(StoreError::Failed(text))
            }
        }
    }

    /// Runs a read on a connection of its own, on a blocking thread.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = self.inner.clone();
        let permit = inner.reading.clone().acquire_owned().await;
        blocking(move || {
            // Held until the read ends, even if its caller goes away.
            let _permit = permit;
            let idle = inner.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let reader = match idle {
                Some(reader) => reader,
                None => inner.reader().map_err(|error| inner.named(failed(error)))?,
            };
            let value = work(&reader).map_err(|error| inner.named(error));
            if value.is_ok() {
                inner.readers.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
            }
            value
        })
        .await
    }
}

impl Inner {
    fn reader(&self) -> rusqlite::Result<Connection> {
        let reader = match self.writer {
            Some(_) => connect(&self.path, &self.key, OpenFlags::empty(), self.busy)?,
            None => connect_read_only(&self.path, &self.key, self.busy)?,
        };
        set_cache_share(&reader, self.max_cache_kib)?;
        Ok(reader)
    }

    /// Adds the name of the file to an error that a retry does not mend.
    fn named(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Failed(text) => {
                StoreError::Failed(format!("{}: {text}", self.path.display()))
            }
            StoreError::Damaged(text) => {
                StoreError::Damaged(format!("{}: {text}", self.path.display()))
            }
            other => other,
        }
    }
}

/// Encrypts a file with another key. Blocks; nothing else may use the file meanwhile. If it is interrupted, the file is
/// still readable with the old key.
pub fn rekey(path: &Path, old: &DataKey, new: &DataKey) -> Result<(), OpenError> {
    let run = || {
        let connection = connect(path, old, OpenFlags::empty(), BUSY_TIMEOUT)?;
        // Changing the key rewrites every page, which does not suit the write-ahead log.
        connection.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(()))?;
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        // After a failure, such as a damaged page, the connection would write with the new key: nothing may use it then.
        connection.pragma_update(None, "rekey", key_literal(new).as_str())
    };
    run().map_err(|error| open_error(path, error))
}

/// Returns the key as SQLCipher takes it. Its memory is overwritten when it is dropped.
pub(super) fn key_literal(key: &DataKey) -> Zeroizing<String> {
    let digits = key.to_hex();
    let mut literal = Zeroizing::new(String::with_capacity(digits.len() + 3));
    literal.push_str("x'");
    literal.push_str(&digits);
    literal.push('\'');
    literal
}

/// Returns whether this key opens the file. Blocks.
pub fn opens_with(path: &Path, key: &DataKey) -> bool {
    connect(path, key, OpenFlags::empty(), BUSY_TIMEOUT).is_ok()
}

/// Opens a connection. The key is passed raw, because SQLCipher's key derivation would cost a quarter of a second
/// every time.
pub(crate) fn connect(
    path: &Path,
    key: &DataKey,
    extra: OpenFlags,
    busy: Duration,
) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | extra;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "key", key_literal(key).as_str())?;
    // Errors are returned; SQLCipher would also print them on standard error.
    connection.pragma_update(None, "cipher_log_level", "NONE")?;
    connection.busy_timeout(busy)?;
    // The first statement that reads the file, so the one that detects a wrong key.
    use_write_ahead_log(&connection, busy)?;
    connection.pragma_update(None, "synchronous", "full")?;
    // With more pages per checkpoint, a page that changes often is written back less often.
    connection.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "secure_delete", true)?;
    set_cache(&connection, MIN_CACHE_KIB)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Opens a connection to a file that exists, to read it. On a full disk, SQLite cannot make the index of its log; the file
/// is then read as on a disk that cannot be written.
pub(super) fn connect_with(
    path: &Path,
    key: &DataKey,
    access: Access,
) -> rusqlite::Result<Connection> {
    let read_only = || connect_read_only(path, key, BUSY_TIMEOUT);
    if access == Access::ReadOnly {
        return read_only();
    }
    connect(path, key, OpenFlags::empty(), BUSY_TIMEOUT).or_else(|error| {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
                read_only().map_err(|_| error)
            }
            _ => Err(error),
        }
    })
}

/// Opens a connection to a file that exists, without changing anything. A folder that cannot be written needs care: SQLite
/// keeps an index of the write-ahead log in a file next to it. Without a log, and without a process that could write one,
/// the file is read as it is.
pub(crate) fn connect_read_only(
    path: &Path,
    key: &DataKey,
    busy: Duration,
) -> rusqlite::Result<Connection> {
    let connection = read_only_connection(path, key)?;
    connection.busy_timeout(busy)?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    set_cache(&connection, MIN_CACHE_KIB)?;
    Ok(connection)
}

/// Opens a connection to a damaged file, without changing anything. Queries fail only when they need a damaged page, also
/// if the file is shorter than its header says.
pub(crate) fn connect_leniently(path: &Path, key: &DataKey) -> rusqlite::Result<Connection> {
    let connection = read_only_connection(path, key)?;
    connection.pragma_update(None, "writable_schema", true)?;
    Ok(connection)
}

fn read_only_connection(path: &Path, key: &DataKey) -> rusqlite::Result<Connection> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let has_log = std::fs::metadata(&log).is_ok_and(|metadata| metadata.len() > 0);
    let uri = match has_log {
        true => uri_of(path),
        false => format!("{}?immutable=1", uri_of(path)),
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags)?;
    connection.pragma_update(None, "key", key_literal(key).as_str())?;
    connection.pragma_update(None, "cipher_log_level", "NONE")?;
    connection.pragma_update(None, "temp_store", "memory")?;
    Ok(connection)
}

/// Returns the address of a file as SQLite reads it.
fn uri_of(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

/// Switches the file to a write-ahead log. If several processes create a file at the same time, SQLite fails here at
/// once for all but one of them, without regard to the busy timeout.
fn use_write_ahead_log(connection: &Connection, busy: Duration) -> rusqlite::Result<()> {
    let deadline = Instant::now() + busy;
    loop {
        let switched = connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()));
        let is_busy = switched.as_ref().is_err_and(|error| {
            error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
        });
        if !is_busy || Instant::now() >= deadline {
            return switched;
        }
        std::thread::sleep(WAL_RETRY_INTERVAL);
    }
}

/// Sets the page cache of a connection to an eighth of its file, within the limits.
pub(crate) fn set_cache_share(connection: &Connection, max_kib: u64) -> rusqlite::Result<()> {
    let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    let kibibytes = pages.cast_unsigned() * PAGE_KIB / 8;
    set_cache(connection, kibibytes.clamp(MIN_CACHE_KIB, max_kib.max(MIN_CACHE_KIB)))
}

/// Sets the page cache of a connection, in KiB.
fn set_cache(connection: &Connection, kibibytes: u64) -> rusqlite::Result<()> {
    connection.pragma_update(None, "cache_size", -(kibibytes as i64))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(StoreError::Failed(error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_file_that_another_process_is_creating_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new.db");
        let key = DataKey::from_bytes([7; 32]);
        // The other process has not switched to a write-ahead log yet.
        let other = Connection::open(&path).unwrap();
        other.pragma_update(None, "key", key_literal(&key).as_str()).unwrap();
        other.execute_batch("CREATE TABLE there (n); BEGIN IMMEDIATE").unwrap();
        let failed = connect(&path, &key, OpenFlags::empty(), Duration::ZERO).unwrap_err();
        assert_eq!(failed.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy));
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(|| connect(&path, &key, OpenFlags::empty(), Duration::from_secs(60)));
            std::thread::sleep(WAL_RETRY_INTERVAL * 10);
            other.execute_batch("COMMIT").unwrap();
            waiting.join().unwrap().unwrap();
        });
    }
}
