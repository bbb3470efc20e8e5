//! Stored documents in PostgreSQL.

use async_trait::async_trait;
use hob_domain::{
    AppName, DocumentChange, DocumentKind, DocumentStore, StoreError, StoredDocument,
};
use tokio_postgres::types::ToSql;

use super::PostgresLedger;
use crate::postgres::connections::Again;
use crate::postgres::text::{put, take};
use crate::values::{micros, time};

#[async_trait]
impl DocumentStore for PostgresLedger {
    async fn change_document(&self, change: &DocumentChange) -> Result<bool, StoreError> {
        let row = match change {
            // Not retried: the second attempt would report that there was no such document.
            DocumentChange::Delete { app, kind, id } => {
                let sql = "DELETE FROM hob.documents WHERE app = $1 AND id = $2 AND kind = $3
                     RETURNING true";
                let values: [&(dyn ToSql + Sync); 3] = [&app.as_str(), &put(id), &kind.as_str()];
                self.connections.query_one(Again::Never, sql, &values).await?
            }
            // Not retried: the second attempt would not find the expected body.
            DocumentChange::Replace { document, expected_body } => {
                let StoredDocument { app, kind, id, created_at, input, body } = document;
                let sql = "UPDATE hob.documents SET created_at = $4, input = $5, body = $6
                     WHERE app = $1 AND kind = $2 AND id = $3 AND body = $7 RETURNING true";
                let (id, input, body) = (put(id), put(input), put(body));
                let (created_at, expected) = (micros(*created_at), put(expected_body));
                let values: [&(dyn ToSql + Sync); 7] =
                    [&app.as_str(), &kind.as_str(), &id, &created_at, &input, &body, &expected];
                self.connections.query_one(Again::Never, sql, &values).await?
            }
            DocumentChange::Save(document) => {
                let StoredDocument { app, kind, id, created_at, input, body } = document;
                let sql = "INSERT INTO hob.documents (app, kind, id, created_at, input, body)
                     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (app, id) DO UPDATE
                     SET created_at = $4, input = $5, body = $6 RETURNING xmax <> 0";
                let (id, input, body) = (put(id), put(input), put(body));
                let created_at = micros(*created_at);
                let values: [&(dyn ToSql + Sync); 6] =
                    [&app.as_str(), &kind.as_str(), &id, &created_at, &input, &body];
                self.connections.query_one(Again::Harmless, sql, &values).await?
            }
        };
        Ok(row.is_some_and(|row| row.get(0)))
    }

    async fn documents(
        &self,
        app: &AppName,
        kind: DocumentKind,
        id: Option<&str>,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        let sql = "SELECT id, created_at, input, body FROM hob.documents
             WHERE app = $1 AND kind = $2 AND ($3::text IS NULL OR id = $3)
             ORDER BY created_at, id";
        let id = id.map(put);
        let values: [&(dyn ToSql + Sync); 3] = [&app.as_str(), &kind.as_str(), &id];
        let rows = self.connections.query(Again::Harmless, sql, &values).await?;
        let document = |row: tokio_postgres::Row| StoredDocument {
            app: app.clone(),
            kind,
            id: take(row.get(0)),
            created_at: time(row.get(1)),
            input: take(row.get(2)),
            body: take(row.get(3)),
        };
        Ok(rows.into_iter().map(document).collect())
    }
}
