//! The earlier items of a request that names them.

use std::sync::Arc;

use hob_domain::AppName;
use serde_json::Value;

use super::super::dialect::Problem;
use crate::error::ApiError;
use crate::state::Gateway;

/// What a request continues.
#[derive(Debug, PartialEq)]
pub(super) enum NamedHistory {
    None,
    /// A stored response, and those that it continues.
    Response(String),
    Conversation(String),
}

/// Reads what a request continues. It may name a response or a conversation, not both.
pub(super) fn named(
    conversation: Option<&Value>,
    previous_response_id: Option<&str>,
) -> Result<NamedHistory, Problem> {
    let wrong = |text: &str| Problem::from(ApiError::bad_request(text));
    let conversation = match conversation {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) => Some(id.as_str()),
        Some(object) => {
            let id = object["id"].as_str();
            Some(id.ok_or_else(|| wrong("conversation: must be an ID or an object with one"))?)
        }
    };
    match (conversation, previous_response_id) {
        (Some(_), Some(_)) => {
            Err(wrong("conversation: cannot be used together with previous_response_id"))
        }
        (Some(id), None) => Ok(NamedHistory::Conversation(id.to_owned())),
        (None, Some(id)) => Ok(NamedHistory::Response(id.to_owned())),
        (None, None) => Ok(NamedHistory::None),
    }
}

impl NamedHistory {
    /// Returns the earlier items, the oldest first.
    pub async fn items(
        &self,
        gateway: &Arc<Gateway>,
        app: &AppName,
    ) -> Result<Vec<Value>, ApiError> {
        match self {
            NamedHistory::None => Ok(Vec::new()),
            NamedHistory::Response(id) => gateway.responses.conversation(app, id).await,
            NamedHistory::Conversation(id) => gateway.conversations.history(app, id).await,
        }
    }

    /// Returns the conversation to which the response will be added.
    pub fn conversation(&self) -> Option<&str> {
        match self {
            NamedHistory::Conversation(id) => Some(id),
            NamedHistory::None | NamedHistory::Response(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn request_names_one_history() {
        let id = || "conv_1".to_owned();
        for form in [json!("conv_1"), json!({"id": "conv_1"})] {
            assert_eq!(named(Some(&form), None).unwrap(), NamedHistory::Conversation(id()));
            assert!(named(Some(&form), Some("resp_1")).is_err());
        }
        let response = NamedHistory::Response("resp_1".to_owned());
        assert_eq!(named(Some(&Value::Null), Some("resp_1")).unwrap(), response);
        assert_eq!(named(None, None).unwrap(), NamedHistory::None);
        for wrong in [json!(1), json!({}), json!(["conv_1"]), json!({"id": 1})] {
            assert!(named(Some(&wrong), None).is_err(), "{wrong}");
        }
    }
}
