use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A finished turn that the memory is to remember. Stores keep it as JSON in the outbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RememberedTurn {
    pub session_id: String,
    pub turn_index: u32,
    pub cwd: String,
    pub agent: String,
    pub prompt: String,
    pub answers: Vec<String>,
    pub asked_at: Timestamp,
    pub ended_at: Timestamp,
}

impl RememberedTurn {
    /// Returns the JSON that stores keep.
    pub fn to_json(&self) -> String {
        // Cannot fail: there are only texts, numbers and lists.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A turn in the outbox. It is removed once the memory has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxItem {
    pub id: i64,
    pub app: String,
    /// How many attempts to store it were noted.
    pub attempts: u32,
    /// The turn, or `None` if the stored JSON cannot be read.
    pub turn: Option<RememberedTurn>,
}

impl OutboxItem {
    /// Returns the item of a stored row.
    pub fn from_row(id: i64, app: String, attempts: i64, json: &str) -> OutboxItem {
        let attempts = attempts.try_into().unwrap_or_default();
        OutboxItem { id, app, attempts, turn: serde_json::from_str(json).ok() }
    }
}

/// What changes about entries of the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutboxChange {
    /// This many attempts to store them have begun.
    Attempts(u32),
    /// They could not be stored. They stay in the outbox, but are no longer returned.
    SetAside,
    /// The memory has stored them. They are removed.
    Stored,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_turns_read_back_as_they_were() {
        let stored = r#"{"session_id":"s","turn_index":2,"cwd":"/w","agent":"claude","prompt":"go","answers":["done","\u0000"],"asked_at":"2026-01-02T03:04:05.678Z","ended_at":"2026-01-02T03:04:06Z"}"#;
        let item = OutboxItem::from_row(1, "a".to_owned(), 2, stored);
        assert_eq!(item.attempts, 2);
        assert_eq!(item.turn.unwrap().to_json(), stored);
        assert_eq!(OutboxItem::from_row(1, "a".to_owned(), 0, "odd").turn, None);
    }
}
