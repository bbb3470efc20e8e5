//! `/v1/agents`: a path that both vendors' APIs have. The `anthropic-version` header tells them apart.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::Value;

use super::cursor::Query;
use super::respond::{Called, answer, answer_noting};
use super::{agents, anthropic, openai};
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::routes::v1::dialect::Dialect;
use crate::routes::v1::ignored::IgnoredFields;
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// Creates an agent.
#[utoipa::path(post, path = "/v1/agents", tag = "v1", operation_id = "create_agent", security(("token" = [])),
    request_body = schemas::AgentRequestBody, responses(
    (status = 200, description = "The agent, in OpenAI's shape, or in Anthropic's if `anthropic-version` is sent.", body = schemas::AgentObject),
    (status = 400, description = "Invalid request; the error names the field.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 413, description = "The body is too large.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    caller: Called<Caller>,
    request: Request,
) -> Response {
    let dialect = Dialect::of(&headers);
    let created = async {
        let Caller(app) = caller?;
        let JsonBody(body) = JsonBody::<Value>::from_request(request, &gateway).await?;
        let ignored = ignored(dialect, &body);
        let agent = match dialect {
            Dialect::Anthropic => anthropic::agents::create(&gateway, &app.name, body).await?,
            Dialect::OpenAi => openai::agents::create(&gateway, &app.name, body).await?,
        };
        Ok((agent, ignored))
    };
    answer_noting(dialect, created.await)
}

/// Lists this app's agents.
#[utoipa::path(get, path = "/v1/agents", tag = "v1", operation_id = "list_agents", security(("token" = [])),
    params(("limit" = Option<u32>, Query, description = "At most this many, from 1 to 1000."),
        ("page" = Option<String>, Query, description = "Anthropic: `next_page` of the page before."),
        ("after" = Option<String>, Query, description = "OpenAI: the last agent of the page before."),
        ("order" = Option<String>, Query, description = "OpenAI: `desc` (the default) or `asc`."),
        ("include_archived" = Option<bool>, Query, description = "Anthropic: also list archived ones."),
        ("created_at[gte]" = Option<String>, Query, description = "Anthropic: only agents from this time on; also `lte`.")), responses(
    (status = 200, description = "The agents, newest first.", body = schemas::ObjectPage),
    (status = 400, description = "Invalid query; the error names the parameter.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    caller: Called<Caller>,
    query: Called<Query>,
) -> Response {
    let dialect = Dialect::of(&headers);
    let listed = async {
        let (Caller(app), query) = (caller?, query?);
        Ok(match dialect {
            Dialect::Anthropic => anthropic::agents::list(&gateway, &app.name, &query).await?,
            Dialect::OpenAi => openai::agents::list(&gateway, &app.name, &query).await?,
        })
    };
    answer(dialect, listed.await)
}

/// Returns an agent.
#[utoipa::path(get, path = "/v1/agents/{id}", tag = "v1", operation_id = "get_agent", security(("token" = [])),
    params(("id" = String, Path, description = "The agent."),
        ("version" = Option<usize>, Query, description = "Anthropic: this version instead of the newest one.")), responses(
    (status = 200, description = "The agent.", body = schemas::AgentObject),
    (status = 400, description = "Invalid query; the error names the parameter.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such agent of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
    query: Called<Query>,
) -> Response {
    let dialect = Dialect::of(&headers);
    let found = async {
        let (Caller(app), ApiPath(id), query) = (caller?, id?, query?);
        Ok(match dialect {
            Dialect::Anthropic => anthropic::agents::get(&gateway, &app.name, &id, &query).await?,
            Dialect::OpenAi => {
                // OpenAI's agents have no versions, but a number that is none is an error for both.
                anthropic::agents::wanted_version(&query)?;
                openai::agents::get(&gateway, &app.name, &id).await?
            }
        })
    };
    answer(dialect, found.await)
}

/// Changes an agent. Its sessions keep the version that they were created with.
#[utoipa::path(post, path = "/v1/agents/{id}", tag = "v1", operation_id = "update_agent", security(("token" = [])),
    params(("id" = String, Path, description = "The agent.")), request_body = schemas::AgentRequestBody, responses(
    (status = 200, description = "The agent's new version.", body = schemas::AgentObject),
    (status = 400, description = "Invalid request; the error names the field.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such agent of this app.", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 413, description = "The body is too large.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn update(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
    request: Request,
) -> Response {
    let dialect = Dialect::of(&headers);
    let changed = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        agents::find(&gateway, &app.name, &id).await?;
        let JsonBody(body) = JsonBody::<Value>::from_request(request, &gateway).await?;
        let ignored = ignored(dialect, &body);
        let agent = match dialect {
            Dialect::Anthropic => anthropic::agents::update(&gateway, &app.name, &id, body).await?,
            Dialect::OpenAi => openai::agents::update(&gateway, &app.name, &id, body).await?,
        };
        Ok((agent, ignored))
    };
    answer_noting(dialect, changed.await)
}

/// Returns the fields of an agent that have no effect.
fn ignored(dialect: Dialect, agent: &Value) -> IgnoredFields {
    let mut ignored = IgnoredFields::default();
    match dialect {
        Dialect::Anthropic => anthropic::agents::add_ignored(agent, "", &mut ignored),
        Dialect::OpenAi => openai::agents::add_ignored(agent, "", &mut ignored),
    }
    ignored
}

/// Deletes an agent. Its sessions go on.
#[utoipa::path(delete, path = "/v1/agents/{id}", tag = "v1", operation_id = "delete_agent", security(("token" = [])),
    params(("id" = String, Path, description = "The agent.")), responses(
    (status = 200, description = "It is deleted.", body = schemas::DeletedObject),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such agent of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
) -> Response {
    let deleted = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        Ok(openai::agents::delete(&gateway, &app.name, &id).await?)
    };
    answer(Dialect::of(&headers), deleted.await)
}

/// Archives an agent: no new session can use it.
#[utoipa::path(post, path = "/v1/agents/{id}/archive", tag = "v1", operation_id = "archive_agent", security(("token" = [])),
    params(("id" = String, Path, description = "The agent.")), responses(
    (status = 200, description = "The agent.", body = schemas::AgentObject),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such agent of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn archive(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
) -> Response {
    let archived = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        Ok(anthropic::agents::archive(&gateway, &app.name, &id).await?)
    };
    answer(Dialect::Anthropic, archived.await)
}

/// Lists the versions of an agent.
#[utoipa::path(get, path = "/v1/agents/{id}/versions", tag = "v1", operation_id = "list_agent_versions", security(("token" = [])),
    params(("id" = String, Path, description = "The agent."),
        ("limit" = Option<u32>, Query, description = "At most this many, from 1 to 1000."),
        ("page" = Option<String>, Query, description = "`next_page` of the page before.")), responses(
    (status = 200, description = "The versions, newest first.", body = schemas::ObjectPage),
    (status = 400, description = "Invalid query; the error names the parameter.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such agent of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn versions(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
    query: Called<Query>,
) -> Response {
    let listed = async {
        let (Caller(app), ApiPath(id), query) = (caller?, id?, query?);
        Ok(anthropic::agents::versions(&gateway, &app.name, &id, &query).await?)
    };
    answer(Dialect::Anthropic, listed.await)
}
