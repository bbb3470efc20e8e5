//! `/v1/conversations/{id}/items`: the items of a conversation.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::super::items_page::{self, ItemsQuery};
use super::body::{Called, checked_items, respond};
use crate::error::ApiError;
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::{ApiPath, ApiQuery};
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// Items that are added to a conversation.
#[derive(Deserialize, ToSchema)]
#[schema(example = json!({"items": [{"role": "user", "content": "Say hello."}]}))]
pub(crate) struct NewItems {
    /// From 1 to 20 items: messages, `function_call`, `function_call_output`, `item_reference`.
    #[schema(value_type = Vec<Object>, min_items = 1, max_items = 20)]
    items: Vec<Value>,
}

/// Adds items to a conversation.
#[utoipa::path(post, path = "/v1/conversations/{id}/items", tag = "v1", operation_id = "create_conversation_items",
    request_body = NewItems, security(("token" = [])),
    params(("id" = String, Path, description = "The conversation.")), responses(
    (status = 200, description = "A list of the new items.", body = schemas::ObjectPage),
    (status = 400, description = "Invalid request (`invalid_request_error`).", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token (`invalid_api_key`).", body = schemas::VendorError),
    (status = 404, description = "No such conversation of this app.", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 413, description = "The body or the conversation is too large.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
    request: Request,
) -> Response {
    let created = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        gateway.conversations.find(&app.name, &id).await?;
        let JsonBody(body) = JsonBody::<NewItems>::from_request(request, &gateway).await?;
        if body.items.is_empty() {
            return Err(ApiError::bad_request("items: must not be empty").into());
        }
        let items = checked_items(&gateway, &app.name, body.items).await?;
        let added = gateway.conversations.add(&app.name, &id, &items).await?;
        Ok(items_page::list(added, false))
    };
    respond(created.await)
}

/// Lists the items of a conversation.
#[utoipa::path(get, path = "/v1/conversations/{id}/items", tag = "v1", operation_id = "list_conversation_items",
    security(("token" = [])), params(("id" = String, Path, description = "The conversation."), ItemsQuery), responses(
    (status = 200, description = "The items.", body = schemas::ObjectPage),
    (status = 400, description = "Invalid query; the error names the parameter.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token (`invalid_api_key`).", body = schemas::VendorError),
    (status = 404, description = "No such conversation of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
    query: Called<ApiQuery<ItemsQuery>>,
) -> Response {
    let listed = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        let conversation = gateway.conversations.find(&app.name, &id).await?;
        let ApiQuery(query) = query?;
        Ok(query.page(conversation.items)?)
    };
    respond(listed.await)
}

/// Returns an item of a conversation.
#[utoipa::path(get, path = "/v1/conversations/{id}/items/{item_id}", tag = "v1", operation_id = "get_conversation_item",
    security(("token" = [])), params(("id" = String, Path, description = "The conversation."),
    ("item_id" = String, Path, description = "The item.")), responses(
    (status = 200, description = "The item.", body = schemas::ItemObject),
    (status = 401, description = "Missing or wrong token (`invalid_api_key`).", body = schemas::VendorError),
    (status = 404, description = "No such conversation of this app, or no such item.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    path: Called<ApiPath<(String, String)>>,
) -> Response {
    let found = async {
        let (Caller(app), ApiPath((id, item))) = (caller?, path?);
        Ok(gateway.conversations.find(&app.name, &id).await?.item(&item)?.clone())
    };
    respond(found.await)
}

/// Deletes an item of a conversation.
#[utoipa::path(delete, path = "/v1/conversations/{id}/items/{item_id}", tag = "v1",
    operation_id = "delete_conversation_item", security(("token" = [])),
    params(("id" = String, Path, description = "The conversation."),
    ("item_id" = String, Path, description = "The item.")), responses(
    (status = 200, description = "The conversation.", body = schemas::ConversationObject),
    (status = 401, description = "Missing or wrong token (`invalid_api_key`).", body = schemas::VendorError),
    (status = 404, description = "No such conversation of this app, or no such item.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    path: Called<ApiPath<(String, String)>>,
) -> Response {
    let deleted = async {
        let (Caller(app), ApiPath((id, item))) = (caller?, path?);
        Ok(gateway.conversations.remove_item(&app.name, &id, &item).await?.value())
    };
    respond(deleted.await)
}
