//! Storing a response.

use std::sync::Arc;

use hob_domain::App;
use serde_json::Value;

use super::object::ResponseObject;
use crate::error::ApiError;
use crate::event_log::EventLog;
use crate::response_store::Running;
use crate::state::Gateway;

/// Stores a response, and adds it to its conversation once it has ended.
pub(super) struct Keeper {
    pub gateway: Arc<Gateway>,
    pub app: App,
    /// The items of the request.
    pub items: Vec<Value>,
    /// The conversation to which the response belongs.
    pub conversation: Option<String>,
    /// Registers the response while it is made; `None` if it is not to be stored.
    pub running: Option<Running>,
}

impl Keeper {
    /// Stores the response as it is now, if it is to be stored and was not deleted.
    pub async fn store(&self, response: &ResponseObject) -> Result<(), ApiError> {
        match &self.running {
            Some(running) => Ok(running.save(&response.value(), &self.items).await?),
            None => Ok(()),
        }
    }

    /// Adds a complete response to its conversation and stores it. If that fails, the client still has its answer.
    pub async fn keep(&self, response: &ResponseObject) {
        let is_complete = matches!(response.status(), "completed" | "incomplete");
        if let Some(id) = self.conversation.as_deref().filter(|_| is_complete) {
            let conversations = &self.gateway.conversations;
            let value = response.value();
            let added = conversations.add_response(&self.app.name, id, &self.items, &value).await;
            if let Err(error) = added {
                tracing::error!(?error, "cannot add a response to its conversation");
            }
        }
        if let Err(error) = self.store(response).await {
            tracing::error!(?error, "cannot store a response");
        }
    }

    /// Returns the log of the events, if the response is made in the background.
    pub fn events(&self) -> Option<Arc<EventLog>> {
        self.running.as_ref()?.events()
    }

    /// Waits until the response is cancelled or deleted.
    pub async fn cancelled(&self) {
        match &self.running {
            Some(running) => running.cancelled().await,
            None => std::future::pending().await,
        }
    }
}
