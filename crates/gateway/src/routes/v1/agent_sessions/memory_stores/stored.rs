//! Memory stores and memories in the ledger.

use hob_domain::{AppName, DocumentChange, DocumentKind, StoredDocument, Timestamp};
use serde_json::Value;
use uuid::Uuid;

use super::document::{MemoryDocument, View};
use crate::agent_catalog::{CatalogEntry, now_in_ledger};
use crate::error::ApiError;
use crate::state::Gateway;

/// The most memories of an app, with deleted ones.
const MAX_MEMORIES: usize = 2000;
/// The most bytes of an app's memories with their versions. A list reads all of them.
const MAX_TOTAL_BYTES: usize = 32 << 20;

/// A memory as it was read.
pub(super) struct StoredMemory {
    pub id: String,
    pub created_at: Timestamp,
    pub document: MemoryDocument,
    /// The document as it is stored.
    text: String,
}

impl StoredMemory {
    /// Makes a new memory, which is not stored yet.
    pub fn new(document: MemoryDocument) -> StoredMemory {
        let id = format!("mem_{}", Uuid::new_v4().simple());
        StoredMemory { id, created_at: now_in_ledger(), document, text: String::new() }
    }

    pub fn render(&self, view: View) -> Value {
        self.document.render(&self.id, self.created_at, view)
    }

    /// Stores a new memory.
    pub async fn create(&self, gateway: &Gateway, app: &AppName) -> Result<(), ApiError> {
        let document = self.stored(app, self.new_text()?);
        gateway.catalog.apply(&DocumentChange::Save(document)).await.map(drop)
    }

    /// Stores a changed memory. Returns `false` if it was changed elsewhere since it was read.
    pub async fn replace(&self, gateway: &Gateway, app: &AppName) -> Result<bool, ApiError> {
        let document = self.stored(app, self.new_text()?);
        let change = DocumentChange::Replace { document, expected_body: self.text.clone() };
        gateway.catalog.apply(&change).await
    }

    pub async fn delete(&self, gateway: &Gateway, app: &AppName) -> Result<(), ApiError> {
        gateway.catalog.delete(app, DocumentKind::Memory, &self.id).await.map(drop)
    }

    fn new_text(&self) -> Result<String, ApiError> {
        serde_json::to_string(&self.document).map_err(|error| ApiError::Internal(error.to_string()))
    }

    fn stored(&self, app: &AppName, body: String) -> StoredDocument {
        StoredDocument {
            app: app.clone(),
            kind: DocumentKind::Memory,
            id: self.id.clone(),
            created_at: self.created_at,
            input: String::new(),
            body,
        }
    }
}

/// Returns a memory store of an app.
pub(super) async fn store(
    gateway: &Gateway,
    app: &AppName,
    id: &str,
) -> Result<CatalogEntry, ApiError> {
    let found = gateway.catalog.find(app, DocumentKind::MemoryStore, id).await?;
    found.ok_or_else(|| no_store(id))
}

pub(super) fn no_store(id: &str) -> ApiError {
    ApiError::NotFound(format!("no memory store {id:?}"))
}

/// Refuses changes of an archived store.
pub(super) fn check_open(store: &Value) -> Result<(), ApiError> {
    match store["archived_at"].is_null() {
        true => Ok(()),
        false => Err(ApiError::bad_request("the memory store is archived")),
    }
}

/// Returns the memories of an app, deleted ones too, oldest first.
pub(super) async fn all(gateway: &Gateway, app: &AppName) -> Result<Vec<StoredMemory>, ApiError> {
    let stored = gateway.catalog.stored(app, DocumentKind::Memory, None).await?;
    stored.into_iter().map(read).collect()
}

/// Returns the memories of a store, deleted ones too, oldest first.
pub(super) async fn of_store(
    gateway: &Gateway,
    app: &AppName,
    store_id: &str,
) -> Result<Vec<StoredMemory>, ApiError> {
    let mut memories = all(gateway, app).await?;
    memories.retain(|memory| memory.document.store_id == store_id);
    Ok(memories)
}

/// Returns a memory that is not deleted.
pub(super) async fn find(
    gateway: &Gateway,
    app: &AppName,
    store_id: &str,
    id: &str,
) -> Result<StoredMemory, ApiError> {
    store(gateway, app, store_id).await?;
    let missing = || ApiError::NotFound(format!("no memory {id:?}"));
    let stored = gateway.catalog.stored(app, DocumentKind::Memory, Some(id)).await?.pop();
    let memory = read(stored.ok_or_else(missing)?)?;
    let is_there = memory.document.store_id == store_id && !memory.document.is_deleted();
    is_there.then_some(memory).ok_or_else(missing)
}

/// Checks that an app may store this many more bytes. If not, removes its oldest deleted memories for good.
pub(super) async fn make_room(
    gateway: &Gateway,
    app: &AppName,
    all: &[StoredMemory],
    bytes: usize,
) -> Result<(), ApiError> {
    let mut count = all.len();
    let mut total = all.iter().map(|memory| memory.text.len()).sum::<usize>() + bytes;
    let mut deleted = all.iter().filter(|memory| memory.document.is_deleted());
    while count >= MAX_MEMORIES || total > MAX_TOTAL_BYTES {
        let Some(oldest) = deleted.next() else {
            let message = format!(
                "an app may keep {MAX_MEMORIES} memories and {MAX_TOTAL_BYTES} bytes of them; delete some first"
            );
            return Err(ApiError::TooLarge(message));
        };
        oldest.delete(gateway, app).await?;
        count -= 1;
        total -= oldest.text.len();
    }
    Ok(())
}

fn read(stored: StoredDocument) -> Result<StoredMemory, ApiError> {
    let damaged = || ApiError::Internal("a stored memory is damaged".to_owned());
    let document: MemoryDocument = serde_json::from_str(&stored.body).map_err(|_| damaged())?;
    if document.versions.is_empty() {
        return Err(damaged());
    }
    let StoredDocument { id, created_at, body: text, .. } = stored;
    Ok(StoredMemory { id, created_at, document, text })
}
