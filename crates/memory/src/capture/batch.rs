//! Turns on their way into the memory, before they are masked and indexed.

use hob_domain::Timestamp;
use hob_domain::memory::{
    Identity, ProjectLocation, Tier, TurnKey, TurnRole, TurnSource, record_key,
};
use serde::{Deserialize, Serialize};

/// Turns of one session from one source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaptureBatch {
    pub session: String,
    pub place: ProjectLocation,
    /// The program in which the turns were said. A name from the settings or of a client, so it is
    /// text and not a closed set.
    pub client: String,
    pub source: TurnSource,
    pub turns: Vec<RawTurn>,
}

impl CaptureBatch {
    /// Returns a batch of the same session and source with other turns.
    pub fn with_turns(&self, turns: &[RawTurn]) -> CaptureBatch {
        CaptureBatch {
            session: self.session.clone(),
            place: self.place.clone(),
            client: self.client.clone(),
            source: self.source.clone(),
            turns: turns.to_vec(),
        }
    }
}

/// One turn, verbatim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RawTurn {
    /// The id of the turn's record, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub role: TurnRole,
    pub text: String,
    pub ts: Timestamp,
    /// The turn's position in the order, if it differs from `ts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// For a turn without an id: how many times the session has had this text from this role, 1 for
    /// the first.
    #[serde(default = "first_occurrence")]
    pub n: u32,
    /// The turn's key as an answer to a prompt, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    #[serde(default)]
    pub tier: Tier,
    /// Other words that the turn is found by: those of a note, or of the work after the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cue: Option<String>,
}

fn first_occurrence() -> u32 {
    1
}

impl RawTurn {
    /// Returns what identifies this turn in its session.
    pub fn identity(&self, session: &str) -> Identity {
        let answer = self.answer.as_deref().and_then(TurnKey::from_hex);
        match (&self.id, answer) {
            (Some(id), answer) => {
                Identity::Record { key: record_key(session, id, self.role, &self.text), answer }
            }
            (None, Some(answer)) => Identity::Answer(answer),
            (None, None) => Identity::Nth(self.n.max(1)),
        }
    }
}
