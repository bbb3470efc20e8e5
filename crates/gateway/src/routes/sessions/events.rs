//! `GET /sessions/{id}/events`: the durable log.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Json, Response};
use hob_domain::AppName;
use hob_domain::session::{EventRange, SessionId};
use serde::Deserialize;
use tokio::time::Instant;

use super::shapes::{EventList, EventView};
use super::stream;
use crate::error::{ApiError, ErrorBody};
use crate::extract::caller::Caller;
use crate::extract::path_and_query::{ApiPath, ApiQuery};
use crate::extract::session_id::session_id;
use crate::state::Gateway;

/// Maximum number of events per response.
const PAGE: usize = 10_000;

#[derive(Deserialize)]
pub(crate) struct After {
    pub(crate) after: Option<String>,
}

/// The part of a log that the owner requests.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    pub(crate) after: Option<String>,
    pub(crate) before: Option<u64>,
    limit: Option<usize>,
}

impl Page {
    pub(crate) fn limit(&self) -> usize {
        self.limit.unwrap_or(PAGE).clamp(1, PAGE)
    }
}

/// Returns the session's event log: the agent's messages and audit entries.
///
/// With `Accept: text/event-stream` the log continues live until the session is closed.
/// `Last-Event-ID` resumes an interrupted stream.
#[utoipa::path(get, path = "/sessions/{id}/events", tag = "sessions", operation_id = "list_events", security(("token" = [])),
    params(("id" = String, Path, description = "The session."),
        ("after" = Option<usize>, Query, description = "Return events with a greater number."),
        ("Last-Event-ID" = Option<usize>, Header, description = "Number of the last event received, as browsers send it.")), responses(
    (status = 200, description = "The events.",
        content((EventList = "application/json"), (String = "text/event-stream"))),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such session of this app.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn events(
    State(gateway): State<Arc<Gateway>>,
    Caller(app): Caller,
    ApiPath(id): ApiPath<String>,
    ApiQuery(query): ApiQuery<After>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    respond(gateway, app.name, session_id(&id)?, &query, PAGE, None, &headers).await
}

/// Returns the event log of any session.
pub(crate) async fn respond(
    gateway: Arc<Gateway>,
    app: AppName,
    id: SessionId,
    query: &After,
    limit: usize,
    until: Option<Instant>,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let after = beginning(query, headers)?;
    if stream::is_wanted(headers) {
        return Ok(stream::session(gateway, app, id, after, until).await?.into_response());
    }
    let range = EventRange::After { after, limit };
    let mut events = gateway.sessions.events(&app, &id, range).await?;
    events.truncate(limit);
    let last_event = gateway.sessions.get(&app, &id).await?.last_event;
    let more = events.last().is_some_and(|event| event.seq < last_event);
    let events = events.iter().map(EventView::from).collect();
    Ok(Json(EventList { ok: true, events, more, last_event }).into_response())
}

/// Returns the event number to continue after: the greater one if the query and the header have one each, because a
/// browser that reconnects sends its first address again. A malformed value is refused even if it is not used.
pub(crate) fn beginning(query: &After, headers: &HeaderMap) -> Result<u64, ApiError> {
    let last = stream::last_event_id(headers)?;
    match &query.after {
        None => Ok(last),
        Some(text) => {
            let refused = |_| ApiError::bad_request("after: must be the number of an event");
            text.parse().map(|after: u64| after.max(last)).map_err(refused)
        }
    }
}

/// Returns the last events of any session with smaller numbers.
pub(crate) async fn respond_before(
    gateway: &Gateway,
    app: &AppName,
    id: &SessionId,
    before: u64,
    limit: usize,
) -> Result<Response, ApiError> {
    let last_event = gateway.sessions.get(app, id).await?.last_event;
    let range = EventRange::Before { before, limit };
    let events = gateway.sessions.events(app, id, range).await?;
    let more = events.last().is_some_and(|event| event.seq < last_event);
    let events = events.iter().map(EventView::from).collect();
    Ok(Json(EventList { ok: true, events, more, last_event }).into_response())
}
