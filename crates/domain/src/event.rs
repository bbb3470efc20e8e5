//! Events of a session: what an agent said, and what Hob did.

use std::fmt;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::turn_state::TurnState;

/// The kind of a session event. Its text is what the ledger stores and what clients receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// A message of the agent, unchanged.
    Message,
    /// The end of a turn.
    Turn,
    /// The session was created.
    Create,
    /// A turn was cancelled.
    Cancel,
    /// The agent asked for a permission, or got its answer.
    Permission,
    /// The agent called one of the caller's own tools, or got its result.
    ToolCall,
    /// A caller changed a setting of the agent: its mode, or one of its options.
    Setting,
    /// The agent resumed its conversation, or failed to.
    Resume,
    /// A caller closed the session.
    Close,
    /// The sweeper closed the session because it was idle.
    SweepClose,
    /// The agent has been silent for a while.
    Stalled,
    /// A part of the request could not be fulfilled.
    Notice,
    /// A kind of another version of Hob.
    Other(String),
}

impl EventKind {
    pub fn as_str(&self) -> &str {
        match self {
            EventKind::Message => "message",
            EventKind::Turn => "turn",
            EventKind::Create => "create",
            EventKind::Cancel => "cancel",
            EventKind::Permission => "permission",
            EventKind::ToolCall => "tool_call",
            EventKind::Setting => "setting",
            EventKind::Resume => "resume",
            EventKind::Close => "close",
            EventKind::SweepClose => "sweep_close",
            EventKind::Stalled => "stalled",
            EventKind::Notice => "notice",
            EventKind::Other(text) => text,
        }
    }

    /// Returns whether the event is the last one of its session.
    pub fn is_close(&self) -> bool {
        matches!(self, EventKind::Close | EventKind::SweepClose)
    }
}

impl From<String> for EventKind {
    fn from(text: String) -> EventKind {
        match text.as_str() {
            "message" => EventKind::Message,
            "turn" => EventKind::Turn,
            "create" => EventKind::Create,
            "cancel" => EventKind::Cancel,
            "permission" => EventKind::Permission,
            "tool_call" => EventKind::ToolCall,
            "setting" => EventKind::Setting,
            "resume" => EventKind::Resume,
            "close" => EventKind::Close,
            "sweep_close" => EventKind::SweepClose,
            "stalled" => EventKind::Stalled,
            "notice" => EventKind::Notice,
            _ => EventKind::Other(text),
        }
    }
}

impl From<&str> for EventKind {
    fn from(text: &str) -> EventKind {
        EventKind::from(text.to_owned())
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for EventKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// An event that is not stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    pub kind: EventKind,
    pub turn: Option<u32>,
    /// JSON: an agent's message unchanged, or an object of the audit.
    pub body: String,
}

/// A stored event. The events of a session are numbered from 1 without a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEvent {
    pub seq: u64,
    pub at: Timestamp,
    pub event: NewEvent,
}

/// Builds the event that ends a turn.
pub fn turn_event(index: u32, state: TurnState, stop_reason: Option<&str>) -> NewEvent {
    let body = json!({"turn_index": index, "state": state, "stop_reason": stop_reason});
    NewEvent { kind: EventKind::Turn, turn: Some(index), body: body.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_kinds_keep_their_text() {
        for text in [
            "message",
            "turn",
            "create",
            "cancel",
            "permission",
            "tool_call",
            "setting",
            "resume",
            "close",
            "sweep_close",
            "stalled",
            "notice",
        ] {
            let kind = EventKind::from(text);
            assert_eq!(kind.as_str(), text);
            assert!(!matches!(kind, EventKind::Other(_)), "{text}");
        }
        assert_eq!(EventKind::from("later"), EventKind::Other("later".to_owned()));
        assert_eq!(EventKind::from("later").as_str(), "later");
    }
}
