//! The agents, environments and descriptions of sessions that apps keep for the vendors' session APIs.

use std::sync::Arc;

use hob_domain::{AppName, DocumentChange, DocumentKind, DocumentStore, StoredDocument, Timestamp};
use serde_json::Value;
use uuid::Uuid;

use crate::error::ApiError;

/// The most documents of one kind that an app may keep.
const MAX_DOCUMENTS: usize = 200;
/// The largest document, in bytes.
const MAX_DOCUMENT_BYTES: usize = 256 << 10;

/// The stored documents.
pub struct AgentCatalog {
    store: Arc<dyn DocumentStore>,
    /// Held while a document is read, changed and stored.
    changing: tokio::sync::Mutex<()>,
}

/// A document with its id and the time of its creation.
#[derive(Debug, Clone)]
pub(crate) struct CatalogEntry {
    pub id: String,
    pub created_at: Timestamp,
    pub body: Value,
}

impl AgentCatalog {
    pub fn new(store: Arc<dyn DocumentStore>) -> AgentCatalog {
        AgentCatalog { store, changing: tokio::sync::Mutex::default() }
    }

    /// Stores a new document under a new id with this prefix.
    pub(crate) async fn create(
        &self,
        app: &AppName,
        kind: DocumentKind,
        prefix: &str,
        body: Value,
    ) -> Result<CatalogEntry, ApiError> {
        let _changing = self.changing.lock().await;
        if self.store.documents(app, kind, None).await?.len() >= MAX_DOCUMENTS {
            let message = format!(
                "the app already has {MAX_DOCUMENTS} {}s, which is the limit; delete one first",
                kind.as_str()
            );
            return Err(ApiError::bad_request(message));
        }
        let id = format!("{prefix}_{}", Uuid::new_v4().simple());
        let entry = CatalogEntry { id, created_at: Timestamp::now(), body };
        self.save(app, kind, &entry).await?;
        Ok(entry)
    }

    /// Stores a document, in place of an earlier one.
    pub(crate) async fn save(
        &self,
        app: &AppName,
        kind: DocumentKind,
        entry: &CatalogEntry,
    ) -> Result<(), ApiError> {
        let body = entry.body.to_string();
        if body.len() > MAX_DOCUMENT_BYTES {
            let message = format!("the document is larger than {MAX_DOCUMENT_BYTES} bytes");
            return Err(ApiError::TooLarge(message));
        }
        let document = StoredDocument {
            app: app.clone(),
            kind,
            id: entry.id.clone(),
            created_at: entry.created_at,
            input: String::new(),
            body,
        };
        self.store.change_document(&DocumentChange::Save(document)).await?;
        Ok(())
    }

    pub(crate) async fn find(
        &self,
        app: &AppName,
        kind: DocumentKind,
        id: &str,
    ) -> Result<Option<CatalogEntry>, ApiError> {
        let found = self.store.documents(app, kind, Some(id)).await?.pop();
        found.map(entry).transpose()
    }

    /// Returns all documents of a kind, oldest first.
    pub(crate) async fn list(
        &self,
        app: &AppName,
        kind: DocumentKind,
    ) -> Result<Vec<CatalogEntry>, ApiError> {
        self.store.documents(app, kind, None).await?.into_iter().map(entry).collect()
    }

    /// Changes a document; `None` if there is none.
    pub(crate) async fn change(
        &self,
        app: &AppName,
        kind: DocumentKind,
        id: &str,
        change: impl FnOnce(&mut Value) -> Result<(), ApiError>,
    ) -> Result<Option<CatalogEntry>, ApiError> {
        let _changing = self.changing.lock().await;
        let Some(mut entry) = self.find(app, kind, id).await? else { return Ok(None) };
        change(&mut entry.body)?;
        self.save(app, kind, &entry).await?;
        Ok(Some(entry))
    }

    /// Deletes a document. Returns whether there was one.
    pub(crate) async fn delete(
        &self,
        app: &AppName,
        kind: DocumentKind,
        id: &str,
    ) -> Result<bool, ApiError> {
        let change = DocumentChange::Delete { app: app.clone(), kind, id: id.to_owned() };
        Ok(self.store.change_document(&change).await?)
    }
}

fn entry(stored: StoredDocument) -> Result<CatalogEntry, ApiError> {
    let body = serde_json::from_str(&stored.body)
        .map_err(|_| ApiError::Internal("a stored document is damaged".to_owned()))?;
    Ok(CatalogEntry { id: stored.id, created_at: stored.created_at, body })
}
