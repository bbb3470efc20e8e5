//! Answers of the vendors' session APIs.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Json, Response};
use futures_util::Stream;
use hob_domain::Timestamp;
use serde_json::Value;

use crate::error::ApiError;
use crate::routes::v1::dialect::{Dialect, Problem};

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

/// Renders a stream of objects. Each event is named after its object's `type`.
pub(super) fn stream(objects: impl Stream<Item = Value> + Send + 'static) -> Response {
    use futures_util::StreamExt;
    let events = objects.map(|object| {
        let name = object["type"].as_str().unwrap_or("message").to_owned();
        Ok::<Event, Infallible>(Event::default().event(name).data(object.to_string()))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
