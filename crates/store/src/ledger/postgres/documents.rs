//! Stored documents in PostgreSQL.

use async_trait::async_trait;
use hob_domain::{
    AppName, DocumentChange, DocumentKind, DocumentStore, StoreError, StoredDocument,
};
use tokio_postgres::types::ToSql;

use super::PostgresLedger;
use crate::postgres::connections::Again;
use crate::postgres::text::{put, take};
use crate::postgres::text_cipher::TextKind;
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
                self.of_app(app).query_one(Again::Never, sql, &values).await?
            }
            DocumentChange::Replace { document, expected_body } => {
                return self.replace_document(document, expected_body).await;
            }
            DocumentChange::Save(document) => {
                let StoredDocument { app, kind, id, created_at, input, body } = document;
                let sql = "INSERT INTO hob.documents (app, kind, id, created_at, input, body)
                     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (app, id) DO UPDATE
                     SET created_at = $4, input = $5, body = $6 RETURNING xmax <> 0";
                let [input, body] = [input, body].map(|text| self.document_text(text));
                let (id, created_at) = (put(id), micros(*created_at));
                let values: [&(dyn ToSql + Sync); 6] =
                    [&app.as_str(), &kind.as_str(), &id, &created_at, &input, &body];
                self.of_app(app).query_one(Again::Harmless, sql, &values).await?
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
        let rows = self.of_app(app).query(Again::Harmless, sql, &values).await?;
        let document = |row: tokio_postgres::Row| {
            let text = |column: usize| self.texts.open(TextKind::Document, row.get(column));
            Ok(StoredDocument {
                app: app.clone(),
                kind,
                id: take(row.get(0)),
                created_at: time(row.get(1)),
                input: text(2)?,
                body: text(3)?,
            })
        };
        rows.into_iter().map(document).collect()
    }
}

impl PostgresLedger {
    fn document_text(&self, text: &str) -> String {
        self.texts.seal(TextKind::Document, text)
    }

    /// Replaces a document that still has the expected body. The body is compared here, because two
    /// encryptions of one text differ. Not retried: the second attempt would not find that body.
    async fn replace_document(
        &self,
        document: &StoredDocument,
        expected_body: &str,
    ) -> Result<bool, StoreError> {
        let StoredDocument { app, kind, id, created_at, input, body } = document;
        let [input, body] = [input, body].map(|text| self.document_text(text));
        let (id, created_at) = (put(id), micros(*created_at));
        let scoped = self.of_app(app);
        let (app, kind) = (app.as_str(), kind.as_str());
        let (id, input, body) = (&*id, &input, &body);
        scoped
            .transaction(|client| async move {
                let lock = "SELECT body FROM hob.documents
                     WHERE app = $1 AND kind = $2 AND id = $3 FOR UPDATE";
                let lock = client.prepare_cached(lock).await?;
                let Some(found) = client.query_opt(&lock, &[&app, &kind, &id]).await? else {
                    return Ok(false);
                };
                let found = self.texts.open(TextKind::Document, found.get(0));
                if !found.is_ok_and(|found| found == expected_body) {
                    return Ok(false);
                }
                let update = "UPDATE hob.documents SET created_at = $4, input = $5, body = $6
                     WHERE app = $1 AND kind = $2 AND id = $3";
                let update = client.prepare_cached(update).await?;
                let values: [&(dyn ToSql + Sync); 6] = [&app, &kind, &id, &created_at, input, body];
                client.execute(&update, &values).await?;
                Ok(true)
            })
            .await
    }
}
