//! `GET /sessions/{id}/events`: the durable log.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Json, Response};
use hob_domain::AppName;
use hob_domain::session::SessionId;
use serde::Deserialize;

use super::session_id;
use super::shapes::{EventList, EventView};
use super::stream;
use crate::auth::Caller;
use crate::error::{ApiError, ErrorBody};
use crate::parts::{ApiPath, ApiQuery};
use crate::state::Gateway;

/// How many events one answer holds at most.
const PAGE: usize = 10_000;

#[derive(Deserialize)]
pub(crate) struct After {
    after: Option<String>,
}

/// The session's log: what its agent said, and what was done with it.
///
/// With `Accept: text/event-stream` it goes on as things happen, until the session is closed;
/// `Last-Event-ID` goes on where a stream was cut.
#[utoipa::path(get, path = "/sessions/{id}/events", tag = "sessions", operation_id = "list_events", security(("token" = [])),
    params(("id" = String, Path, description = "The session."),
        ("after" = Option<u64>, Query, description = "Only events with a greater number."),
        ("Last-Event-ID" = Option<u64>, Header, description = "The same, as browsers send it.")), responses(
    (status = 200, description = "The events.",
        content((EventList = "application/json"), (String = "text/event-stream"))),
    (status = 400, description = "The request is wrong; the error names the field.", body = ErrorBody),
    (status = 401, description = "No token, or a wrong one.", body = ErrorBody),
    (status = 404, description = "There is no such session of this app.", body = ErrorBody),
    (status = 500, description = "Something failed inside Hob.", body = ErrorBody),
))]
pub(crate) async fn events(
    State(gateway): State<Arc<Gateway>>,
    Caller(app): Caller,
    ApiPath(id): ApiPath<String>,
    ApiQuery(query): ApiQuery<After>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    respond(gateway, app.name, session_id(&id)?, &query, &headers).await
}

/// The log of any session.
pub(super) async fn respond(
    gateway: Arc<Gateway>,
    app: AppName,
    id: SessionId,
    query: &After,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let after = match &query.after {
        None => stream::last_event_id(headers)?,
        Some(text) => text
            .parse()
            .map_err(|_| ApiError::bad_request("after: it must be the number of an event"))?,
    };
    if stream::is_wanted(headers) {
        return Ok(stream::session(gateway, app, id, after).await?.into_response());
    }
    let mut events = gateway.sessions.events(&app, &id, after, PAGE + 1).await?;
    let more = events.len() > PAGE;
    events.truncate(PAGE);
    let events = events.iter().map(EventView::from).collect();
    Ok(Json(EventList { ok: true, events, more }).into_response())
}
