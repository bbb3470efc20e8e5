//! The owner's own sessions, and his word in those of apps.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Json;
use hob_domain::session::{SessionTurn, TurnState};
use hob_domain::{AppName, Timestamp};
use hob_sessions::session::TurnAsk;
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

/// How many turns a list holds when nothing is said, and at most.
const PAGE: usize = 50;
const LARGEST_PAGE: usize = 500;

/// A turn that is asked for.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"prompt": "say hello"}))]
pub(crate) struct Prompt {
    /// What the agent is asked.
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
    /// Whether there are more before these.
    more: bool,
}

/// A turn without its events.
#[derive(Serialize, ToSchema)]
pub(crate) struct TurnView {
    turn_index: u32,
    #[schema(value_type = String)]
    state: TurnState,
    /// What the agent was asked.
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
            prompt: turn.prompt,
            stop_reason: turn.stop_reason,
            error: turn.error,
            queued_at: turn.queued_at,
            started_at: turn.started_at,
            ended_at: turn.ended_at,
            usage: turn.usage.into(),
        }
    }
}

/// Makes a session of the owner's own.
#[utoipa::path(post, path = "/admin/sessions", tag = "admin", operation_id = "create_own_session", request_body = CreateBody,
    security(("token" = [])), responses(
    (status = 200, description = "The session.", body = SessionAnswer),
    (status = 400, description = "The request is wrong; the error names the field.", body = ErrorBody),
    (status = 401, description = "No token, or a wrong one.", body = ErrorBody),
    (status = 408, description = "The body did not arrive.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 429, description = "The owner has as many as he may; see Retry-After.", body = ErrorBody),
    (status = 500, description = "Something failed inside Hob.", body = ErrorBody),
    (status = 503, description = "Too many sessions and runs are live; see Retry-After.", body = ErrorBody),
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

/// Asks in any session, on behalf of its app. Answered at once; the turn goes on.
#[utoipa::path(post, path = "/admin/sessions/{id}/turn", tag = "admin", operation_id = "ask_any", request_body = Prompt,
    security(("token" = [])), params(("id" = String, Path, description = "The session.")), responses(
    (status = 202, description = "The turn was taken in and goes on.", body = TurnTaken),
    (status = 400, description = "The request is wrong; the error names the field.", body = ErrorBody),
    (status = 401, description = "No token, or a wrong one.", body = ErrorBody),
    (status = 404, description = "There is no such session.", body = ErrorBody),
    (status = 408, description = "The body did not arrive.", body = ErrorBody),
    (status = 410, description = "The session is closed.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 429, description = "Too many turns wait, or the app has used what it may; see Retry-After.", body = ErrorBody),
    (status = 500, description = "Something failed inside Hob.", body = ErrorBody),
    (status = 503, description = "Hob is stopping.", body = ErrorBody),
))]
pub(crate) async fn turn(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiPath(id): ApiPath<String>,
    JsonBody(body): JsonBody<Prompt>,
) -> Result<(StatusCode, Json<TurnTaken>), ApiError> {
    if body.prompt.trim().is_empty() {
        return Err(ApiError::bad_request("prompt: it is empty"));
    }
    let (app, id) = whose(&gateway, &id).await?;
    let ask = TurnAsk { prompt: body.prompt, idempotency: None };
    let turn_index = gateway.sessions.submit(&app, &id, ask).await?;
    audit_log::record(&gateway, "session_turn", id.as_str(), json!({"turn_index": turn_index}))
        .await;
    let state = gateway.sessions.turn(&app, &id, turn_index).await?.state;
    let taken = TurnTaken { ok: true, session_id: id.to_string(), turn_index, state };
    Ok((StatusCode::ACCEPTED, Json(taken)))
}

/// The turns of any session with what was asked, the latest unless said.
#[utoipa::path(get, path = "/admin/sessions/{id}/turns", tag = "admin", operation_id = "list_any_turns", security(("token" = [])),
    params(("id" = String, Path, description = "The session."),
        ("before" = Option<u32>, Query, description = "Only turns with a smaller number."),
        ("limit" = Option<usize>, Query, description = "How many: 50 unless said, never more than 500.")), responses(
    (status = 200, description = "The turns in order.", body = TurnList),
    (status = 400, description = "The query is wrong.", body = ErrorBody),
    (status = 401, description = "No token, or a wrong one.", body = ErrorBody),
    (status = 404, description = "There is no such session.", body = ErrorBody),
    (status = 500, description = "Something failed inside Hob.", body = ErrorBody),
))]
pub(crate) async fn turns(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiPath(id): ApiPath<String>,
    ApiQuery(which): ApiQuery<Which>,
) -> Result<Json<TurnList>, ApiError> {
    let (app, id) = whose(&gateway, &id).await?;
    let limit = which.limit.unwrap_or(PAGE).clamp(1, LARGEST_PAGE);
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
        ("request_id" = String, Path, description = "The request, as its event names it.")), responses(
    (status = 200, description = "The agent was told.", body = PermissionAnswer),
    (status = 400, description = "The request is wrong, or the agent offers no such option.", body = ErrorBody),
    (status = 401, description = "No token, or a wrong one.", body = ErrorBody),
    (status = 404, description = "There is no such session, or no such request waits.", body = ErrorBody),
    (status = 408, description = "The body did not arrive.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 500, description = "Something failed inside Hob.", body = ErrorBody),
))]
pub(crate) async fn permit(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiPath((id, request)): ApiPath<(String, String)>,
    JsonBody(body): JsonBody<PermissionBody>,
) -> Result<Json<PermissionAnswer>, ApiError> {
    let (app, id) = whose(&gateway, &id).await?;
    gateway.sessions.answer(&app, &id, &request, &body.option).await?;
    let detail = json!({"request_id": request, "option": body.option});
    audit_log::record(&gateway, "permission", id.as_str(), detail).await;
    Ok(Json(PermissionAnswer { ok: true }))
}
