//! Apps in PostgreSQL.

use async_trait::async_trait;
use hob_domain::{App, AppFilter, AppName, AppStore, StoreError, TokenHash};
use tokio_postgres::Row;

use super::PostgresLedger;
use crate::postgres::connections::Again;
use crate::postgres::row_scope::RowScope;
use crate::values::damaged;

#[async_trait]
impl AppStore for PostgresLedger {
    /// Not retried: the second attempt would find the name taken by the first.
    async fn create_app(&self, app: &App, token: TokenHash) -> Result<(), StoreError> {
        let added = self
            .of_app(&app.name)
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

    async fn apps(&self, filter: AppFilter) -> Result<Vec<App>, StoreError> {
        // The token tells which app it is.
        let connections = self.connections.within(RowScope::All);
        let token = match filter {
            AppFilter::All => {
                let sql = "SELECT name, created_at FROM hob.apps ORDER BY name";
                let rows = connections.query(Again::Harmless, sql, &[]).await?;
                return rows.iter().map(app).collect();
            }
            AppFilter::Token(token) => token,
        };
        let sql = "SELECT name, created_at, token_hash FROM hob.apps WHERE token_hash = $1";
        let rows = connections.query(Again::Harmless, sql, &[&token.to_hex()]).await?;
        // The index finds the row; the hashes are then compared in constant time.
        let is_meant = |row: &&Row| TokenHash::from_hex(row.get(2)) == Some(token);
        rows.iter().filter(is_meant).map(app).collect()
    }

    /// Not retried: the second attempt would report that there was no such app.
    async fn remove_app(&self, name: &AppName) -> Result<bool, StoreError> {
        let sql = "DELETE FROM hob.apps WHERE name = $1 RETURNING 1";
        let removed = self.of_app(name).query_one(Again::Never, sql, &[&name.as_str()]).await?;
        Ok(removed.is_some())
    }
}

fn app(row: &Row) -> Result<App, StoreError> {
    let created_at: &str = row.get(1);
    Ok(App {
        name: AppName::new(row.get::<_, String>(0)).map_err(|_| damaged("an app's name"))?,
        created_at: created_at.parse().map_err(|_| damaged("an app's time of creation"))?,
    })
}
