//! Events that Hob itself adds to a session's log, next to the agent's messages.

use hob_domain::session::{EventKind, NewEvent};
use serde_json::Value;

/// Builds an audit event with a JSON object as its body.
pub(super) fn audit_event(kind: EventKind, turn: Option<u32>, body: Value) -> NewEvent {
    NewEvent { kind, turn, body: body.to_string() }
}
