//! Apps in PostgreSQL.

use async_trait::async_trait;
use hob_domain::{App, AppName, AppStore, StoreError, TokenHash};
use tokio_postgres::Row;

use super::PostgresLedger;
use crate::postgres::connections::Again;
use crate::values::damaged;

#[async_trait]
impl AppStore for PostgresLedger {
    /// Not retried: the second attempt would find the name taken by the first.
    async fn create_app(&self, app: &App, token: TokenHash) -> Result<(), StoreError> {
        let added = self
            .connections
            .query_one(
                Again::Never,
                "INSERT INTO hob.apps (name, token_hash, created_at) VALUES ($1, $2, $3)
                 ON CONFLICT DO NOTHING RETURNING 1",
                &[&app.name.as_str(), &token.to_hex(), &app.created_at.to_string()],
            )
            .await?;
        match added {
            Some(_) => Ok(()),
            None => Err(StoreError::Exists(format!("an app named {}", app.name))),
        }
    }

    async fn list_apps(&self) -> Result<Vec<App>, StoreError> {
        let sql = "SELECT name, created_at FROM hob.apps ORDER BY name";
        self.connections.query(Again::Harmless, sql, &[]).await?.iter().map(app).collect()
    }

    /// Not retried: the second attempt would report that there was no such app.
    async fn remove_app(&self, name: &AppName) -> Result<bool, StoreError> {
        let sql = "DELETE FROM hob.apps WHERE name = $1 RETURNING 1";
        let removed = self.connections.query_one(Again::Never, sql, &[&name.as_str()]).await?;
        Ok(removed.is_some())
    }

    async fn app_by_token(&self, token: TokenHash) -> Result<Option<App>, StoreError> {
        let sql = "SELECT name, created_at, token_hash FROM hob.apps WHERE token_hash = $1";
        let hash = token.to_hex();
        match self.connections.query_one(Again::Harmless, sql, &[&hash]).await? {
            // The index finds the row; the hashes are then compared in constant time.
            Some(row) if TokenHash::from_hex(row.get(2)) == Some(token) => app(&row).map(Some),
            _ => Ok(None),
        }
    }
}

fn app(row: &Row) -> Result<App, StoreError> {
    let created_at: &str = row.get(1);
    Ok(App {
        name: AppName::new(row.get::<_, String>(0)).map_err(|_| damaged("an app's name"))?,
        created_at: created_at.parse().map_err(|_| damaged("an app's time of creation"))?,
    })
}
