use hob_domain::memory::TurnRole;
use jiff::Timestamp;

use crate::json::Scalar;
use crate::work::WorkItem;

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
    /// What the agent did after this turn and before the next one.
    pub work: Vec<WorkItem>,
}

/// Gives work that waits for a turn to the first of these turns, if the agent said it. A prompt did not
/// cause what came before it.
pub fn claim_waiting_work(turns: &mut [TranscriptTurn], waiting: &mut Vec<WorkItem>) {
    if let Some(first) = turns.first_mut() {
        let waiting = std::mem::take(waiting);
        if first.role == TurnRole::Assistant {
            first.work.splice(..0, waiting);
        }
    }
}

/// Parses a record's timestamp.
pub fn timestamp(text: &Scalar<'_>) -> Option<Timestamp> {
    text.text()?.parse().ok()
}
