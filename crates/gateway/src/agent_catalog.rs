//! The agents, environments, memory stores and descriptions of sessions that apps keep for the vendors' session APIs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hob_domain::{AppName, DocumentChange, DocumentKind, DocumentStore, StoredDocument, Timestamp};
use serde_json::Value;
use tokio::sync::OwnedMutexGuard;
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
    /// Held while memories of an app change.
    changing_memories: AppLocks,
    /// Held while a session of an app is created that a caller may create again.
    creating_sessions: AppLocks,
}

/// One lock for each app.
#[derive(Default)]
struct AppLocks(Mutex<HashMap<AppName, Arc<tokio::sync::Mutex<()>>>>);

impl AppLocks {
    async fn lock(&self, app: &AppName) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            locks.entry(app.clone()).or_default().clone()
        };
        lock.lock_owned().await
    }
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
        AgentCatalog {
            store,
            changing: Default::default(),
            changing_memories: AppLocks::default(),
            creating_sessions: AppLocks::default(),
        }
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
                kind.as_str().replace('_', " ")
            );
            return Err(ApiError::bad_request(message));
        }
        let id = format!("{prefix}_{}", Uuid::new_v4().simple());
        let entry = CatalogEntry { id, created_at: now_in_ledger(), body };
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

    /// Waits until nothing else in this process reads or changes the memories of an app.
    pub(crate) async fn lock_memories(&self, app: &AppName) -> OwnedMutexGuard<()> {
        self.changing_memories.lock(app).await
    }

    /// Waits until nothing else in this process creates a session of an app that can be created again.
    pub(crate) async fn lock_creation(&self, app: &AppName) -> OwnedMutexGuard<()> {
        self.creating_sessions.lock(app).await
    }

    /// Returns the documents of a kind as they are stored, oldest first; only one with an id.
    pub(crate) async fn stored(
        &self,
        app: &AppName,
        kind: DocumentKind,
        id: Option<&str>,
    ) -> Result<Vec<StoredDocument>, ApiError> {
        Ok(self.store.documents(app, kind, id).await?)
    }

    /// Makes a change. Returns whether there was such a document.
    pub(crate) async fn apply(&self, change: &DocumentChange) -> Result<bool, ApiError> {
        Ok(self.store.change_document(change).await?)
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

/// Returns the time in the precision of the ledger: microseconds.
pub(crate) fn now_in_ledger() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

fn entry(stored: StoredDocument) -> Result<CatalogEntry, ApiError> {
    let body = serde_json::from_str(&stored.body)
        .map_err(|_| ApiError::Internal("a stored document is damaged".to_owned()))?;
    Ok(CatalogEntry { id: stored.id, created_at: stored.created_at, body })
}
