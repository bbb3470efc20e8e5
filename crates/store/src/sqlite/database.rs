//! An encrypted SQLite file: one writer, several readers, write-ahead log.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hob_domain::{DataKey, StoreError, secret::hex};
use rusqlite::{Connection, OpenFlags, Transaction};
use tokio::sync::Semaphore;

use super::error::{OpenError, failed, open_error};
use super::migrations::{self, Schema};
use super::writer::Writer;

/// How long a call waits for another process that is writing.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// After so many pages the log is put into the file.
const CHECKPOINT: i64 = 4000;
/// What a connection keeps of the file at least, in KiB: deciphering a page costs more than most reads of it.
pub(crate) const CACHE: u64 = 8000;

/// A page of it, in KiB.
const PAGE: u64 = 4;

/// How a database is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// How many reads go on at once, each on a connection of its own. To open one costs as much as a
    /// hundred small reads, so they are kept, and what comes on top waits.
    pub(crate) readers: usize,
    /// What a connection keeps at most of a large file, an eighth of which is more than [`CACHE`].
    pub(crate) most: u64,
}

/// One encrypted file. Cloning shares it; when the last clone is dropped, nothing has it open.
#[derive(Clone)]
pub(crate) struct Database {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    key: DataKey,
    busy: Duration,
    cache: u64,
    writer: Writer,
    /// Those that are idle.
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
    ) -> Result<Database, OpenError> {
        let mut writer = connect(path, key, OpenFlags::SQLITE_OPEN_CREATE, busy)
            .map_err(|error| open_error(path, error))?;
        migrations::run(&mut writer, path, schema)?;
        let writer = Writer::start(writer)
            .map_err(|error| OpenError::NoThread { path: path.to_owned(), error })?;
        Ok(Database {
            inner: Arc::new(Inner {
                path: path.to_owned(),
                key: key.clone(),
                busy,
                cache: reading.most,
                writer,
                readers: Mutex::new(Vec::new()),
                reading: Arc::new(Semaphore::new(reading.readers)),
            }),
        })
    }

    /// Runs one unit of work, whole or not at all, on the thread that writes.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.inner.writer.run(work).await
    }

    /// Runs a read on a connection of its own, off the async threads.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = self.inner.clone();
        let place = inner.reading.clone().acquire_owned().await;
        blocking(move || {
            // It is taken for as long as the read goes on, even when its caller goes away.
            let _place = place;
            let idle = inner.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let reader = match idle {
                Some(reader) => reader,
                None => inner.reader().map_err(failed)?,
            };
            let value = work(&reader);
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
        let reader = connect(&self.path, &self.key, OpenFlags::empty(), self.busy)?;
        keep_share(&reader, self.cache)?;
        Ok(reader)
    }
}

/// Encrypts a database with another key. Blocking; nobody else may use it meanwhile. Interrupted, it
/// is still readable with the old key.
pub fn rekey(path: &Path, old: &DataKey, new: &DataKey) -> Result<(), OpenError> {
    let run = || {
        let connection = connect(path, old, OpenFlags::empty(), BUSY_TIMEOUT)?;
        // Changing the key rewrites every page, which the write-ahead log is not made for.
        connection.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(()))?;
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        connection.pragma_update(None, "rekey", format!("x'{}'", hex(new.expose())))
    };
    run().map_err(|error| open_error(path, error))
}

/// Whether this key opens the database. Blocking.
pub fn opens_with(path: &Path, key: &DataKey) -> bool {
    connect(path, key, OpenFlags::empty(), BUSY_TIMEOUT).is_ok()
}

/// Opens a connection. The key is given raw: SQLCipher's own derivation would cost a quarter of a
/// second every time.
pub(crate) fn connect(
    path: &Path,
    key: &DataKey,
    extra: OpenFlags,
    busy: Duration,
) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | extra;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "key", format!("x'{}'", hex(key.expose())))?;
    // What goes wrong is returned; SQLCipher would say it on standard error as well.
    connection.pragma_update(None, "cipher_log_level", "NONE")?;
    connection.busy_timeout(busy)?;
    // The first statement that touches the file, hence the one that notices a wrong key.
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "full")?;
    // A page that changes often is put in its place less often then.
    connection.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT, |_| Ok(()))?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "secure_delete", true)?;
    keep(&connection, CACHE)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Lets a connection keep an eighth of its file, and no more KiB than this.
pub(crate) fn keep_share(connection: &Connection, most: u64) -> rusqlite::Result<()> {
    let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    let kibibytes = pages.cast_unsigned() * PAGE / 8;
    keep(connection, kibibytes.clamp(CACHE, most.max(CACHE)))
}

/// Sets how many KiB of the file a connection keeps.
fn keep(connection: &Connection, kibibytes: u64) -> rusqlite::Result<()> {
    connection.pragma_update(None, "cache_size", -(kibibytes as i64))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(StoreError::Failed(error.to_string())))
}
