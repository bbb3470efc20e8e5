//! Events that Hob itself adds to a session's log, next to the agent's messages.

use hob_domain::session::{EventKind, NewEvent};
use serde_json::{Value, json};

/// Builds an audit event with a JSON object as its body.
pub(super) fn audit_event(kind: EventKind, turn: Option<u32>, body: Value) -> NewEvent {
    NewEvent { kind, turn, body: body.to_string() }
}

/// Builds the result of a cancelled prompt, for an agent that gave none. Clients may rely on the last
/// message of a turn to have its stop reason.
pub(super) fn cancelled_result(turn: u32) -> NewEvent {
    let body = json!({"jsonrpc": "2.0", "id": format!("hob-turn-{turn}"),
        "result": {"stopReason": "cancelled", "_meta": {"hob": {"from": "hob"}}}});
    NewEvent { kind: EventKind::Message, turn: Some(turn), body: body.to_string() }
}

/// Returns whether a message is a result that Hob gave in place of the agent.
pub(super) fn is_own_result(message: &Value) -> bool {
    message["result"]["_meta"]["hob"]["from"] == "hob"
}
