//! `/v1/memory_stores`: named containers of memories.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::response::Response;
use hob_domain::{DocumentKind, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::document::View;
use super::page::{created_within, descending, time_key};
use super::{notes, stored};
use crate::agent_catalog::CatalogEntry;
use crate::error::ApiError;
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::routes::v1::agent_sessions::cursor::Query;
use crate::routes::v1::agent_sessions::respond::{Called, answer, time, uninterrupted};
use crate::routes::v1::dialect::Dialect;
use crate::routes::v1::metadata::{self, MAX_KEY_CHARS, MAX_PAIRS, MAX_VALUE_CHARS};
use crate::routes::v1::schemas;
use crate::state::Gateway;

const MAX_NAME_CHARACTERS: usize = 255;
const MAX_DESCRIPTION_CHARACTERS: usize = 1024;

/// A memory store, or changes of one.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "Team notes", "description": "What the team knows."}))]
pub(crate) struct StoreBody {
    /// A new store needs one.
    name: Option<String>,
    description: Option<String>,
    /// Texts under keys.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
}

/// Creates a memory store.
#[utoipa::path(post, path = "/v1/memory_stores", tag = "v1", operation_id = "create_memory_store",
    security(("token" = [])), request_body = StoreBody, responses(
    (status = 200, description = "The memory store.", body = schemas::MemoryStoreObject),
    (status = 400, description = "Invalid request; the error names the field.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 413, description = "The body is too large.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    request: Request,
) -> Response {
    let created = async {
        let Caller(app) = caller?;
        let JsonBody(body) = JsonBody::<StoreBody>::from_request(request, &gateway).await?;
        let name = body.name.ok_or_else(|| ApiError::bad_request("name: is required"))?;
        let stored = json!({"name": name, "description": body.description.unwrap_or_default(),
            "metadata": body.metadata.unwrap_or_default(), "archived_at": null,
            "updated_at": time(Timestamp::now())});
        check(&stored)?;
        let kind = DocumentKind::MemoryStore;
        let entry = gateway.catalog.create(&app.name, kind, "memstore", stored).await?;
        Ok(render(&entry))
    };
    answer(Dialect::Anthropic, created.await)
}

/// Lists the memory stores.
#[utoipa::path(get, path = "/v1/memory_stores", tag = "v1", operation_id = "list_memory_stores",
    security(("token" = [])),
    params(("limit" = Option<u32>, Query, description = "At most this many, from 1 to 100."),
        ("page" = Option<String>, Query, description = "`next_page` of the page before."),
        ("include_archived" = Option<bool>, Query, description = "Also list archived ones."),
        ("created_at[gte]" = Option<String>, Query, description = "Only those created at this time or later."),
        ("created_at[lte]" = Option<String>, Query, description = "Only those created at this time or earlier.")), responses(
    (status = 200, description = "The memory stores, newest first.", body = schemas::ObjectPage),
    (status = 400, description = "Invalid query; the error names the parameter.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    query: Called<Query>,
) -> Response {
    let listed = async {
        let (Caller(app), query) = (caller?, query?);
        let entries = gateway.catalog.list(&app.name, DocumentKind::MemoryStore).await?;
        let with_archived = query.is_set("include_archived")?;
        let is_in_time = created_within(&query)?;
        let is_shown = |entry: &&CatalogEntry| {
            (entry.body["archived_at"].is_null() || with_archived) && is_in_time(entry.created_at)
        };
        let item = |entry: &CatalogEntry| (time_key(entry.created_at, &entry.id), render(entry));
        let shown = entries.iter().filter(is_shown).map(item).collect();
        Ok(descending(shown, &query, View::Basic)?)
    };
    answer(Dialect::Anthropic, listed.await)
}

/// Returns a memory store.
#[utoipa::path(get, path = "/v1/memory_stores/{id}", tag = "v1", operation_id = "get_memory_store",
    security(("token" = [])), params(("id" = String, Path, description = "The memory store.")), responses(
    (status = 200, description = "The memory store.", body = schemas::MemoryStoreObject),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such memory store of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
) -> Response {
    let found = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        Ok(render(&stored::store(&gateway, &app.name, &id).await?))
    };
    answer(Dialect::Anthropic, found.await)
}

/// Changes a memory store.
#[utoipa::path(post, path = "/v1/memory_stores/{id}", tag = "v1", operation_id = "update_memory_store",
    security(("token" = [])), params(("id" = String, Path, description = "The memory store.")),
    request_body = StoreBody, responses(
    (status = 200, description = "The memory store.", body = schemas::MemoryStoreObject),
    (status = 400, description = "Invalid request; the error names the field.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such memory store of this app.", body = schemas::VendorError),
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
    let changed = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        stored::store(&gateway, &app.name, &id).await?;
        let JsonBody(body) = JsonBody::<StoreBody>::from_request(request, &gateway).await?;
        let apply = |stored: &mut Value| {
            stored::check_open(stored)?;
            for (key, value) in [("name", body.name), ("description", body.description)] {
                if let Some(value) = value {
                    stored[key] = json!(value);
                }
            }
            if let Some(metadata) = stored["metadata"].as_object_mut() {
                metadata::merge(metadata, body.metadata.unwrap_or_default())?;
            }
            stored["updated_at"] = json!(time(Timestamp::now()));
            check(stored)
        };
        let entry =
            gateway.catalog.change(&app.name, DocumentKind::MemoryStore, &id, apply).await?;
        Ok(render(&entry.ok_or_else(|| stored::no_store(&id))?))
    };
    answer(Dialect::Anthropic, changed.await)
}

/// Archives a memory store: its memories can be read and deleted, and no longer be changed.
#[utoipa::path(post, path = "/v1/memory_stores/{id}/archive", tag = "v1", operation_id = "archive_memory_store",
    security(("token" = [])), params(("id" = String, Path, description = "The memory store.")), responses(
    (status = 200, description = "The memory store.", body = schemas::MemoryStoreObject),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such memory store of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn archive(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
) -> Response {
    let archived = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        let apply = |stored: &mut Value| {
            if stored["archived_at"].is_null() {
                let now = json!(time(Timestamp::now()));
                (stored["archived_at"], stored["updated_at"]) = (now.clone(), now);
            }
            Ok(())
        };
        let entry =
            gateway.catalog.change(&app.name, DocumentKind::MemoryStore, &id, apply).await?;
        Ok(render(&entry.ok_or_else(|| stored::no_store(&id))?))
    };
    answer(Dialect::Anthropic, archived.await)
}

/// Deletes a memory store with its memories and their versions.
#[utoipa::path(delete, path = "/v1/memory_stores/{id}", tag = "v1", operation_id = "delete_memory_store",
    security(("token" = [])), params(("id" = String, Path, description = "The memory store.")), responses(
    (status = 200, description = "It is deleted.", body = schemas::DeletedObject),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such memory store of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
) -> Response {
    let deleted = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        let change_gateway = gateway.clone();
        uninterrupted(&gateway, async move {
            let (gateway, app) = (&change_gateway, &app.name);
            let _changing = gateway.catalog.lock_memories(app).await;
            stored::store(gateway, app, &id).await?;
            for memory in stored::of_store(gateway, app, &id).await? {
                notes::forget(gateway, app, memory.document.record_ids())
                    .await
                    .map_err(ApiError::from)?;
                memory.delete(gateway, app).await?;
            }
            gateway.catalog.delete(app, DocumentKind::MemoryStore, &id).await?;
            Ok(json!({"id": id, "type": "memory_store_deleted"}))
        })
        .await
    };
    answer(Dialect::Anthropic, deleted.await)
}

fn render(entry: &CatalogEntry) -> Value {
    let mut store = entry.body.clone();
    store["id"] = json!(entry.id);
    store["type"] = json!("memory_store");
    store["created_at"] = json!(time(entry.created_at));
    store
}

fn check(stored: &Value) -> Result<(), ApiError> {
    let wrong = |text: String| Err(ApiError::bad_request(text));
    let text = |key: &str| stored[key].as_str().unwrap_or_default();
    let name = text("name");
    if name.is_empty()
        || name.chars().count() > MAX_NAME_CHARACTERS
        || name.contains(char::is_control)
    {
        return wrong(format!(
            "name: must be 1 to {MAX_NAME_CHARACTERS} characters without control characters"
        ));
    }
    if text("description").chars().count() > MAX_DESCRIPTION_CHARACTERS {
        return wrong(format!("description: exceeds {MAX_DESCRIPTION_CHARACTERS} characters"));
    }
    let Some(metadata) = stored["metadata"].as_object() else { return Ok(()) };
    metadata::check_texts(metadata)?;
    if metadata.len() > MAX_PAIRS {
        return wrong(format!("metadata: has more than {MAX_PAIRS} pairs"));
    }
    let is_wrong = |(key, value): (&String, &Value)| {
        let value = value.as_str().unwrap_or_default();
        !(1..=MAX_KEY_CHARS).contains(&key.chars().count())
            || value.chars().count() > MAX_VALUE_CHARS
    };
    match metadata.iter().any(is_wrong) {
        true => wrong(format!(
            "metadata: keys must be 1 to {MAX_KEY_CHARS} characters, and values at most {MAX_VALUE_CHARS}"
        )),
        false => Ok(()),
    }
}
