//! `/admin/sessions` turns: the owner's own sessions, and prompts in sessions of apps.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Json;
use hob_domain::session::{SessionTurn, TurnState};
use hob_domain::{AppName, Timestamp};
use hob_sessions::session::TurnSubmission;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::sessions::whose;
use crate::audit_log;
use crate::error::{ApiError, ErrorBody};
use crate::extract::body::JsonBody;
use crate::extract::caller::{Admin, Caller};
use crate::extract::path_and_query::{ApiPath, ApiQuery};
use crate::routes::sessions::control::{PermissionAnswer, PermissionBody};
use crate::routes::sessions::shapes::{CreateBody, SessionAnswer, TurnTaken, UsageView};
use crate::state::Gateway;

/// Default and maximum number of turns per response.
const PAGE: usize = 50;
const MAX_PAGE: usize = 500;

/// A request for a turn.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"prompt": "say hello"}))]
pub(crate) struct Prompt {
    /// The prompt.
    #[schema(min_length = 1)]
    prompt: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    before: Option<u32>,
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct TurnList {
    /// Always `true`.
    ok: bool,
    /// Oldest first.
    turns: Vec<TurnView>,
    /// Whether earlier turns exist.
    more: bool,
}

/// A turn without its events.
#[derive(Serialize, ToSchema)]
pub(crate) struct TurnView {
    turn_index: u32,
    #[schema(value_type = String)]
    state: TurnState,
    /// The prompt.
    prompt: String,
    stop_reason: Option<String>,
    error: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    queued_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
    usage: UsageView,
}

impl From<SessionTurn> for TurnView {
    fn from(turn: SessionTurn) -> TurnView {
        TurnView {
            turn_index: turn.index,
            state: turn.state,
            prompt: turn.rendered_prompt(),
            stop_reason: turn.stop_reason,
            error: turn.error,
            queued_at: turn.queued_at,
            started_at: turn.started_at,
            ended_at: turn.ended_at,
            usage: turn.usage.into(),
        }
    }
}

/// Creates a session of the owner.
#[utoipa::path(post, path = "/admin/sessions", tag = "admin", operation_id = "create_own_session", request_body = CreateBody,
    security(("token" = [])), responses(
    (status = 200, description = "The session.", body = SessionAnswer),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 408, description = "The body did not arrive in time.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 429, description = "The owner's session limit is reached; see Retry-After.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
    (status = 503, description = "`sessions.max_live` is reached; see Retry-After.", body = ErrorBody),
))]
pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    JsonBody(body): JsonBody<CreateBody>,
) -> Result<Json<SessionAnswer>, ApiError> {
    let owner = Caller::on_behalf_of(AppName::owner());
    let answer =
        crate::routes::sessions::manage::create(State(gateway.clone()), owner, JsonBody(body))
            .await?;
    let session = &answer.session;
    let detail = json!({"agent": session.agent});
    audit_log::record(&gateway, "session_create", &session.session_id, detail).await;
    Ok(answer)
}

/// Prompts any session on behalf of its app. Answers at once; the turn continues.
#[utoipa::path(post, path = "/admin/sessions/{id}/turn", tag = "admin", operation_id = "ask_any", request_body = Prompt,
    security(("token" = [])), params(("id" = String, Path, description = "The session.")), responses(
    (status = 202, description = "The turn is queued or running.", body = TurnTaken),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such session.", body = ErrorBody),
    (status = 408, description = "The body did not arrive in time.", body = ErrorBody),
    (status = 410, description = "The session is closed.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 429, description = "The queue is full, or the app has used up its quota; see Retry-After.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
    (status = 503, description = "Hob is stopping.", body = ErrorBody),
))]
pub(crate) async fn turn(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiPath(id): ApiPath<String>,
    JsonBody(body): JsonBody<Prompt>,
) -> Result<(StatusCode, Json<TurnTaken>), ApiError> {
    if body.prompt.trim().is_empty() {
        return Err(ApiError::bad_request("prompt: must not be empty"));
    }
    let (app, id) = whose(&gateway, &id).await?;
    let ask = TurnSubmission { prompt: body.prompt, files: Vec::new(), idempotency: None };
    let turn_index = gateway.sessions.submit(&app, &id, ask).await?;
    audit_log::record(&gateway, "session_turn", id.as_str(), json!({"turn_index": turn_index}))
        .await;
    let state = gateway.sessions.turn(&app, &id, turn_index).await?.state;
    let taken = TurnTaken { ok: true, session_id: id.to_string(), turn_index, state };
    Ok((StatusCode::ACCEPTED, Json(taken)))
}

/// Lists the turns of any session with their prompts. Default: the latest turns.
#[utoipa::path(get, path = "/admin/sessions/{id}/turns", tag = "admin", operation_id = "list_any_turns", security(("token" = [])),
    params(("id" = String, Path, description = "The session."),
        ("before" = Option<u32>, Query, description = "Return turns with a smaller number."),
        ("limit" = Option<usize>, Query, description = "Maximum number of turns. Default: 50. Maximum: 500.")), responses(
    (status = 200, description = "The turns in order.", body = TurnList),
    (status = 400, description = "Invalid query; the error names the parameter.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such session.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn turns(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiPath(id): ApiPath<String>,
    ApiQuery(which): ApiQuery<Which>,
) -> Result<Json<TurnList>, ApiError> {
    let (app, id) = whose(&gateway, &id).await?;
    let limit = which.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let before = which.before.unwrap_or(u32::MAX);
    let turns = gateway.sessions.turns_before(&app, &id, before, limit).await?;
    let more = turns.first().is_some_and(|turn| turn.index > 1);
    let turns = turns.into_iter().map(TurnView::from).collect();
    Ok(Json(TurnList { ok: true, turns, more }))
}

/// Answers an agent's permission request in any session.
#[utoipa::path(post, path = "/admin/sessions/{id}/permissions/{request_id}", tag = "admin", operation_id = "answer_any_permission",
    security(("token" = [])), request_body = PermissionBody,
    params(("id" = String, Path, description = "The session."),
        ("request_id" = String, Path, description = "`request_id` of the permission event.")), responses(
    (status = 200, description = "The answer was passed to the agent.", body = PermissionAnswer),
    (status = 400, description = "Invalid request, the agent offers no such option, or the fields do not fit the form.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such session, or no such pending request.", body = ErrorBody),
    (status = 408, description = "The body did not arrive in time.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn permit(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiPath((id, request)): ApiPath<(String, String)>,
    JsonBody(body): JsonBody<PermissionBody>,
) -> Result<Json<PermissionAnswer>, ApiError> {
    let (app, id) = whose(&gateway, &id).await?;
    gateway.sessions.answer(&app, &id, &request, &body.option, body.content, None).await?;
    let detail = json!({"request_id": request, "option": body.option});
    audit_log::record(&gateway, "permission", id.as_str(), detail).await;
    Ok(Json(PermissionAnswer { ok: true }))
}
