//! `/v1/environments`: names for the place where sessions run. All of them are this machine.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::response::Response;
use hob_domain::{AppName, DocumentKind, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::agent_catalog::CatalogEntry;
use crate::error::ApiError;
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::routes::v1::agent_sessions::body::present;
use crate::routes::v1::agent_sessions::cursor::{Query, anthropic_page};
use crate::routes::v1::agent_sessions::respond::{Called, answer, time};
use crate::routes::v1::dialect::Dialect;
use crate::routes::v1::metadata;
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// An environment, or changes of one.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "here"}))]
pub(crate) struct EnvironmentBody {
    /// A new environment needs one.
    name: Option<String>,
    /// What the environment is to be. All environments are this machine; a limited network and packages are refused.
    #[schema(value_type = Option<Value>)]
    config: Option<Value>,
    /// A description that is null is cleared, one that is absent stays.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    description: Option<Option<String>>,
    /// Texts under keys.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
    scope: Option<String>,
}

/// Creates an environment.
#[utoipa::path(post, path = "/v1/environments", tag = "v1", operation_id = "create_environment", security(("token" = [])),
    request_body = EnvironmentBody, responses(
    (status = 200, description = "The environment.", body = schemas::EnvironmentObject),
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
        let JsonBody(body) = JsonBody::<EnvironmentBody>::from_request(request, &gateway).await?;
        check_scope(body.scope.as_deref())?;
        let name = body.name.clone().filter(|name| !name.trim().is_empty());
        let name = name.ok_or_else(|| ApiError::bad_request("name: must not be empty"))?;
        let metadata = body.metadata.unwrap_or_default();
        metadata::check_texts(&metadata)?;
        let stored = json!({"name": name, "config": config(body.config.as_ref())?,
            "description": body.description.flatten(), "metadata": metadata, "archived_at": null,
            "updated_at": time(Timestamp::now()), "scope": body.scope});
        let kind = DocumentKind::Environment;
        let entry = gateway.catalog.create(&app.name, kind, "env", stored).await?;
        Ok(environment(&entry))
    };
    answer(Dialect::Anthropic, created.await)
}

/// Lists the environments.
#[utoipa::path(get, path = "/v1/environments", tag = "v1", operation_id = "list_environments", security(("token" = [])),
    params(("limit" = Option<u32>, Query, description = "At most this many, from 1 to 1000."),
        ("page" = Option<String>, Query, description = "`next_page` of the page before."),
        ("include_archived" = Option<bool>, Query, description = "Also list archived ones.")), responses(
    (status = 200, description = "The environments, newest first.", body = schemas::ObjectPage),
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
        let entries = gateway.catalog.list(&app.name, DocumentKind::Environment).await?;
        let with_archived = query.is_set("include_archived")?;
        let is_shown = |entry: &&CatalogEntry| entry.body["archived_at"].is_null() || with_archived;
        let shown = entries.iter().rev().filter(is_shown).map(environment).collect();
        Ok(anthropic_page(shown, &query)?)
    };
    answer(Dialect::Anthropic, listed.await)
}

/// Returns an environment.
#[utoipa::path(get, path = "/v1/environments/{id}", tag = "v1", operation_id = "get_environment", security(("token" = [])),
    params(("id" = String, Path, description = "The environment.")), responses(
    (status = 200, description = "The environment.", body = schemas::EnvironmentObject),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such environment of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
) -> Response {
    let found = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        Ok(environment(&find(&gateway, &app.name, &id).await?))
    };
    answer(Dialect::Anthropic, found.await)
}

/// Changes an environment.
#[utoipa::path(post, path = "/v1/environments/{id}", tag = "v1", operation_id = "update_environment", security(("token" = [])),
    params(("id" = String, Path, description = "The environment.")), request_body = EnvironmentBody, responses(
    (status = 200, description = "The environment.", body = schemas::EnvironmentObject),
    (status = 400, description = "Invalid request; the error names the field.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such environment of this app.", body = schemas::VendorError),
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
        find(&gateway, &app.name, &id).await?;
        let JsonBody(body) = JsonBody::<EnvironmentBody>::from_request(request, &gateway).await?;
        check_scope(body.scope.as_deref())?;
        let config = body.config.as_ref().map(|value| config(Some(value))).transpose()?;
        let apply = |stored: &mut Value| {
            if !stored["archived_at"].is_null() {
                return Err(ApiError::bad_request("the environment is archived"));
            }
            if let Some(name) = body.name {
                stored["name"] = json!(name);
            }
            if let Some(description) = body.description {
                stored["description"] = json!(description);
            }
            if let Some(config) = config {
                stored["config"] = config;
            }
            if let Some(metadata) = stored["metadata"].as_object_mut() {
                let mut changes = body.metadata.unwrap_or_default();
                // An empty text removes a key here, as null does.
                for value in changes.values_mut().filter(|value| value.as_str() == Some("")) {
                    *value = Value::Null;
                }
                metadata::merge(metadata, changes)?;
            }
            stored["updated_at"] = json!(time(Timestamp::now()));
            Ok(())
        };
        let kind = DocumentKind::Environment;
        let entry = gateway.catalog.change(&app.name, kind, &id, apply).await?;
        Ok(environment(&entry.ok_or_else(|| missing(&id))?))
    };
    answer(Dialect::Anthropic, changed.await)
}

/// Archives an environment: no new session can use it.
#[utoipa::path(post, path = "/v1/environments/{id}/archive", tag = "v1", operation_id = "archive_environment",
    security(("token" = [])), params(("id" = String, Path, description = "The environment.")), responses(
    (status = 200, description = "The environment.", body = schemas::EnvironmentObject),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such environment of this app.", body = schemas::VendorError),
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
                stored["archived_at"] = json!(time(Timestamp::now()));
            }
            Ok(())
        };
        let kind = DocumentKind::Environment;
        let entry = gateway.catalog.change(&app.name, kind, &id, apply).await?;
        Ok(environment(&entry.ok_or_else(|| missing(&id))?))
    };
    answer(Dialect::Anthropic, archived.await)
}

/// Deletes an environment. Its sessions go on.
#[utoipa::path(delete, path = "/v1/environments/{id}", tag = "v1", operation_id = "delete_environment",
    security(("token" = [])), params(("id" = String, Path, description = "The environment.")), responses(
    (status = 200, description = "It is deleted.", body = schemas::DeletedObject),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such environment of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
) -> Response {
    let deleted = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        match gateway.catalog.delete(&app.name, DocumentKind::Environment, &id).await? {
            true => Ok(json!({"id": id, "type": "environment_deleted"})),
            false => Err(missing(&id).into()),
        }
    };
    answer(Dialect::Anthropic, deleted.await)
}

/// Returns an environment of an app.
pub(super) async fn find(
    gateway: &Gateway,
    app: &AppName,
    id: &str,
) -> Result<CatalogEntry, ApiError> {
    let found = gateway.catalog.find(app, DocumentKind::Environment, id).await?;
    found.ok_or_else(|| missing(id))
}

fn missing(id: &str) -> ApiError {
    ApiError::NotFound(format!("no environment {id:?}"))
}

fn environment(entry: &CatalogEntry) -> Value {
    let mut environment = entry.body.clone();
    environment["id"] = json!(entry.id);
    environment["type"] = json!("environment");
    environment["created_at"] = json!(time(entry.created_at));
    if environment["scope"].is_null() {
        environment["scope"] = json!("organization");
    }
    environment
}

/// Checks who sees an environment: all callers of the app.
fn check_scope(scope: Option<&str>) -> Result<(), ApiError> {
    match scope {
        None | Some("organization") => Ok(()),
        Some(_) => Err(ApiError::bad_request("scope: must be organization")),
    }
}

/// Checks a configuration. Agents run on this machine, with its packages and its network.
fn config(config: Option<&Value>) -> Result<Value, ApiError> {
    let wrong = |text: &str| Err(ApiError::bad_request(text));
    let config = config.cloned().unwrap_or_default();
    match config["type"].as_str() {
        Some("self_hosted") => return Ok(json!({"type": "self_hosted"})),
        Some("cloud") => {}
        None if config.is_null() => {}
        _ => return wrong("config.type: must be cloud or self_hosted"),
    }
    let known = ["type", "networking", "packages"];
    let mut fields = config.as_object().into_iter().flatten();
    if let Some((field, _)) = fields.find(|(field, _)| !known.contains(&field.as_str())) {
        return wrong(&format!("config.{field}: unknown field"));
    }
    if !matches!(config["networking"]["type"].as_str(), None | Some("unrestricted")) {
        return wrong("config.networking: Hob does not limit the network of an environment");
    }
    let managers = ["apt", "cargo", "gem", "go", "npm", "pip"];
    let is_named =
        |name: &&str| config["packages"][*name].as_array().is_some_and(|list| !list.is_empty());
    if managers.iter().any(is_named) {
        return wrong(
            "config.packages: Hob installs no packages; agents use those of this machine",
        );
    }
    let none: Map<String, Value> =
        managers.iter().map(|name| (name.to_string(), json!([]))).collect();
    Ok(json!({"type": "cloud", "networking": {"type": "unrestricted"}, "packages": none}))
}
