//! The ledger in a PostgreSQL database: connecting, and the state of the server.

use hob_domain::{AppName, DataKey, StoreError};

use crate::postgres::connections::{self, Connections, Limits, Scoped, Trouble};
use crate::postgres::migrations::{self, VERSION};
use crate::postgres::row_scope::RowScope;
use crate::postgres::text_cipher::TextCipher;
use crate::postgres::{ConnectError, Encryption, StoreUrl, connect, connect_failed};

/// The ledger in a PostgreSQL database, in a schema named `hob`. Cloning shares it.
#[derive(Clone)]
pub struct PostgresLedger {
    pub(super) connections: Connections,
    pub(super) texts: TextCipher,
    /// The address, for the connection of the heartbeat loop.
    pub(super) url: StoreUrl,
    /// The random name under which this process takes rows of the outbox.
    pub(super) outbox_taker: String,
}

/// The state of a database server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    /// The server's version, such as `18.4`.
    pub version: String,
    /// The version of Hob's schema; `None` if there is none yet.
    pub schema: Option<u32>,
    /// The version that this Hob uses.
    pub known: u32,
    /// The number of nodes with a heartbeat in the last minute; 0 if the schema has another version.
    pub nodes: usize,
    /// Whether Hob's role is a superuser or has `BYPASSRLS`, so that row-level security does not bind it.
    pub bypasses_row_security: bool,
}

impl PostgresLedger {
    /// Connects, and brings the schema to the current version. What apps and agents write is encrypted
    /// with a key that is derived from `key`, unless `encryption` is off.
    pub async fn connect(
        url: &StoreUrl,
        key: &DataKey,
        encryption: Encryption,
    ) -> Result<PostgresLedger, ConnectError> {
        let connections = connect(url, Limits::default()).await?;
        let texts = TextCipher::new(key, encryption);
        let outbox_taker = uuid::Uuid::new_v4().simple().to_string();
        Ok(PostgresLedger { connections, texts, url: url.clone(), outbox_taker })
    }

    /// Returns the connections for the rows of one app.
    pub(super) fn of_app<'a>(&'a self, app: &'a AppName) -> Scoped<'a> {
        self.connections.within(RowScope::App(app.as_str()))
    }

    /// Returns the connections for the rows of one app, or for all rows if none is named.
    pub(super) fn of_app_or_all<'a>(&'a self, app: Option<&'a AppName>) -> Scoped<'a> {
        let scope = app.map_or(RowScope::All, |app| RowScope::App(app.as_str()));
        self.connections.within(scope)
    }

    /// Returns whether there is an app, a session or an entry of the audit log. Once there was one, there always is: removing
    /// an app is an entry as well.
    pub async fn holds_anything(&self) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT FROM hob.apps) OR EXISTS (SELECT FROM hob.sessions)
             OR EXISTS (SELECT FROM hob.audit)";
        let rows = self.read_rows(sql, &[]).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    /// Returns the rows of a statement of a migration that only reads.
    pub(crate) async fn read_rows(
        &self,
        sql: &str,
        values: connections::Values<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, StoreError> {
        let connections = self.connections.within(RowScope::All);
        connections.query(connections::Again::Harmless, sql, values).await
    }

    /// Runs a statement of a migration that has the same effect when it runs twice.
    pub(crate) async fn write_rows(
        &self,
        sql: &str,
        values: connections::Values<'_>,
    ) -> Result<(), StoreError> {
        let connections = self.connections.within(RowScope::All);
        connections.query(connections::Again::Harmless, sql, values).await.map(drop)
    }

    /// Reads the state of a server without changing anything.
    pub async fn look(url: &StoreUrl) -> Result<ServerState, ConnectError> {
        let client = Connections::new(url, Limits::default())?
            .one()
            .await
            .map_err(|trouble| connect_failed(url, &trouble))?;
        let ask = async {
            let sql = "SELECT current_setting('server_version'), rolsuper OR rolbypassrls
                 FROM pg_roles WHERE rolname = current_user";
            let row = client.query_one(sql, &[]).await?;
            client.batch_execute(&RowScope::Shared.for_connection()).await?;
            let schema = migrations::version(&client).await?;
            let nodes = match schema {
                Some(VERSION) => {
                    let sql = "SELECT count(*) FROM hob.nodes
                         WHERE heartbeat_at > clock_timestamp() - interval '1 minute'";
                    client.query_one(sql, &[]).await?.get::<_, i64>(0) as usize
                }
                _ => 0,
            };
            let bypasses_row_security = row.get(1);
            Ok(ServerState {
                version: row.get(0),
                schema,
                known: VERSION,
                nodes,
                bypasses_row_security,
            })
        };
        ask.await.map_err(|error| connect_failed(url, &Trouble::of(&error)))
    }

    /// Reads every row of every table of Hob's. Returns the number of rows in each.
    pub async fn read_all(url: &StoreUrl) -> Result<Vec<(String, u64)>, ConnectError> {
        let failed = |trouble: Trouble| connect_failed(url, &trouble);
        let connections = Connections::new(url, Limits::default())?;
        let client = connections.one().await.map_err(failed)?;
        let scoped = client.batch_execute(&RowScope::All.for_connection()).await;
        scoped.map_err(|error| failed(Trouble::of(&error)))?;
        let sql = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'hob' ORDER BY 1";
        let names = client.query(sql, &[]).await.map_err(|error| failed(Trouble::of(&error)))?;
        let mut rows = Vec::new();
        for name in names.iter().map(|row| row.get::<_, String>(0)) {
            // The text of a whole row needs every value, also those that are stored apart from it.
            let sql = format!(
                "SELECT count(*), coalesce(sum(length(t::text)), 0)::bigint FROM hob.\"{name}\" t"
            );
            let read = client.query_one(&sql, &[]).await.map_err(|error| {
                let error = format!("table hob.{name}: {}", Trouble::of(&error).text());
                ConnectError::Failed { url: url.to_string(), error }
            })?;
            rows.push((name, read.get::<_, i64>(0).cast_unsigned()));
        }
        Ok(rows)
    }
}
