//! What is kept of a hidden turn until it is erased: enough to store it again as it was. Its names are kept apart, in
//! the row that keeps it from being stored again.

use hob_domain::Timestamp;
use hob_domain::memory::{
    Identity, NewTurn, ProjectLocation, Record, RecordId, Tier, TurnKey, TurnRole, TurnSource,
};
use serde::{Deserialize, Serialize};

use super::identity::TurnNames;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct HiddenTurn {
    pub(super) id: RecordId,
    pub(super) session: String,
    place: ProjectLocation,
    role: TurnRole,
    tier: Tier,
    text: String,
    sealed: Option<Vec<u8>>,
    cue: Option<String>,
    ts: i64,
    at: i64,
    client: String,
    source: TurnSource,
    pub(super) superseded_by: Option<RecordId>,
    pub(super) supersedes: Option<RecordId>,
}

impl HiddenTurn {
    /// A stored turn. `at` is its place in its session.
    pub(super) fn new(record: Record, at: i64) -> HiddenTurn {
        HiddenTurn {
            id: record.id,
            session: record.session,
            place: record.place,
            role: record.role,
            tier: record.tier,
            text: record.text,
            sealed: record.sealed,
            cue: record.cue,
            ts: record.ts.as_microsecond(),
            at,
            client: record.client,
            source: record.source,
            superseded_by: record.superseded_by,
            supersedes: record.supersedes,
        }
    }

    /// Notes that one turn is superseded by another, of which this is one.
    pub(super) fn link(&mut self, older: &RecordId, newer: &RecordId) {
        if self.id == *older {
            self.superseded_by = Some(newer.clone());
        }
        if self.id == *newer {
            self.supersedes = Some(older.clone());
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads what [`HiddenTurn::to_bytes`] wrote; `None` if it is damaged.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<HiddenTurn> {
        serde_json::from_slice(bytes).ok()
    }

    /// Returns the turn as it was shown. Its number is gone.
    pub(super) fn into_record(self) -> Record {
        Record {
            id: self.id,
            seq: 0,
            session: self.session,
            place: self.place,
            role: self.role,
            tier: self.tier,
            text: self.text,
            sealed: self.sealed,
            cue: self.cue,
            ts: Timestamp::from_microsecond(self.ts).unwrap_or_default(),
            client: self.client,
            source: self.source,
            superseded_by: self.superseded_by,
            supersedes: self.supersedes,
        }
    }

    /// Returns the turn to store again. It has no terms and no vector, and its rules are older than
    /// any, so that the next rescan makes them.
    pub(super) fn turn<S>(self, names: &TurnNames<TurnKey, S>) -> NewTurn {
        let time = |micros| Timestamp::from_microsecond(micros).unwrap_or_default();
        let identity = match (names.record, names.answer) {
            (Some(key), answer) => Identity::Record { key, answer },
            (None, Some(place)) => Identity::Answer(place),
            (None, None) => {
                Identity::Nth(names.nth.and_then(|nth| nth.try_into().ok()).unwrap_or(1))
            }
        };
        NewTurn {
            identity,
            words: names.words,
            session: self.session,
            place: self.place,
            role: self.role,
            tier: self.tier,
            text: self.text,
            sealed: self.sealed,
            cue: self.cue,
            ts: time(self.ts),
            at: time(self.at),
            client: self.client,
            source: self.source,
            terms: String::new(),
            vector: Vec::new(),
            rules: 0,
        }
    }
}
