use hob_domain::memory::TurnRole;
use jiff::Timestamp;

use crate::json::Scalar;

/// One turn as the transcript records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptTurn {
    /// The id of the turn's record, if the client gives records an id.
    pub id: Option<String>,
    pub role: TurnRole,
    pub text: String,
    pub ts: Option<Timestamp>,
    /// The API message that the turn is a part of.
    pub message_id: Option<String>,
    /// The prompt that the turn is or answers, under the id that hooks receive.
    pub prompt_id: Option<String>,
}

/// Parses a record's timestamp.
pub fn timestamp(text: &Scalar<'_>) -> Option<Timestamp> {
    text.text()?.parse().ok()
}
