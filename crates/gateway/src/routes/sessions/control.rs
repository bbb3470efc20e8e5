//! Cancel a turn; answer permission requests; return results of the app's own tools.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorBody};
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::extract::session_id::session_id;
use crate::state::Gateway;

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "cancelled": true, "turn_index": 3}))]
pub(crate) struct CancelAnswer {
    /// Always `true`.
    ok: bool,
    /// Whether a turn was running.
    cancelled: bool,
    /// The cancelled turn.
    turn_index: Option<u32>,
}

/// An answer to a permission request.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"option": "allow_once"}))]
pub(crate) struct PermissionBody {
    /// One of the options the agent offered: its id, or its kind (`allow_once`, `allow_always`,
    /// `reject_once`, `reject_always`).
    #[schema(min_length = 1)]
    pub(crate) option: String,
    /// The fields of the form, for a request that has one.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub(crate) content: Option<Value>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true}))]
pub(crate) struct PermissionAnswer {
    /// Always `true`.
    pub(crate) ok: bool,
}

/// Cancels the running turn, if any, and keeps the session.
///
/// Answers when the session is idle. Hob ends an agent that does not stop in time; the next turn resumes
/// its conversation.
#[utoipa::path(post, path = "/sessions/{id}/cancel", tag = "sessions", operation_id = "cancel_turn", security(("token" = [])),
    params(("id" = String, Path, description = "The session.")), responses(
    (status = 200, description = "No turn is running.", body = CancelAnswer),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such session of this app.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn cancel(
    State(gateway): State<Arc<Gateway>>,
    Caller(app): Caller,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<CancelAnswer>, ApiError> {
    let outcome = gateway.sessions.cancel(&app.name, &session_id(&id)?).await?;
    Ok(Json(CancelAnswer { ok: true, cancelled: outcome.turn.is_some(), turn_index: outcome.turn }))
}

/// Answers an agent's permission request.
#[utoipa::path(post, path = "/sessions/{id}/permissions/{request_id}", tag = "sessions", operation_id = "answer_permission",
    security(("token" = [])), request_body = PermissionBody,
    params(("id" = String, Path, description = "The session."),
        ("request_id" = String, Path, description = "`request_id` of the permission event.")), responses(
    (status = 200, description = "The answer was passed to the agent.", body = PermissionAnswer),
    (status = 400, description = "Invalid request, the agent offers no such option, or the fields do not fit the form.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such session of this app, or no such pending request.", body = ErrorBody),
    (status = 408, description = "The body did not arrive in time.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn permit(
    State(gateway): State<Arc<Gateway>>,
    Caller(app): Caller,
    ApiPath((id, request)): ApiPath<(String, String)>,
    JsonBody(body): JsonBody<PermissionBody>,
) -> Result<Json<PermissionAnswer>, ApiError> {
    gateway
        .sessions
        .answer(&app.name, &session_id(&id)?, &request, &body.option, body.content, None)
        .await?;
    Ok(Json(PermissionAnswer { ok: true }))
}

/// The result of a call of one of the app's own tools.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"content": "42"}))]
pub(crate) struct ToolResultBody {
    /// A text, or content blocks in Anthropic's format.
    #[schema(value_type = Value)]
    content: Value,
    /// Whether the tool failed.
    #[serde(default)]
    is_error: bool,
}

/// Returns the result of a call of one of the app's own tools to the agent.
#[utoipa::path(post, path = "/sessions/{id}/tool_results/{call_id}", tag = "sessions", operation_id = "return_tool_result",
    security(("token" = [])), request_body = ToolResultBody,
    params(("id" = String, Path, description = "The session."),
        ("call_id" = String, Path, description = "`call_id` of the `tool_call` event.")), responses(
    (status = 200, description = "The result was passed to the agent.", body = PermissionAnswer),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such session of this app, or no such call that waits.", body = ErrorBody),
    (status = 408, description = "The body did not arrive in time.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn return_tool_result(
    State(gateway): State<Arc<Gateway>>,
    Caller(app): Caller,
    ApiPath((id, call)): ApiPath<(String, String)>,
    JsonBody(body): JsonBody<ToolResultBody>,
) -> Result<Json<PermissionAnswer>, ApiError> {
    if !body.content.is_string() && !body.content.is_array() {
        return Err(ApiError::bad_request("content: must be a string or a list of content blocks"));
    }
    let (id, sessions) = (session_id(&id)?, &gateway.sessions);
    sessions.return_tool_result(&app.name, &id, &call, body.content, body.is_error).await?;
    Ok(Json(PermissionAnswer { ok: true }))
}
