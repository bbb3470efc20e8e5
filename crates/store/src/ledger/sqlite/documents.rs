//! Stored documents in SQLite.

use async_trait::async_trait;
use hob_domain::{
    AppName, DocumentChange, DocumentKind, DocumentStore, StoreError, StoredDocument,
};
use rusqlite::params;

use super::Ledger;
use crate::sqlite::failed;
use crate::values::{micros, time};

#[async_trait]
impl DocumentStore for Ledger {
    async fn change_document(&self, change: &DocumentChange) -> Result<bool, StoreError> {
        let change = change.clone();
        self.database
            .write(move |transaction| {
                let delete = |app: &AppName, kind: DocumentKind, id: &str| {
                    transaction
                        .prepare_cached(
                            "DELETE FROM documents WHERE app = ?1 AND id = ?2 AND kind = ?3",
                        )?
                        .execute([app.as_str(), id, kind.as_str()])
                };
                let changed = match &change {
                    DocumentChange::Delete { app, kind, id } => delete(app, *kind, id),
                    DocumentChange::Replace { document, expected_body } => {
                        let StoredDocument { app, kind, id, created_at, input, body } = document;
                        transaction
                            .prepare_cached(
                                "UPDATE documents SET created_at = ?4, input = ?5, body = ?6
                                 WHERE app = ?1 AND kind = ?2 AND id = ?3 AND body = ?7",
                            )
                            .and_then(|mut statement| {
                                statement.execute(params![
                                    app.as_str(),
                                    kind.as_str(),
                                    id,
                                    micros(*created_at),
                                    input,
                                    body,
                                    expected_body
                                ])
                            })
                    }
                    DocumentChange::Save(document) => {
                        let StoredDocument { app, kind, id, created_at, input, body } = document;
                        delete(app, *kind, id).and_then(|deleted| {
                            transaction
                                .prepare_cached(
                                    "INSERT INTO documents (app, kind, id, created_at, input, body)
                                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                                )?
                                .execute(params![
                                    app.as_str(),
                                    kind.as_str(),
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

    async fn documents(
        &self,
        app: &AppName,
        kind: DocumentKind,
        id: Option<&str>,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        let (app, id) = (app.clone(), id.map(str::to_owned));
        self.database
            .read(move |connection| {
                let mut statement = connection
                    .prepare_cached(
                        "SELECT id, created_at, input, body FROM documents
                         WHERE app = ?1 AND kind = ?2 AND (?3 IS NULL OR id = ?3)
                         ORDER BY created_at, id",
                    )
                    .map_err(failed)?;
                let rows = statement
                    .query_map(params![app.as_str(), kind.as_str(), id], |row| {
                        Ok(StoredDocument {
                            app: app.clone(),
                            kind,
                            id: row.get(0)?,
                            created_at: time(row.get(1)?),
                            input: row.get(2)?,
                            body: row.get(3)?,
                        })
                    })
                    .map_err(failed)?;
                rows.collect::<Result<_, _>>().map_err(failed)
            })
            .await
    }
}
