//! `/v1/memory_stores/{id}/memory_versions`: the history of memories.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use hob_domain::AppName;
use serde_json::json;

use super::document::View;
use super::page::{created_within, descending, time_key, view};
use super::stored::StoredMemory;
use super::{notes, stored};
use crate::error::ApiError;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::routes::v1::agent_sessions::cursor::Query;
use crate::routes::v1::agent_sessions::respond::{Called, answer, uninterrupted};
use crate::routes::v1::dialect::{Dialect, Problem};
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// Lists the versions of a store's memories, also of deleted ones.
#[utoipa::path(get, path = "/v1/memory_stores/{id}/memory_versions", tag = "v1", operation_id = "list_memory_versions",
    security(("token" = [])), params(("id" = String, Path, description = "The memory store."),
        ("memory_id" = Option<String>, Query, description = "Only versions of this memory."),
        ("operation" = Option<String>, Query, description = "Only `created`, `modified` or `deleted` ones."),
        ("api_key_id" = Option<String>, Query, description = "Only versions written by this app."),
        ("session_id" = Option<String>, Query, description = "Only versions written by this session: none."),
        ("service_account_id" = Option<String>, Query, description = "Only versions written by this account: none."),
        ("created_at[gte]" = Option<String>, Query, description = "Only those created at this time or later."),
        ("created_at[lte]" = Option<String>, Query, description = "Only those created at this time or earlier."),
        ("limit" = Option<u32>, Query, description = "At most this many, from 1 to 100; with `full`, 20."),
        ("page" = Option<String>, Query, description = "`next_page` of the page before."),
        ("view" = Option<String>, Query, description = "`basic` (the default) or `full`, with the texts.")), responses(
    (status = 200, description = "The versions, newest first.", body = schemas::ObjectPage),
    (status = 400, description = "Invalid query; the error names the parameter.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such memory store of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    store_id: Called<ApiPath<String>>,
    query: Called<Query>,
) -> Response {
    let listed = async {
        let (Caller(app), ApiPath(store_id), query) = (caller?, store_id?, query?);
        let view = view(&query, View::Basic)?;
        stored::store(&gateway, &app.name, &store_id).await?;
        let operation = query.get("operation");
        if operation.is_some_and(|name| !["created", "modified", "deleted"].contains(&name)) {
            return Err(Problem::invalid("operation: must be created, modified or deleted"));
        }
        let is_in_time = created_within(&query)?;
        // Every version is written by the app.
        let is_others = query.get("session_id").is_some()
            || query.get("service_account_id").is_some()
            || query.get("api_key_id").is_some_and(|id| id != app.name.as_str());
        let _reading = gateway.catalog.lock_memories(&app.name).await;
        let mut items = Vec::new();
        for memory in stored::of_store(&gateway, &app.name, &store_id).await? {
            if is_others || query.get("memory_id").is_some_and(|id| id != memory.id) {
                continue;
            }
            for version in &memory.document.versions {
                if is_in_time(version.at)
                    && operation.is_none_or(|name| json!(version.operation) == name)
                {
                    let item = version.render(&app.name, &memory.id, &store_id, view);
                    items.push((time_key(version.at, &version.id), item));
                }
            }
        }
        Ok(descending(items, &query, view)?)
    };
    answer(Dialect::Anthropic, listed.await)
}

/// Returns a version of a memory.
#[utoipa::path(get, path = "/v1/memory_stores/{id}/memory_versions/{version_id}", tag = "v1", operation_id = "get_memory_version",
    security(("token" = [])), params(("id" = String, Path, description = "The memory store."),
        ("version_id" = String, Path, description = "The version."),
        ("view" = Option<String>, Query, description = "`full` (the default), or `basic`, without the text.")), responses(
    (status = 200, description = "The version.", body = schemas::MemoryVersionObject),
    (status = 400, description = "Invalid query; the error names the parameter.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such version in this store of the app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    ids: Called<ApiPath<(String, String)>>,
    query: Called<Query>,
) -> Response {
    let found = async {
        let (Caller(app), ApiPath((store_id, id)), query) = (caller?, ids?, query?);
        let view = view(&query, View::Full)?;
        let _reading = gateway.catalog.lock_memories(&app.name).await;
        let (memory, place) = find(&gateway, &app.name, &store_id, &id).await?;
        let version = &memory.document.versions[place];
        Ok(version.render(&app.name, &memory.id, &store_id, view))
    };
    answer(Dialect::Anthropic, found.await)
}

/// Removes the text and the path of an earlier version.
#[utoipa::path(post, path = "/v1/memory_stores/{id}/memory_versions/{version_id}/redact", tag = "v1",
    operation_id = "redact_memory_version", security(("token" = [])),
    params(("id" = String, Path, description = "The memory store."),
        ("version_id" = String, Path, description = "The version.")), responses(
    (status = 200, description = "The version.", body = schemas::MemoryVersionObject),
    (status = 400, description = "The version has the current text of its memory.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such version in this store of the app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn redact(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    ids: Called<ApiPath<(String, String)>>,
) -> Response {
    let redacted = async {
        let (Caller(app), ApiPath((store_id, id))) = (caller?, ids?);
        let change_gateway = gateway.clone();
        uninterrupted(&gateway, async move {
            let (gateway, app) = (&change_gateway, &app.name);
            let _changing = gateway.catalog.lock_memories(app).await;
            loop {
                let (mut memory, place) = find(gateway, app, &store_id, &id).await?;
                let document = &mut memory.document;
                if place + 1 == document.versions.len() && !document.is_deleted() {
                    return Err(Problem::invalid(
                        "the version has the current text of its memory; change or delete the memory first",
                    ));
                }
                let version = &mut document.versions[place];
                notes::forget(gateway, app, version.record_id.clone()).await.map_err(ApiError::from)?;
                version.redact();
                let rendered = version.render(app, &memory.id, &store_id, View::Full);
                if memory.replace(gateway, app).await? {
                    return Ok(rendered);
                }
            }
        })
        .await
    };
    answer(Dialect::Anthropic, redacted.await)
}

/// Returns the memory with a version, and the version's place in it.
async fn find(
    gateway: &Gateway,
    app: &AppName,
    store_id: &str,
    id: &str,
) -> Result<(StoredMemory, usize), ApiError> {
    stored::store(gateway, app, store_id).await?;
    for memory in stored::of_store(gateway, app, store_id).await? {
        let place = memory.document.versions.iter().position(|version| version.id == id);
        if let Some(place) = place {
            return Ok((memory, place));
        }
    }
    Err(ApiError::NotFound(format!("no memory version {id:?}")))
}
