//! Answers that come piece by piece, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::script::Step;

/// Streams events. Each has the name in its field `type`, if it has that field.
pub fn stream_events(events: UnboundedReceiver<Value>) -> Response {
    let events = UnboundedReceiverStream::new(events).map(|event| {
        let name = event["type"].as_str().map(|name| format!("event: {name}\n"));
        Ok::<_, Infallible>(format!("{}data: {event}\n\n", name.unwrap_or_default()))
    });
    let headers = [("content-type", "text/event-stream"), ("cache-control", "no-cache")];
    (headers, Body::from_stream(events)).into_response()
}

/// Waits as a step asks for.
pub async fn pause(step: &Step) {
    match step {
        Step::Sleep(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
        Step::Hang => std::future::pending().await,
        _ => {}
    }
}
