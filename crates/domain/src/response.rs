//! Responses that an app has asked Hob to store (`/v1/responses`).

use async_trait::async_trait;
use jiff::Timestamp;

use crate::app::AppName;
use crate::store_error::StoreError;

/// A stored response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    pub app: AppName,
    pub id: String,
    pub created_at: Timestamp,
    /// The items of its request, as JSON.
    pub input: String,
    /// The response as the app sees it, as JSON.
    pub body: String,
}

/// A change of the stored responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponseChange {
    /// Stores a response, in place of an earlier one with this id.
    Save(StoredResponse),
    Delete {
        app: AppName,
        id: String,
    },
}

/// Storage of responses. They are deleted with their app, and with sessions that were closed when they were created; see
/// [`DeleteFilter`](crate::session::DeleteFilter).
#[async_trait]
pub trait ResponseStore: Send + Sync {
    /// Makes a change. Returns whether there was a response with this id.
    async fn change_response(&self, change: &ResponseChange) -> Result<bool, StoreError>;

    /// Returns a response of an app.
    async fn response(&self, app: &AppName, id: &str)
    -> Result<Option<StoredResponse>, StoreError>;
}
