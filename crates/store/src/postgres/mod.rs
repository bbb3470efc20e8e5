//! PostgreSQL: the ledger of several nodes.

mod apps;
mod attend;
mod audit;
mod cluster;
mod connections;
mod holds;
mod migrations;
mod session_lists;
mod session_rows;
mod session_turns;
mod sessions;
mod text;
mod url;

pub(crate) use text::{put as put_text, take as take_text};
pub use url::{BadUrl, StoreUrl};

use hob_domain::StoreError;

use connections::{Connections, Trouble};
use migrations::{Migrated, STEPS};

/// The ledger in a PostgreSQL database, in a schema named `hob`. Cloning shares it.
#[derive(Clone)]
pub struct PostgresLedger {
    connections: Connections,
    /// For connections that are kept.
    url: StoreUrl,
    /// Who we are among those who carry things to the memory.
    carrier: String,
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    /// Such as `18.4`.
    pub version: String,
    /// How many steps of the schema are there; `None` where nothing of Hob's is.
    pub schema: Option<usize>,
    /// How many this Hob knows.
    pub known: usize,
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
    #[error("the certificates of the database cannot be used: {error}")]
    Certificates { error: String },
}

impl PostgresLedger {
    /// Connects, and brings the schema up to date where needed.
    pub async fn connect(url: &StoreUrl) -> Result<PostgresLedger, ConnectError> {
        let connections = Connections::new(url)?;
        let failed = |trouble: Trouble| failed(url, &trouble);
        let mut client = connections.one().await.map_err(failed)?;
        let row = client.query_one("SELECT current_setting('server_encoding')", &[]).await;
        let encoding: String = row.map_err(|error| failed(Trouble::of(&error)))?.get(0);
        if encoding != "UTF8" {
            return Err(ConnectError::Encoding { url: url.to_string(), encoding });
        }
        match migrations::run(&mut client).await {
            Ok(Migrated::Done) => {}
            Ok(Migrated::Newer(found)) => {
                return Err(ConnectError::Newer {
                    url: url.to_string(),
                    found,
                    known: STEPS.len(),
                });
            }
            Err(error) => return Err(failed(Trouble::of(&error))),
        }
        drop(client);
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
        let client = Connections::new(url)?.one().await.map_err(|trouble| failed(url, &trouble))?;
        let ask = async {
            let row = client.query_one("SELECT current_setting('server_version')", &[]).await?;
            let schema = migrations::version(&client).await?;
            Ok(ServerState { version: row.get(0), schema, known: STEPS.len() })
        };
        ask.await.map_err(|error| failed(url, &Trouble::of(&error)))
    }
}

fn failed(url: &StoreUrl, trouble: &Trouble) -> ConnectError {
    ConnectError::Failed { url: url.to_string(), error: trouble.text().to_owned() }
}
