//! Stored responses in SQLite.

use async_trait::async_trait;
use hob_domain::{AppName, ResponseChange, ResponseStore, StoreError, StoredResponse};
use rusqlite::{OptionalExtension, params};

use super::Ledger;
use crate::sqlite::failed;
use crate::values::{micros, time};

#[async_trait]
impl ResponseStore for Ledger {
    async fn change_response(&self, change: &ResponseChange) -> Result<bool, StoreError> {
        let change = change.clone();
        self.database
            .write(move |transaction| {
                let delete = |app: &AppName, id: &str| {
                    transaction
                        .prepare_cached("DELETE FROM responses WHERE app = ?1 AND id = ?2")?
                        .execute([app.as_str(), id])
                };
                let changed = match &change {
                    ResponseChange::Delete { app, id } => delete(app, id),
                    ResponseChange::Save(response) => {
                        let StoredResponse { app, id, created_at, input, body } = response;
                        delete(app, id).and_then(|deleted| {
                            transaction
                                .prepare_cached(
                                    "INSERT INTO responses (app, id, created_at, input, body)
                                     VALUES (?1, ?2, ?3, ?4, ?5)",
                                )?
                                .execute(params![
                                    app.as_str(),
                                    id,
                                    micros(*created_at),
                                    input,
                                    body
                                ])?;
                            Ok(deleted)
                        })
                    }
                };
                changed.map(|changed| changed > 0).map_err(failed)
            })
            .await
    }

    async fn response(
        &self,
        app: &AppName,
        id: &str,
    ) -> Result<Option<StoredResponse>, StoreError> {
        let (app, id) = (app.clone(), id.to_owned());
        self.database
            .read(move |connection| {
                connection
                    .prepare_cached(
                        "SELECT created_at, input, body FROM responses WHERE app = ?1 AND id = ?2",
                    )
                    .and_then(|mut statement| {
                        statement
                            .query_row([app.as_str(), &id], |row| {
                                Ok(StoredResponse {
                                    app: app.clone(),
                                    id: id.clone(),
                                    created_at: time(row.get(0)?),
                                    input: row.get(1)?,
                                    body: row.get(2)?,
                                })
                            })
                            .optional()
                    })
                    .map_err(failed)
            })
            .await
    }
}
