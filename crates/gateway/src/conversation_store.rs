//! The conversations of `/v1/conversations`: a list of items that responses read and extend.

use std::collections::HashSet;
use std::sync::Arc;

use hob_domain::{AppName, DocumentChange, DocumentKind, DocumentStore, StoredDocument, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::error::ApiError;
use crate::response_items::full_items;

/// How often a change is tried while other nodes change the conversation.
const MAX_ATTEMPTS: usize = 100;

/// The stored conversations.
pub struct Conversations {
    store: Arc<dyn DocumentStore>,
    /// The largest list of items, in bytes of JSON.
    max_bytes: usize,
    /// Held while a conversation is read, changed and stored, so that changes of one process do not collide.
    changing: tokio::sync::Mutex<()>,
}

/// A conversation and its items.
#[derive(Debug, Clone)]
pub(crate) struct StoredConversation {
    pub id: String,
    head: ConversationHead,
    pub items: Vec<Value>,
    /// The size of the items, in bytes of JSON.
    size: usize,
}

/// What is stored of a conversation next to its items.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ConversationHead {
    /// The number of changes, so that no two stored heads are equal.
    revision: u64,
    /// In seconds since 1970.
    created_at: i64,
    metadata: Map<String, Value>,
}

impl Conversations {
    pub fn new(store: Arc<dyn DocumentStore>, max_bytes: usize) -> Conversations {
        Conversations { store, max_bytes, changing: tokio::sync::Mutex::default() }
    }

    /// Stores a new conversation.
    pub(crate) async fn create(
        &self,
        app: &AppName,
        metadata: Map<String, Value>,
        items: &[Value],
    ) -> Result<StoredConversation, ApiError> {
        let created_at = Timestamp::now().as_second();
        let mut conversation = StoredConversation {
            id: format!("conv_{}", Uuid::new_v4().simple()),
            head: ConversationHead { revision: 0, created_at, metadata },
            items: Vec::new(),
            size: 0,
        };
        conversation.add(items);
        self.check_size(&conversation)?;
        let document = conversation.document(app);
        self.store.change_document(&DocumentChange::Save(document)).await?;
        Ok(conversation)
    }

    pub(crate) async fn find(
        &self,
        app: &AppName,
        id: &str,
    ) -> Result<StoredConversation, ApiError> {
        let found = self.store.documents(app, DocumentKind::Conversation, Some(id)).await?.pop();
        let stored = found.ok_or_else(|| no_conversation(id))?;
        let (head, items) =
            (serde_json::from_str(&stored.body), serde_json::from_str(&stored.input));
        let (Ok(head), Ok(items)) = (head, items) else {
            return Err(ApiError::Internal("a stored conversation is damaged".to_owned()));
        };
        Ok(StoredConversation { id: stored.id, head, items, size: stored.input.len() })
    }

    /// Returns the items that a response continues.
    pub(crate) async fn history(&self, app: &AppName, id: &str) -> Result<Vec<Value>, ApiError> {
        let conversation = self.find(app, id).await?;
        self.check_size(&conversation)?;
        Ok(conversation.items)
    }

    pub(crate) async fn set_metadata(
        &self,
        app: &AppName,
        id: &str,
        metadata: &Map<String, Value>,
    ) -> Result<StoredConversation, ApiError> {
        let set = |conversation: &mut StoredConversation| {
            conversation.head.metadata.clone_from(metadata);
            Ok(())
        };
        Ok(self.change(app, id, set).await?.0)
    }

    /// Adds items at the end, and returns them in their full form.
    pub(crate) async fn add(
        &self,
        app: &AppName,
        id: &str,
        items: &[Value],
    ) -> Result<Vec<Value>, ApiError> {
        let add = |conversation: &mut StoredConversation| {
            let added = conversation.add(items);
            self.check_size(conversation)?;
            Ok(added)
        };
        Ok(self.change(app, id, add).await?.1)
    }

    /// Adds the items of a response at the end: those of its request and its output. The next response reports if the
    /// conversation has become too large.
    pub(crate) async fn add_response(
        &self,
        app: &AppName,
        id: &str,
        input: &[Value],
        response: &Value,
    ) -> Result<(), ApiError> {
        let digits = response["id"].as_str().and_then(|id| id.strip_prefix("resp_"));
        let output = response["output"].as_array().map(Vec::as_slice).unwrap_or_default();
        let add = |conversation: &mut StoredConversation| {
            let mut taken = conversation.item_ids();
            let input = full_items(input, digits.unwrap_or_default(), &mut taken);
            conversation.items.extend(input);
            conversation.items.extend_from_slice(output);
            Ok(())
        };
        self.change(app, id, add).await.map(drop)
    }

    /// Removes an item.
    pub(crate) async fn remove_item(
        &self,
        app: &AppName,
        id: &str,
        item: &str,
    ) -> Result<StoredConversation, ApiError> {
        let remove = |conversation: &mut StoredConversation| {
            let place = conversation.items.iter().position(|known| known["id"] == item);
            conversation.items.remove(place.ok_or_else(|| no_item(item))?);
            Ok(())
        };
        Ok(self.change(app, id, remove).await?.0)
    }

    /// Deletes a conversation with its items.
    pub(crate) async fn delete(&self, app: &AppName, id: &str) -> Result<(), ApiError> {
        let change = DocumentChange::Delete {
            app: app.clone(),
            kind: DocumentKind::Conversation,
            id: id.to_owned(),
        };
        match self.store.change_document(&change).await? {
            true => Ok(()),
            false => Err(no_conversation(id)),
        }
    }

    /// Changes a conversation. Nothing is lost if others, also other nodes, change it at the same time.
    async fn change<T>(
        &self,
        app: &AppName,
        id: &str,
        change: impl Fn(&mut StoredConversation) -> Result<T, ApiError>,
    ) -> Result<(StoredConversation, T), ApiError> {
        let _changing = self.changing.lock().await;
        for _ in 0..MAX_ATTEMPTS {
            let mut conversation = self.find(app, id).await?;
            let expected_body = conversation.head.body();
            let changed = change(&mut conversation)?;
            conversation.head.revision += 1;
            let document = conversation.document(app);
            let replace = DocumentChange::Replace { document, expected_body };
            if self.store.change_document(&replace).await? {
                return Ok((conversation, changed));
            }
        }
        Err(ApiError::Internal(format!(
            "the conversation could not be updated: other requests changed it during each of {MAX_ATTEMPTS} attempts; try again"
        )))
    }

    fn check_size(&self, conversation: &StoredConversation) -> Result<(), ApiError> {
        match conversation.size > self.max_bytes {
            true => {
                let limit = self.max_bytes;
                Err(ApiError::TooLarge(format!("the conversation is larger than {limit} bytes")))
            }
            false => Ok(()),
        }
    }
}

impl ConversationHead {
    /// Returns the stored form. Its fields have a fixed order, so it is equal to what was read.
    fn body(&self) -> String {
        json!(self).to_string()
    }
}

impl StoredConversation {
    /// Returns the conversation in OpenAI's shape.
    pub fn value(&self) -> Value {
        json!({"id": self.id, "object": "conversation", "created_at": self.head.created_at,
            "metadata": self.head.metadata})
    }

    /// Returns an item.
    pub fn item(&self, id: &str) -> Result<&Value, ApiError> {
        self.items.iter().find(|item| item["id"] == id).ok_or_else(|| no_item(id))
    }

    fn item_ids(&self) -> HashSet<String> {
        self.items.iter().filter_map(|item| item["id"].as_str().map(str::to_owned)).collect()
    }

    fn add(&mut self, items: &[Value]) -> Vec<Value> {
        let digits = Uuid::new_v4().simple().to_string();
        let added = full_items(items, &digits, &mut self.item_ids());
        self.size += added.iter().map(|item| item.to_string().len() + 1).sum::<usize>();
        self.items.extend_from_slice(&added);
        added
    }

    fn document(&self, app: &AppName) -> StoredDocument {
        StoredDocument {
            app: app.clone(),
            kind: DocumentKind::Conversation,
            id: self.id.clone(),
            created_at: Timestamp::now(),
            input: json!(self.items).to_string(),
            body: self.head.body(),
        }
    }
}

fn no_conversation(id: &str) -> ApiError {
    ApiError::NotFound(format!("no conversation has the ID {id:?}"))
}

fn no_item(id: &str) -> ApiError {
    ApiError::NotFound(format!("no item of the conversation has the ID {id:?}"))
}
