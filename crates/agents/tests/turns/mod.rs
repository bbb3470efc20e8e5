//! Turns through the backend, read to their end.

use futures_util::StreamExt;
use hob_agents::claude::{BackendError, Completion, Event, TurnResult};
use serde_json::{Value, json};

pub fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

pub async fn collect(mut completion: Completion) -> Result<Vec<Event>, BackendError> {
    let mut events = Vec::new();
    while let Some(event) = completion.next().await {
        events.push(event?);
    }
    Ok(events)
}

pub fn result(events: &[Event]) -> &TurnResult {
    match events.last() {
        Some(Event::Result(result)) => result,
        other => panic!("{other:?}"),
    }
}
