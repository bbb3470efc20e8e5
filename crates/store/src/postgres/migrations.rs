//! The schema of the database, and how a database of an earlier schema is brought to the current one.

use deadpool_postgres::Object;
use tokio_postgres::{Client, Error};

use super::row_scope::RowScope;

/// The version of the schema, recorded in `hob.migrations`.
pub(crate) const VERSION: u32 = FIRST + CHANGES.len() as u32;
/// The version that [`CREATE`] and [`IMPORT`] make.
const FIRST: u32 = 7;
/// Creates everything in an empty schema. Frozen: the tidy test knows its hash.
const CREATE: &str = include_str!("migrations/0001_hob.sql");
/// The later changes. Each makes the next version.
const CHANGES: [&str; 5] = [
    include_str!("migrations/0002_hidden_turns.sql"),
    include_str!("migrations/0003_responses.sql"),
    include_str!("migrations/0004_documents.sql"),
    include_str!("migrations/0005_scopes.sql"),
    include_str!("migrations/0006_outbox_attempts.sql"),
];
/// The one earlier version that can be imported, and the statements that bring it to [`FIRST`].
const IMPORTED: u32 = 6;
const IMPORT: &str = include_str!("migrations/import_6.sql");

/// The oldest supported version of pgvector.
const MIN_PGVECTOR: (u32, u32) = (0, 8);

/// The advisory lock under which the schema is changed: the bytes of `hobmigr`.
const LOCK: i64 = 0x0068_6f62_6d69_6772;

/// The reason why the schema cannot be brought to the current version.
pub(crate) enum MigrationError {
    /// A newer Hob has changed the schema.
    Newer(u32),
    /// The schema is older than the one that can be imported.
    Older(u32),
    /// pgvector is not installed, and installing it failed.
    NoVector(Error),
    OldVector(String),
    Failed(Error),
}

impl From<Error> for MigrationError {
    fn from(error: Error) -> MigrationError {
        MigrationError::Failed(error)
    }
}

/// Brings the schema to the current version. If several nodes start at the same time, the others wait and find the
/// work done.
pub(crate) async fn run(client: &mut Object) -> Result<(), MigrationError> {
    if version(client).await? == Some(VERSION) {
        return Ok(());
    }
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    // A migration may change rows of all apps.
    RowScope::All.enter(transaction.client()).await?;
    let (base, is_at) = match version(transaction.client()).await? {
        Some(VERSION) => return Ok(()),
        None | Some(0) => {
            transaction
                .batch_execute(
                    "CREATE SCHEMA IF NOT EXISTS hob;
                     CREATE TABLE IF NOT EXISTS hob.migrations (
                         step integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());",
                )
                .await?;
            require_pgvector(transaction.client()).await?;
            (CREATE, FIRST)
        }
        Some(IMPORTED) => (IMPORT, FIRST),
        Some(found @ FIRST..VERSION) => ("", found),
        Some(found) if found > VERSION => return Err(MigrationError::Newer(found)),
        Some(found) => return Err(MigrationError::Older(found)),
    };
    for sql in std::iter::once(&base).chain(&CHANGES[(is_at - FIRST) as usize..]) {
        transaction.batch_execute(sql).await?;
    }
    let step = VERSION as i32;
    transaction.execute("INSERT INTO hob.migrations (step) VALUES ($1)", &[&step]).await?;
    transaction.commit().await?;
    Ok(())
}

/// Installs pgvector if it is missing, which most servers allow only a superuser to do, and checks its version.
async fn require_pgvector(client: &Client) -> Result<(), MigrationError> {
    let made = client.batch_execute("CREATE EXTENSION IF NOT EXISTS vector").await;
    made.map_err(MigrationError::NoVector)?;
    let sql = "SELECT extversion FROM pg_extension WHERE extname = 'vector'";
    let found: String = client.query_one(sql, &[]).await?.get(0);
    let mut numbers = found.split('.').map(|part| part.parse::<u32>().unwrap_or_default());
    let version = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    if version < MIN_PGVECTOR { Err(MigrationError::OldVector(found)) } else { Ok(()) }
}

/// Returns the version of the schema; `None` if the database has no schema of Hob.
pub(crate) async fn version(client: &Client) -> Result<Option<u32>, Error> {
    let known = client.query_one("SELECT to_regclass('hob.migrations') IS NOT NULL", &[]).await?;
    if !known.get::<_, bool>(0) {
        return Ok(None);
    }
    let row = client.query_one("SELECT coalesce(max(step), 0) FROM hob.migrations", &[]).await?;
    Ok(Some(row.get::<_, i32>(0).cast_unsigned()))
}
