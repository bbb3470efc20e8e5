//! Storing a response.

use std::sync::Arc;

use hob_domain::App;
use serde_json::Value;

use super::object::ResponseObject;
use crate::state::Gateway;

/// Stores a response once it has ended.
pub(super) struct Keeper {
    pub gateway: Arc<Gateway>,
    pub app: App,
    /// The items of the request.
    pub items: Vec<Value>,
}

impl Keeper {
    /// Stores the response. If that fails, the client still has its answer.
    pub async fn keep(&self, response: &ResponseObject) {
        let responses = &self.gateway.responses;
        let saved = responses.save(&self.app.name, &response.value(), &self.items).await;
        if let Err(error) = saved {
            tracing::error!(%error, "cannot store a response");
        }
    }
}
