//! The ledger's database.

use hob_domain::StoreError;

use crate::postgres::connections::{self, Connections, Limits, Trouble};
use crate::postgres::migrations::{self, STEPS};
use crate::postgres::{ConnectError, StoreUrl, connect, connect_failed};

/// The ledger in a PostgreSQL database, in a schema named `hob`. Cloning shares it.
#[derive(Clone)]
pub struct PostgresLedger {
    pub(super) connections: Connections,
    /// For connections that are kept.
    pub(super) url: StoreUrl,
    /// Who we are among those who carry things to the memory.
    pub(super) carrier: String,
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
            .map_err(|trouble| connect_failed(url, &trouble))?;
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
        ask.await.map_err(|error| connect_failed(url, &Trouble::of(&error)))
    }
}
