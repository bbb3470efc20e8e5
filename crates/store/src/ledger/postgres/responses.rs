//! Stored responses in PostgreSQL.

use async_trait::async_trait;
use hob_domain::{AppName, ResponseChange, ResponseStore, StoreError, StoredResponse};

use super::PostgresLedger;
use crate::postgres::connections::Again;
use crate::postgres::text::{put, take};
use crate::values::{micros, time};

#[async_trait]
impl ResponseStore for PostgresLedger {
    async fn change_response(&self, change: &ResponseChange) -> Result<bool, StoreError> {
        let row = match change {
            // Not retried: the second attempt would report that there was no such response.
            ResponseChange::Delete { app, id } => {
                let sql = "DELETE FROM hob.responses WHERE app = $1 AND id = $2 RETURNING true";
                self.connections.query_one(Again::Never, sql, &[&app.as_str(), &put(id)]).await?
            }
            ResponseChange::Save(response) => {
                let StoredResponse { app, id, created_at, input, body } = response;
                let sql = "INSERT INTO hob.responses (app, id, created_at, input, body)
                     VALUES ($1, $2, $3, $4, $5) ON CONFLICT (app, id) DO UPDATE
                     SET created_at = $3, input = $4, body = $5 RETURNING xmax <> 0";
                let (id, input, body) = (put(id), put(input), put(body));
                let created_at = micros(*created_at);
                let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                    [&app.as_str(), &id, &created_at, &input, &body];
                self.connections.query_one(Again::Harmless, sql, &values).await?
            }
        };
        Ok(row.is_some_and(|row| row.get(0)))
    }

    async fn response(
        &self,
        app: &AppName,
        id: &str,
    ) -> Result<Option<StoredResponse>, StoreError> {
        let sql = "SELECT created_at, input, body FROM hob.responses WHERE app = $1 AND id = $2";
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&app.as_str(), &put(id)];
        let row = self.connections.query_one(Again::Harmless, sql, &values).await?;
        Ok(row.map(|row| StoredResponse {
            app: app.clone(),
            id: id.to_owned(),
            created_at: time(row.get(0)),
            input: take(row.get(1)),
            body: take(row.get(2)),
        }))
    }
}
