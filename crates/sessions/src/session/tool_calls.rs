//! Calls of tools that the caller of a session runs itself.

use std::collections::HashSet;
use std::sync::Arc;

use hob_agents::client_tools::{ToolCall, ToolExchange};
use hob_domain::session::{EventKind, NewEvent};
use serde_json::json;

use super::events::audit_event;

/// Waits for a call that the caller has not been told of. Pends forever if the caller has no tools.
pub(super) async fn next_tool_call(
    tools: Option<Arc<ToolExchange>>,
    told: &HashSet<String>,
) -> ToolCall {
    let Some(tools) = tools else { return std::future::pending().await };
    let mut changed = tools.changed();
    loop {
        // The receiver exists already, so a call that comes after this look wakes it up.
        if let Some(call) = tools.waiting().into_iter().find(|call| !told.contains(&call.id)) {
            return call;
        }
        if changed.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Builds the event that puts a call to the caller.
pub(super) fn call_event(turn: u32, call: &ToolCall) -> NewEvent {
    let body = json!({"call_id": call.id, "turn_index": turn, "status": "asked",
        "name": call.name, "input": call.input});
    audit_event(EventKind::ToolCall, Some(turn), body)
}
