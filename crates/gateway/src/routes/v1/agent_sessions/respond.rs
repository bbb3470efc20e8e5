//! Answers of the vendors' session APIs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Json, Response};
use futures_util::{Stream, StreamExt};
use hob_domain::Timestamp;
use serde_json::Value;

use crate::error::ApiError;
use crate::routes::v1::dialect::{Dialect, Problem};
use crate::routes::v1::ignored::IgnoredFields;
use crate::state::Gateway;

/// Interval of keep-alive comments on a quiet stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// An extractor that a handler reads itself, so that errors have the vendor's shape.
pub(super) type Called<T> = Result<T, ApiError>;

/// Renders a time.
pub(super) fn time(at: Timestamp) -> String {
    at.to_string()
}

/// Renders an answer or an error.
pub(super) fn answer(dialect: Dialect, result: Result<Value, Problem>) -> Response {
    match result {
        Ok(value) => Json(value).into_response(),
        Err(problem) => dialect.respond(problem),
    }
}

/// Renders an answer or an error. The answer's header names the fields of the request that had no effect.
pub(super) fn answer_noting(
    dialect: Dialect,
    result: Result<(Value, IgnoredFields), Problem>,
) -> Response {
    match result {
        Ok((value, ignored)) => {
            let mut response = Json(value).into_response();
            ignored.note(&mut response);
            response
        }
        Err(problem) => dialect.respond(problem),
    }
}

/// Runs a change to its end, also if the client disconnects meanwhile.
pub(super) async fn uninterrupted<T, E>(
    gateway: &Arc<Gateway>,
    change: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<ApiError> + Send + 'static,
{
    let changed = gateway.runtime.tasks.spawn(change).await;
    changed.unwrap_or_else(|error| Err(ApiError::Internal(error.to_string()).into()))
}

/// Returns the id of the last event that a client of a stream has received, if it resumes the stream.
pub(super) fn last_event_id(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let id = value.to_str().map(str::trim).map_err(|_| unknown_event())?;
    Ok(Some(id).filter(|id| !id.is_empty()))
}

/// Returns the events after the one with this id. `field` is the name of the events' ids.
pub(super) fn events_after(
    mut events: Vec<Value>,
    field: &str,
    id: &str,
) -> Result<Vec<Value>, ApiError> {
    let place = events.iter().position(|event| event[field] == id).ok_or_else(unknown_event)?;
    Ok(events.split_off(place + 1))
}

fn unknown_event() -> ApiError {
    ApiError::bad_request("Last-Event-ID: the session has no event with this id")
}

/// Renders a stream of objects. Each event is named after its object's `type`, and has the id in its object's field
/// `id_field`.
pub(super) fn stream(
    objects: impl Stream<Item = Value> + Send + 'static,
    id_field: &'static str,
) -> Response {
    let events = objects.map(move |object| {
        let name = object["type"].as_str().unwrap_or("message");
        let mut event = Event::default().event(name).data(object.to_string());
        if let Some(id) = object[id_field].as_str() {
            event = event.id(id);
        }
        Ok::<Event, Infallible>(event)
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
