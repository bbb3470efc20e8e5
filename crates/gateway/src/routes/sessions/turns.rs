//! Turns: answered at the end, streamed, or left to run.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use hob_domain::AppName;
use hob_domain::session::{SessionId, SessionTurn, TurnState};
use hob_sessions::session::TurnSubmission;
use tokio_util::sync::CancellationToken;

use super::shapes::{TurnAnswer, TurnBody, TurnTaken};
use super::stream;
use crate::app_requests::RequestSlot;
use crate::error::{ApiError, ErrorBody, failure_code};
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::extract::session_id::session_id;
use crate::held_body::hold;
use crate::idempotency::idempotency;
use crate::state::Gateway;

/// How long a chosen turn may take until it is noted as running.
const TURN_START_DELAY: Duration = Duration::from_millis(500);

/// How long answers may take after running work has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs a turn and answers when it ends.
///
/// With `Accept: text/event-stream` the agent's messages are streamed, each as `event: message` with the
/// session's event number as its id, and last `event: turn` with the turn's answer. With `Prefer:
/// respond-async` it answers 202 at once. A client that disconnects does not end the turn.
#[utoipa::path(post, path = "/sessions/{id}/turn", tag = "sessions", operation_id = "ask", request_body = TurnBody,
    security(("token" = [])),
    params(("id" = String, Path, description = "The session."),
        ("Idempotency-Key" = Option<String>, Header, description = "A repeated request with this key runs nothing and returns the first answer."),
        ("Prefer" = Option<String>, Header, description = "`respond-async` answers 202 at once.")), responses(
    (status = 200, description = "The turn's answer, or its stream.",
        content((TurnAnswer = "application/json"), (String = "text/event-stream"))),
    (status = 202, description = "The turn is queued or running; poll the URL in Location.", body = TurnTaken),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such session of this app.", body = ErrorBody),
    (status = 408, description = "The body did not arrive in time.", body = ErrorBody),
    (status = 409, description = "The Idempotency-Key was used for another request.", body = ErrorBody),
    (status = 410, description = "The session is closed.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 429, description = "The queue is full, or the app has used up its quota; see Retry-After.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
    (status = 502, description = "The agent died, failed, is not installed or could not resume.", body = ErrorBody),
    (status = 503, description = "Hob is stopping, or stopped during the turn.", body = ErrorBody),
    (status = 504, description = "The turn timed out.", body = ErrorBody),
))]
pub(crate) async fn turn(
    State(gateway): State<Arc<Gateway>>,
    Caller(app): Caller,
    ApiPath(id): ApiPath<String>,
    headers: HeaderMap,
    Extension(slot): Extension<RequestSlot>,
    JsonBody(body): JsonBody<TurnBody>,
) -> Result<Response, ApiError> {
    let id = session_id(&id)?;
    if body.prompt.trim().is_empty() {
        return Err(ApiError::bad_request("prompt: must not be empty"));
    }
    let idempotency = idempotency(&headers, &body)?;
    let after = stream::last_event_id(&headers)?;
    // Check the session first: errors about files must not reveal another app's session.
    gateway.sessions.get(&app.name, &id).await?;
    let files = gateway.file_paths(&app.name, body.files.as_deref().unwrap_or_default()).await?;
    let ask = TurnSubmission { prompt: body.prompt, files, idempotency };
    let index = gateway.submit(&app.name, &id, ask, slot.take_body()).await?;
    let place = format!("/sessions/{id}/turns/{index}");
    let mut response = if prefers_async(&headers) {
        let turn = gateway.sessions.turn(&app.name, &id, index).await?;
        let taken = TurnTaken {
            ok: true,
            session_id: id.to_string(),
            turn_index: index,
            state: turn.state,
        };
        let mut response = (StatusCode::ACCEPTED, Json(taken)).into_response();
        set(&mut response, header::LOCATION, &place);
        set(&mut response, HeaderName::from_static("preference-applied"), "respond-async");
        response
    } else if stream::is_wanted(&headers) {
        stream::turn(gateway, app.name, id, index, after).await?.into_response()
    } else {
        let ended = tokio::select! {
            ended = gateway.sessions.turn_ended(&app.name, &id, index) => ended?,
            () = left_for_the_next_start(&gateway, &app.name, &id, index) => {
                let message = format!("Hob is stopping; turn {index} runs after the next start");
                return Err(ApiError::Busy { code: "stopping", message });
            }
        };
        match failure(&ended) {
            Some(error) => error.into_response(),
            None => answer(&gateway, &app.name, &id, ended).await?,
        }
    };
    set(&mut response, header::CONTENT_LOCATION, &place);
    Ok(response)
}

/// Returns a turn's answer, or its state while it runs.
#[utoipa::path(get, path = "/sessions/{id}/turns/{n}", tag = "sessions", operation_id = "get_turn", security(("token" = [])),
    params(("id" = String, Path, description = "The session."),
        ("n" = u32, Path, description = "The turn's number; 1 is the first.")), responses(
    (status = 200, description = "The turn as it is now; `ok` is false if it failed.", body = TurnAnswer),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such turn, or no such session of this app.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    Caller(app): Caller,
    ApiPath((id, index)): ApiPath<(String, String)>,
) -> Result<Response, ApiError> {
    let id = session_id(&id)?;
    let none = || ApiError::NotFound("no such turn".to_owned());
    let index = index.parse().map_err(|_| none())?;
    let turn = gateway.sessions.turn(&app.name, &id, index).await?;
    answer(&gateway, &app.name, &id, turn).await
}

/// Responds with a turn and its messages.
pub(super) async fn answer(
    gateway: &Gateway,
    app: &AppName,
    id: &SessionId,
    turn: SessionTurn,
) -> Result<Response, ApiError> {
    let mut messages = gateway.sessions.turn_messages(app, id, &turn).await?;
    let permit = messages.permit.take();
    let answer = TurnAnswer::new(id.to_string(), turn, messages);
    Ok(hold(Json(answer).into_response(), permit))
}

/// Waits until running work has had time to end.
async fn stopped(ending: &CancellationToken) {
    ending.cancelled().await;
    tokio::time::sleep(LAST_WORDS).await;
}

/// Returns the error of a failed turn.
fn failure(turn: &SessionTurn) -> Option<ApiError> {
    let code = failure_code(turn.state)?;
    let message = turn.error.clone().unwrap_or_else(|| "the turn failed".to_owned());
    Some(ApiError::Turn { code, message })
}

fn prefers_async(headers: &HeaderMap) -> bool {
    let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let mut words = values.flat_map(|value| value.split([',', ';']));
    words.any(|word| word.trim().eq_ignore_ascii_case("respond-async"))
}

/// Returns once Hob stops and leaves the turn for its next start: a queued turn at once, a running one
/// when it has had its time.
async fn left_for_the_next_start(gateway: &Gateway, app: &AppName, id: &SessionId, index: u32) {
    gateway.runtime.stopping.cancelled().await;
    // A turn that was chosen just before is noted as running a moment later.
    tokio::time::sleep(TURN_START_DELAY).await;
    let turn = gateway.sessions.turn(app, id, index).await;
    if !turn.is_ok_and(|turn| turn.state == TurnState::Queued) {
        stopped(&gateway.runtime.ending).await;
    }
}

fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
