//! The schema's history. A step that has landed is frozen: the tidy test knows its digest.

use deadpool_postgres::Object;
use tokio_postgres::{Client, Error};

/// Each step is applied once, in order, and noted in `hob.migrations`.
pub(crate) const STEPS: &[&str] = &[
    include_str!("migrations/0001_ledger.sql"),
    include_str!("migrations/0002_holds.sql"),
    include_str!("migrations/0003_memory.sql"),
    include_str!("migrations/0004_cluster.sql"),
    include_str!("migrations/0005_memory_packed.sql"),
    include_str!("migrations/0006_names.sql"),
];
/// The step from which on there must be pgvector, and its version.
const VECTOR_STEP: usize = 2;
const VECTOR: (u32, u32) = (0, 8);

/// Whoever holds this lock may change the schema: `hob` and what it is about, in bytes.
const LOCK: i64 = 0x0068_6f62_6d69_6772;

/// Why the schema can't be brought up to date.
pub(crate) enum MigrationError {
    /// A newer Hob has been here.
    Newer(usize),
    /// There is no pgvector, and it can't be had.
    NoVector(Error),
    OldVector(String),
    Failed(Error),
}

impl From<Error> for MigrationError {
    fn from(error: Error) -> MigrationError {
        MigrationError::Failed(error)
    }
}

/// Brings the schema up to date. Several nodes may come here at once; the others wait and find the work done.
pub(crate) async fn run(client: &mut Object) -> Result<(), MigrationError> {
    match version(client).await? {
        Some(found) if found == STEPS.len() => return Ok(()),
        Some(found) if found > STEPS.len() => return Err(MigrationError::Newer(found)),
        _ => {}
    }
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    transaction
        .batch_execute(
            "CREATE SCHEMA IF NOT EXISTS hob;
             CREATE TABLE IF NOT EXISTS hob.migrations (
                 step integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());",
        )
        .await?;
    let found = version(transaction.client()).await?.unwrap_or_default();
    if found > STEPS.len() {
        return Err(MigrationError::Newer(found));
    }
    for (number, step) in STEPS.iter().enumerate().skip(found) {
        if number == VECTOR_STEP {
            have_vector(transaction.client()).await?;
        }
        transaction.batch_execute(step).await?;
        let number = number as i32 + 1;
        transaction.execute("INSERT INTO hob.migrations (step) VALUES ($1)", &[&number]).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// Makes the extension where it is not there yet. Only a superuser may, on most servers.
async fn have_vector(client: &Client) -> Result<(), MigrationError> {
    let made = client.batch_execute("CREATE EXTENSION IF NOT EXISTS vector").await;
    made.map_err(MigrationError::NoVector)?;
    let sql = "SELECT extversion FROM pg_extension WHERE extname = 'vector'";
    let found: String = client.query_one(sql, &[]).await?.get(0);
    let mut numbers = found.split('.').map(|part| part.parse::<u32>().unwrap_or_default());
    let version = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    if version < VECTOR { Err(MigrationError::OldVector(found)) } else { Ok(()) }
}

/// How many steps were applied; `None` where there is nothing of Hob's.
pub(crate) async fn version(client: &Client) -> Result<Option<usize>, Error> {
    let known = client.query_one("SELECT to_regclass('hob.migrations') IS NOT NULL", &[]).await?;
    if !known.get::<_, bool>(0) {
        return Ok(None);
    }
    let row = client.query_one("SELECT coalesce(max(step), 0) FROM hob.migrations", &[]).await?;
    Ok(Some(row.get::<_, i32>(0) as usize))
}
