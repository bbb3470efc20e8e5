//! Create, list, read and close sessions.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{Json, Response};
use hob_agents::client_tools::ClientTool;
use hob_agents::mcp_servers::unknown_field;
use hob_domain::AgentName;
use hob_domain::session::Permissions;
use hob_sessions::session::NewSession;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::list::{ListQuery, send_list};
use super::shapes::{CreateBody, PermissionsWord, SessionAnswer, SessionList};
use crate::client_tool::{check_names, client_tool};
use crate::error::{ApiError, ErrorBody};
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::{ApiPath, ApiQuery};
use crate::extract::session_id::session_id;
use crate::state::Gateway;

/// The fields of a tool that the app runs itself.
const TOOL_FIELDS: [&str; 3] = ["name", "description", "input_schema"];

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true}))]
pub(crate) struct Closed {
    /// Always `true`.
    ok: bool,
    /// Present and `true` if the session was closed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    already_closed: Option<bool>,
}

/// Creates a session.
///
/// Hob starts the agent at once, so that it is warm for the first turn.
#[utoipa::path(post, path = "/sessions", tag = "sessions", operation_id = "create_session", request_body = CreateBody,
    security(("token" = [])), responses(
    (status = 200, description = "The session.", body = SessionAnswer),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 408, description = "The body did not arrive in time.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 429, description = "The app's session limit is reached; see Retry-After.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
    (status = 503, description = "`sessions.max_live` is reached; see Retry-After.", body = ErrorBody),
))]
pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    Caller(app): Caller,
    JsonBody(body): JsonBody<CreateBody>,
) -> Result<Json<SessionAnswer>, ApiError> {
    let (agent, _) = gateway.agent(&body.agent)?;
    let session = gateway.sessions.create(&app.name, new_session(agent, body)?).await?;
    Ok(Json(SessionAnswer::new(&gateway, session)))
}

/// Reads what a request asks for.
pub(crate) fn new_session(agent: AgentName, body: CreateBody) -> Result<NewSession, ApiError> {
    for (field, value) in [("model", &body.model), ("system", &body.system)] {
        if value.as_ref().is_some_and(|value| value.is_empty() || value.contains('\0')) {
            return Err(ApiError::bad_request(format!(
                "{field}: must not be empty or contain NUL"
            )));
        }
    }
    let tools = body.tools.as_deref().unwrap_or_default().iter().enumerate();
    let tools: Vec<ClientTool> = tools
        .map(|(index, tool)| session_tool(tool, &format!("tools[{index}]")))
        .collect::<Result<_, _>>()?;
    check_names(&tools)?;
    Ok(NewSession {
        agent,
        meta: Value::Object(body.meta.unwrap_or_default()),
        cwd: body.cwd,
        model: body.model,
        system: body.system,
        permissions: match body.permissions {
            None | Some(PermissionsWord::Deny) => Permissions::Deny,
            Some(PermissionsWord::Ask) => Permissions::Ask,
            Some(PermissionsWord::Allow) => Permissions::Allow,
        },
        mcp_servers: body.mcp_servers.unwrap_or_default(),
        client_tools: tools,
    })
}

/// Reads a tool that the app runs itself.
fn session_tool(tool: &Value, place: &str) -> Result<ClientTool, ApiError> {
    if let Some(field) = unknown_field(tool, &TOOL_FIELDS) {
        return Err(ApiError::bad_request(format!("{place}.{field}: unknown field")));
    }
    client_tool(tool, "input_schema", place)
}

/// Lists this app's sessions, oldest first, including closed ones until they are deleted.
///
/// `limit` and `after` ask for a page; its `next` is the `after` of the page after it. Without `limit`, all sessions are listed.
#[utoipa::path(get, path = "/sessions", tag = "sessions", operation_id = "list_sessions", security(("token" = [])),
    params(("limit" = Option<usize>, Query, description = "Maximum number of sessions."),
        ("after" = Option<String>, Query, description = "The last session of the page before.")), responses(
    (status = 200, description = "The sessions.", body = SessionList),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    Caller(app): Caller,
    ApiQuery(query): ApiQuery<ListQuery>,
) -> Result<Response, ApiError> {
    send_list(gateway, Some(app.name), &query).await
}

/// Returns a session.
#[utoipa::path(get, path = "/sessions/{id}", tag = "sessions", operation_id = "get_session", security(("token" = [])),
    params(("id" = String, Path, description = "The session.")), responses(
    (status = 200, description = "The session.", body = SessionAnswer),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such session of this app.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    Caller(app): Caller,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<SessionAnswer>, ApiError> {
    let session = gateway.sessions.get(&app.name, &session_id(&id)?).await?;
    Ok(Json(SessionAnswer::new(&gateway, session)))
}

/// Closes a session: cancels its running turn and ends its agent. The log stays until `hard_ttl_secs`.
#[utoipa::path(delete, path = "/sessions/{id}", tag = "sessions", operation_id = "close_session", security(("token" = [])),
    params(("id" = String, Path, description = "The session.")), responses(
    (status = 200, description = "The session is closed.", body = Closed),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such session of this app.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn close(
    State(gateway): State<Arc<Gateway>>,
    Caller(app): Caller,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<Closed>, ApiError> {
    let now = gateway.sessions.close(&app.name, &session_id(&id)?).await?;
    Ok(Json(Closed { ok: true, already_closed: (!now).then_some(true) }))
}
