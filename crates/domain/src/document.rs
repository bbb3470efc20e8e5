//! Documents of an app: what the vendors' APIs and Hob itself store next to sessions.

use async_trait::async_trait;
use jiff::Timestamp;

use crate::app::AppName;
use crate::store_error::StoreError;

/// What a document describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DocumentKind {
    /// A response of `/v1/responses`.
    Response,
    /// An agent of `/v1/agents`.
    Agent,
    /// An environment of `/v1/environments`.
    Environment,
    /// What the vendors' APIs know of a session. Its id is the session's.
    Session,
    /// A conversation of `/v1/conversations`. Its `created_at` is the time of its last change.
    Conversation,
    /// A batch of `/v1/messages/batches`.
    MessageBatch,
    /// A store of `/v1/memory_stores`.
    MemoryStore,
    /// A memory of such a store, with its versions.
    Memory,
    /// The models that an agent has offered. Its id ends with the agent's name.
    AgentModels,
}

impl DocumentKind {
    /// The kinds whose documents expire: they are deleted with sessions that were closed when the documents were
    /// created. Documents of other kinds stay until their app or their session is deleted, or an app deletes them.
    pub const EXPIRING: [DocumentKind; 3] =
        [DocumentKind::Response, DocumentKind::Conversation, DocumentKind::MessageBatch];

    /// Returns whether documents of this kind expire.
    pub fn expires(self) -> bool {
        DocumentKind::EXPIRING.contains(&self)
    }

    /// Returns the word that the ledger stores.
    pub fn as_str(self) -> &'static str {
        match self {
            DocumentKind::Response => "response",
            DocumentKind::Agent => "agent",
            DocumentKind::Environment => "environment",
            DocumentKind::Session => "session",
            DocumentKind::Conversation => "conversation",
            DocumentKind::MessageBatch => "message_batch",
            DocumentKind::MemoryStore => "memory_store",
            DocumentKind::Memory => "memory",
            DocumentKind::AgentModels => "agent_models",
        }
    }
}

/// A stored document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDocument {
    pub app: AppName,
    pub kind: DocumentKind,
    pub id: String,
    pub created_at: Timestamp,
    /// The items of a response's request or of a conversation, or the requests of a batch, as JSON; empty for other
    /// kinds.
    pub input: String,
    /// The document as JSON.
    pub body: String,
}

/// A change of the stored documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentChange {
    /// Stores a document, in place of an earlier one with this kind and id.
    Save(StoredDocument),
    /// Stores a document in place of the one with this kind and id, if that one has this body. It changes nothing
    /// otherwise, so of two writers that read one document only the first succeeds.
    Replace {
        document: StoredDocument,
        expected_body: String,
    },
    Delete {
        app: AppName,
        kind: DocumentKind,
        id: String,
    },
}

/// Storage of documents. They are deleted with their app. Responses, conversations and batches are also deleted with sessions that
/// were closed when the documents were created ([`DocumentKind::EXPIRING`]), and descriptions of sessions with their
/// sessions; see [`DeleteFilter`](crate::session::DeleteFilter).
#[async_trait]
pub trait DocumentStore: Send + Sync {
    /// Makes a change. Returns whether there was a document with this kind and id, and with the expected body.
    async fn change_document(&self, change: &DocumentChange) -> Result<bool, StoreError>;

    /// Returns the documents of an app with this kind and, if there is one, this id, oldest first.
    async fn documents(
        &self,
        app: &AppName,
        kind: DocumentKind,
        id: Option<&str>,
    ) -> Result<Vec<StoredDocument>, StoreError>;
}
