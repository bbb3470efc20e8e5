//! PostgreSQL: the ledger and the memory of several nodes.

mod apps;
mod attend;
mod audit;
mod cluster;
mod connections;
mod holds;
mod ledger_moving;
mod memory;
mod migrations;
mod session_lists;
mod session_rows;
mod session_turns;
mod sessions;
mod text;
mod url;

pub(crate) use memory::MemoryOnServer;
pub use memory::{Alone, PostgresMemory};
pub use url::{BadUrl, StoreUrl};

use hob_domain::StoreError;

use connections::{Connections, Limits, Trouble};
use migrations::{MigrationError, STEPS};

/// The ledger in a PostgreSQL database, in a schema named `hob`. Cloning shares it.
#[derive(Clone)]
pub struct PostgresLedger {
    connections: Connections,
    /// For connections that are kept.
    url: StoreUrl,
    /// Who we are among those who carry things to the memory.
    carrier: String,
}

/// The step of the schema from which on nodes are known.
const NODES_STEP: usize = 2;

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    /// Such as `18.4`.
    pub version: String,
    /// How many steps of the schema are there; `None` where nothing of Hob's is.
    pub schema: Option<usize>,
    /// How many this Hob knows.
    pub known: usize,
    /// How many nodes were heard of in the last minute.
    pub nodes: usize,
}

/// Why a database can't be used. None of it holds a password.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("{url} cannot be used: {error}")]
    Failed { url: String, error: String },
    #[error("{url} was written by a newer hob (schema {found}, this one knows {known})")]
    Newer { url: String, found: usize, known: usize },
    #[error("{url} holds its texts in {encoding}; it must be made with ENCODING 'UTF8'")]
    Encoding { url: String, encoding: String },
    #[error(
        "{url} has no pgvector, by which the memory finds what is near: install it on the server (version 0.8 or \
         later), and have a superuser run CREATE EXTENSION vector in this database ({error})"
    )]
    NoVector { url: String, error: String },
    #[error("{url} has pgvector {found}; 0.8 or later is needed: ALTER EXTENSION vector UPDATE")]
    OldVector { url: String, found: String },
    #[error(
        "the memory in {url} was made with another key: copy the file `key` of the home of the Hob that made it into \
         this home"
    )]
    OtherKey { url: String },
    #[error(
        "the memory in {url} was made with store.encrypt = {encrypted}, which stands for as long as it exists: set \
         the same here"
    )]
    OtherEncryption { url: String, encrypted: bool },
    #[error(
        "a move into the memory in {url} has begun and not ended: run `hob store migrate --from sqlite --to postgres` again"
    )]
    HalfMoved { url: String },
    #[error("`hob store migrate` is moving what is in {url}")]
    BeingMoved { url: String },
    #[error("the certificates of the database cannot be used: {error}")]
    Certificates { error: String },
}

impl PostgresLedger {
    /// Connects, and brings the schema up to date where needed.
    pub async fn connect(url: &StoreUrl) -> Result<PostgresLedger, ConnectError> {
        let connections = connect(url, Limits::default()).await?;
        let carrier = uuid::Uuid::new_v4().simple().to_string();
        Ok(PostgresLedger { connections, url: url.clone(), carrier })
    }

    /// Rows of any statement that reads.
    pub(crate) async fn read_rows(
        &self,
        sql: &str,
        values: connections::Values<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, StoreError> {
        self.connections.query(connections::Again::Harmless, sql, values).await
    }

    /// A statement that may be done twice.
    pub(crate) async fn write_rows(
        &self,
        sql: &str,
        values: connections::Values<'_>,
    ) -> Result<(), StoreError> {
        self.connections.query(connections::Again::Harmless, sql, values).await.map(drop)
    }

    /// Looks at a server and changes nothing.
    pub async fn look(url: &StoreUrl) -> Result<ServerState, ConnectError> {
        let client = Connections::new(url, Limits::default())?
            .one()
            .await
            .map_err(|trouble| failed(url, &trouble))?;
        let ask = async {
            let row = client.query_one("SELECT current_setting('server_version')", &[]).await?;
            let schema = migrations::version(&client).await?;
            let nodes = match schema {
                Some(steps) if steps >= NODES_STEP => {
                    let sql = "SELECT count(*) FROM hob.nodes
                         WHERE beat_at > clock_timestamp() - interval '1 minute'";
                    client.query_one(sql, &[]).await?.get::<_, i64>(0) as usize
                }
                _ => 0,
            };
            Ok(ServerState { version: row.get(0), schema, known: STEPS.len(), nodes })
        };
        ask.await.map_err(|error| failed(url, &Trouble::of(&error)))
    }
}

/// Connects, and brings the schema up to date where needed.
async fn connect(url: &StoreUrl, limits: Limits) -> Result<Connections, ConnectError> {
    let connections = Connections::new(url, limits)?;
    let failed = |trouble: Trouble| failed(url, &trouble);
    let mut client = connections.one().await.map_err(failed)?;
    let row = client.query_one("SELECT current_setting('server_encoding')", &[]).await;
    let encoding: String = row.map_err(|error| failed(Trouble::of(&error)))?.get(0);
    if encoding != "UTF8" {
        return Err(ConnectError::Encoding { url: url.to_string(), encoding });
    }
    let text = url.to_string();
    match migrations::run(&mut client).await {
        Ok(()) => Ok(connections),
        Err(MigrationError::Newer(found)) => {
            Err(ConnectError::Newer { url: text, found, known: STEPS.len() })
        }
        Err(MigrationError::NoVector(error)) => {
            Err(ConnectError::NoVector { url: text, error: Trouble::of(&error).text().to_owned() })
        }
        Err(MigrationError::OldVector(found)) => Err(ConnectError::OldVector { url: text, found }),
        Err(MigrationError::Failed(error)) => Err(failed(Trouble::of(&error))),
    }
}

fn failed(url: &StoreUrl, trouble: &Trouble) -> ConnectError {
    ConnectError::Failed { url: url.to_string(), error: trouble.text().to_owned() }
}
