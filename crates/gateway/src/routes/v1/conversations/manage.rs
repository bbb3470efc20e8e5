//! `/v1/conversations`: creating, reading, changing and deleting conversations.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::super::metadata::checked_metadata;
use super::body::{Called, checked_items, respond};
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// A new conversation.
#[derive(Deserialize, ToSchema)]
#[schema(example = json!({"metadata": {"topic": "demo"}}))]
pub(crate) struct NewConversation {
    /// The first items, at most 20: messages, `function_call`, `function_call_output`, `item_reference`.
    #[schema(value_type = Option<Vec<Object>>, max_items = 20)]
    items: Option<Vec<Value>>,
    /// Up to 16 short texts.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
}

/// Creates a conversation.
///
/// It is deleted when nothing was added or changed for `sessions.hard_ttl_secs`.
#[utoipa::path(post, path = "/v1/conversations", tag = "v1", operation_id = "create_conversation",
    request_body = NewConversation, security(("token" = [])), responses(
    (status = 200, description = "The conversation.", body = schemas::ConversationObject),
    (status = 400, description = "Invalid request (`invalid_request_error`).", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token (`invalid_api_key`).", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 413, description = "The body or the conversation is too large.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    request: Request,
) -> Response {
    let created = async {
        let Caller(app) = caller?;
        // Authenticate before reading the body.
        let JsonBody(body) = JsonBody::<NewConversation>::from_request(request, &gateway).await?;
        let metadata = body.metadata.unwrap_or_default();
        checked_metadata(&metadata)?;
        let items = checked_items(&gateway, &app.name, body.items.unwrap_or_default()).await?;
        Ok(gateway.conversations.create(&app.name, metadata, &items).await?.value())
    };
    respond(created.await)
}

/// Returns a conversation without its items.
#[utoipa::path(get, path = "/v1/conversations/{id}", tag = "v1", operation_id = "get_conversation",
    security(("token" = [])), params(("id" = String, Path, description = "The conversation.")), responses(
    (status = 200, description = "The conversation.", body = schemas::ConversationObject),
    (status = 401, description = "Missing or wrong token (`invalid_api_key`).", body = schemas::VendorError),
    (status = 404, description = "No such conversation of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
) -> Response {
    let found = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        Ok(gateway.conversations.find(&app.name, &id).await?.value())
    };
    respond(found.await)
}

/// A change of a conversation.
#[derive(Deserialize, ToSchema)]
#[schema(example = json!({"metadata": {"topic": "demo"}}))]
pub(crate) struct ConversationChange {
    /// Takes the place of the earlier metadata. `null` removes it.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
}

/// Replaces the metadata of a conversation.
#[utoipa::path(post, path = "/v1/conversations/{id}", tag = "v1", operation_id = "update_conversation",
    request_body = ConversationChange, security(("token" = [])),
    params(("id" = String, Path, description = "The conversation.")), responses(
    (status = 200, description = "The conversation.", body = schemas::ConversationObject),
    (status = 400, description = "Invalid request (`invalid_request_error`).", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token (`invalid_api_key`).", body = schemas::VendorError),
    (status = 404, description = "No such conversation of this app.", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 413, description = "The body is too large.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn update(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
    request: Request,
) -> Response {
    let updated = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        gateway.conversations.find(&app.name, &id).await?;
        let JsonBody(body) =
            JsonBody::<ConversationChange>::from_request(request, &gateway).await?;
        let metadata = body.metadata.unwrap_or_default();
        checked_metadata(&metadata)?;
        Ok(gateway.conversations.set_metadata(&app.name, &id, &metadata).await?.value())
    };
    respond(updated.await)
}

/// Deletes a conversation with its items. The responses that were made in it stay.
#[utoipa::path(delete, path = "/v1/conversations/{id}", tag = "v1", operation_id = "delete_conversation",
    security(("token" = [])), params(("id" = String, Path, description = "The conversation.")), responses(
    (status = 200, description = "Deleted.", body = schemas::DeletedObject),
    (status = 401, description = "Missing or wrong token (`invalid_api_key`).", body = schemas::VendorError),
    (status = 404, description = "No such conversation of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
) -> Response {
    let deleted = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        gateway.conversations.delete(&app.name, &id).await?;
        Ok(json!({"id": id, "object": "conversation.deleted", "deleted": true}))
    };
    respond(deleted.await)
}
