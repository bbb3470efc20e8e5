//! `/v1/memory_stores/{id}/memories`: texts under paths.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::response::Response;
use hob_domain::AppName;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::document::{
    MemoryDocument, MemoryVersion, Operation, View, check_content, check_path, sha256,
};
use super::page::{ascending, view};
use super::stored::StoredMemory;
use super::{notes, stored};
use crate::error::ApiError;
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::routes::v1::agent_sessions::cursor::Query;
use crate::routes::v1::agent_sessions::respond::{Called, answer, uninterrupted};
use crate::routes::v1::dialect::{Dialect, Problem};
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// A memory of a store.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"path": "/deploy.md", "content": "We deploy on Tuesdays."}))]
pub(crate) struct NewMemoryBody {
    /// A path that begins with `/`.
    path: String,
    content: Option<String>,
}

/// Changes of a memory.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"content": "We deploy on Wednesdays."}))]
pub(crate) struct MemoryChangeBody {
    path: Option<String>,
    content: Option<String>,
    /// The change is made only if the memory's text has this digest: `type` is `content_sha256`.
    #[schema(value_type = Option<Value>)]
    precondition: Option<Precondition>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Precondition {
    ContentSha256 { content_sha256: Option<String> },
}

/// Creates a memory.
#[utoipa::path(post, path = "/v1/memory_stores/{id}/memories", tag = "v1", operation_id = "create_memory",
    security(("token" = [])), params(("id" = String, Path, description = "The memory store."),
        ("view" = Option<String>, Query, description = "`basic` (the default) or `full`, with the text.")),
    request_body = NewMemoryBody, responses(
    (status = 200, description = "The memory.", body = schemas::MemoryObject),
    (status = 400, description = "Invalid request; the error names the field.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such memory store of this app.", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 409, description = "The path has a memory already.", body = schemas::VendorError),
    (status = 413, description = "The body is too large.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    store_id: Called<ApiPath<String>>,
    query: Called<Query>,
    request: Request,
) -> Response {
    let created = async {
        let (Caller(app), ApiPath(store_id), query) = (caller?, store_id?, query?);
        stored::store(&gateway, &app.name, &store_id).await?;
        let view = view(&query, View::Basic)?;
        let JsonBody(body) = JsonBody::<NewMemoryBody>::from_request(request, &gateway).await?;
        let content = body.content.unwrap_or_default();
        check_path(&body.path)?;
        check_content(&content)?;
        let change_gateway = gateway.clone();
        uninterrupted(&gateway, async move {
            let (gateway, app) = (&change_gateway, &app.name);
            let _changing = gateway.catalog.lock_memories(app).await;
            stored::check_open(&stored::store(gateway, app, &store_id).await?.body)?;
            let all = stored::all(gateway, app).await?;
            check_free(&all, &store_id, &body.path, None)?;
            stored::make_room(gateway, app, &all, content.len()).await?;
            let mut version = MemoryVersion::new(Operation::Created, body.path, Some(content));
            let note = notes::remember(gateway, app, &store_id, &version).await;
            let note = note.map_err(ApiError::from)?;
            version.record_id = Some(note.clone());
            let document = MemoryDocument { store_id, versions: vec![version] };
            let memory = StoredMemory::new(document);
            match create_alone(gateway, app, &memory).await {
                Ok(()) => Ok(memory.render(view)),
                Err(problem) => {
                    notes::forget(gateway, app, [note]).await.map_err(ApiError::from)?;
                    Err(problem)
                }
            }
        })
        .await
    };
    answer(Dialect::Anthropic, created.await)
}

/// Lists the memories of a store.
#[utoipa::path(get, path = "/v1/memory_stores/{id}/memories", tag = "v1", operation_id = "list_memories",
    security(("token" = [])), params(("id" = String, Path, description = "The memory store."),
        ("path_prefix" = Option<String>, Query, description = "Only memories below this path, which ends with `/`."),
        ("depth" = Option<usize>, Query, description = "How far below `path_prefix`; deeper ones are one item per folder. 0, the default, lists all."),
        ("limit" = Option<u32>, Query, description = "At most this many, from 1 to 100; with `full`, 20."),
        ("page" = Option<String>, Query, description = "`next_page` of the page before."),
        ("view" = Option<String>, Query, description = "`basic` (the default) or `full`, with the texts.")), responses(
    (status = 200, description = "The memories, by path.", body = schemas::ObjectPage),
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
        let prefix = query.get("path_prefix").unwrap_or("/");
        if !(prefix.starts_with('/') && prefix.ends_with('/')) {
            return Err(Problem::invalid("path_prefix: must start and end with /"));
        }
        let depth: usize = match query.get("depth") {
            None => 0,
            Some(text) => text
                .parse()
                .map_err(|_| Problem::invalid("depth: must be a whole number, 0 or more"))?,
        };
        // One reader at a time: all of an app's memories are in memory.
        let _reading = gateway.catalog.lock_memories(&app.name).await;
        // Folders and memories in one order.
        let mut items: BTreeMap<String, Value> = BTreeMap::new();
        for memory in stored::of_store(&gateway, &app.name, &store_id).await? {
            let Some(path) = memory.document.path() else { continue };
            let Some(rest) = path.strip_prefix(prefix) else { continue };
            match folder_at_depth(rest, depth) {
                Some(folder) => {
                    let path = format!("{prefix}{folder}");
                    let item = json!({"type": "memory_prefix", "path": path});
                    items.insert(path, item);
                }
                None => drop(items.insert(path.to_owned(), memory.render(view))),
            }
        }
        Ok(ascending(items.into_iter().collect(), &query, view)?)
    };
    answer(Dialect::Anthropic, listed.await)
}

/// Returns the folder at the depth limit that a path lies below, with its slash; nothing if the path lies within the
/// limit.
fn folder_at_depth(path: &str, depth: usize) -> Option<&str> {
    let (end, _) = path.match_indices('/').nth(depth.checked_sub(1)?)?;
    Some(&path[..=end])
}

/// Returns a memory.
#[utoipa::path(get, path = "/v1/memory_stores/{id}/memories/{memory_id}", tag = "v1", operation_id = "get_memory",
    security(("token" = [])), params(("id" = String, Path, description = "The memory store."),
        ("memory_id" = String, Path, description = "The memory."),
        ("view" = Option<String>, Query, description = "`full` (the default), or `basic`, without the text.")), responses(
    (status = 200, description = "The memory.", body = schemas::MemoryObject),
    (status = 400, description = "Invalid query; the error names the parameter.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such memory in this store of the app.", body = schemas::VendorError),
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
        Ok(stored::find(&gateway, &app.name, &store_id, &id).await?.render(view))
    };
    answer(Dialect::Anthropic, found.await)
}

/// Changes the text or the path of a memory.
#[utoipa::path(post, path = "/v1/memory_stores/{id}/memories/{memory_id}", tag = "v1", operation_id = "update_memory",
    security(("token" = [])), params(("id" = String, Path, description = "The memory store."),
        ("memory_id" = String, Path, description = "The memory."),
        ("view" = Option<String>, Query, description = "`basic` (the default) or `full`, with the text.")),
    request_body = MemoryChangeBody, responses(
    (status = 200, description = "The memory.", body = schemas::MemoryObject),
    (status = 400, description = "Invalid request; the error names the field.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such memory in this store of the app.", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 409, description = "The precondition fails, or the path has another memory.", body = schemas::VendorError),
    (status = 413, description = "The body is too large.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn update(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    ids: Called<ApiPath<(String, String)>>,
    query: Called<Query>,
    request: Request,
) -> Response {
    let changed = async {
        let (Caller(app), ApiPath((store_id, id)), query) = (caller?, ids?, query?);
        stored::find(&gateway, &app.name, &store_id, &id).await?;
        let view = view(&query, View::Basic)?;
        let JsonBody(body) = JsonBody::<MemoryChangeBody>::from_request(request, &gateway).await?;
        body.path.as_deref().map_or(Ok(()), check_path)?;
        body.content.as_deref().map_or(Ok(()), check_content)?;
        let change_gateway = gateway.clone();
        uninterrupted(&gateway, async move {
            let (gateway, app) = (&change_gateway, &app.name);
            let _changing = gateway.catalog.lock_memories(app).await;
            stored::check_open(&stored::store(gateway, app, &store_id).await?.body)?;
            loop {
                let memory = stored::find(gateway, app, &store_id, &id).await?;
                if let Some(changed) = change(gateway, app, memory, &body).await? {
                    return Ok(changed.render(view));
                }
            }
        })
        .await
    };
    answer(Dialect::Anthropic, changed.await)
}

/// Deletes a memory. Its versions stay.
#[utoipa::path(delete, path = "/v1/memory_stores/{id}/memories/{memory_id}", tag = "v1", operation_id = "delete_memory",
    security(("token" = [])), params(("id" = String, Path, description = "The memory store."),
        ("memory_id" = String, Path, description = "The memory."),
        ("expected_content_sha256" = Option<String>, Query, description = "Delete it only if its text has this digest.")), responses(
    (status = 200, description = "It is deleted.", body = schemas::DeletedObject),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such memory in this store of the app.", body = schemas::VendorError),
    (status = 409, description = "The text has another digest.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    ids: Called<ApiPath<(String, String)>>,
    query: Called<Query>,
) -> Response {
    let deleted = async {
        let (Caller(app), ApiPath((store_id, id)), query) = (caller?, ids?, query?);
        let expected = query.get("expected_content_sha256").map(str::to_owned);
        let change_gateway = gateway.clone();
        uninterrupted(&gateway, async move {
            let (gateway, app) = (&change_gateway, &app.name);
            let _changing = gateway.catalog.lock_memories(app).await;
            loop {
                let mut memory = stored::find(gateway, app, &store_id, &id).await?;
                let newest = memory.document.newest().clone();
                check_digest(expected.as_deref(), newest.content.as_deref().unwrap_or_default())?;
                // The notes are forgotten first: a deletion that fails can be repeated.
                let records = memory.document.record_ids();
                notes::forget(gateway, app, records).await.map_err(ApiError::from)?;
                let path = newest.path.unwrap_or_default();
                memory.document.add(MemoryVersion::new(Operation::Deleted, path, None));
                if memory.replace(gateway, app).await? {
                    return Ok(json!({"id": id, "type": "memory_deleted"}));
                }
            }
        })
        .await
    };
    answer(Dialect::Anthropic, deleted.await)
}

/// Stores a new memory, unless another process has stored one at its path at the same time.
async fn create_alone(
    gateway: &Gateway,
    app: &AppName,
    memory: &StoredMemory,
) -> Result<(), Problem> {
    memory.create(gateway, app).await?;
    let all = stored::all(gateway, app).await?;
    // The older one stays.
    let order = |memory: &StoredMemory| (memory.created_at, memory.id.clone());
    let older: Vec<StoredMemory> =
        all.into_iter().filter(|other| order(other) < order(memory)).collect();
    let path = memory.document.path().unwrap_or_default();
    let checked = check_free(&older, &memory.document.store_id, path, None);
    if checked.is_err() {
        memory.delete(gateway, app).await?;
    }
    checked
}

/// Changes a memory as a request says. Returns nothing if another process has changed it meanwhile.
async fn change(
    gateway: &Gateway,
    app: &AppName,
    mut memory: StoredMemory,
    body: &MemoryChangeBody,
) -> Result<Option<StoredMemory>, Problem> {
    let old = memory.document.newest().clone();
    let (old_path, old_content) = (old.path.unwrap_or_default(), old.content.unwrap_or_default());
    if let Some(Precondition::ContentSha256 { content_sha256 }) = &body.precondition {
        check_digest(content_sha256.as_deref(), &old_content)?;
    }
    let path = body.path.clone().unwrap_or(old_path.clone());
    let content = body.content.clone().unwrap_or(old_content.clone());
    if (&path, &content) == (&old_path, &old_content) {
        return Ok(Some(memory));
    }
    let store_id = memory.document.store_id.clone();
    let all = stored::all(gateway, app).await?;
    check_free(&all, &store_id, &path, Some(&memory.id))?;
    stored::make_room(gateway, app, &all, content.len()).await?;
    let mut version = MemoryVersion::new(Operation::Modified, path, Some(content));
    let note = notes::remember(gateway, app, &store_id, &version).await;
    let note = note.map_err(ApiError::from)?;
    version.record_id = Some(note.clone());
    let older = memory.document.record_ids();
    memory.document.add(version);
    let replaced = memory.replace(gateway, app).await;
    let is_replaced = matches!(replaced, Ok(true));
    // Recall finds the text that is stored, and not the other one.
    let others = if is_replaced { older } else { vec![note] };
    notes::forget(gateway, app, others).await.map_err(ApiError::from)?;
    replaced?;
    Ok(is_replaced.then_some(memory))
}

/// Refuses a path that another memory of a store has.
fn check_free(
    all: &[StoredMemory],
    store_id: &str,
    path: &str,
    own_id: Option<&str>,
) -> Result<(), Problem> {
    let is_taken = all.iter().any(|memory| {
        memory.document.store_id == store_id
            && memory.document.path() == Some(path)
            && own_id != Some(memory.id.as_str())
    });
    match is_taken {
        true => Err(Problem::path_taken(format!("path: {path:?} has a memory already"))),
        false => Ok(()),
    }
}

fn check_digest(expected: Option<&str>, content: &str) -> Result<(), Problem> {
    match expected.is_none_or(|expected| expected == sha256(content)) {
        true => Ok(()),
        false => Err(Problem::precondition_failed(
            "content_sha256: the memory has another text; read it again",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_paths_become_folders() {
        assert_eq!(folder_at_depth("a/b/c.md", 0), None);
        assert_eq!(folder_at_depth("a/b/c.md", 1), Some("a/"));
        assert_eq!(folder_at_depth("a/b/c.md", 2), Some("a/b/"));
        assert_eq!(folder_at_depth("a/b/c.md", 3), None);
        assert_eq!(folder_at_depth("c.md", 1), None);
    }
}
