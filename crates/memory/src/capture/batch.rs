//! Turns on their way in, before anything was done to them.

use hob_domain::Timestamp;
use hob_domain::memory::{
    Identity, NewTurn, ProjectLocation, Tier, TurnKey, TurnRole, record_key, words_key,
};
use serde::{Deserialize, Serialize};

use crate::capture::seal::SealingKey;
use crate::embed::embedder::Embedder;
use crate::redact;
use crate::text::analyse::{self, Analyser};

/// The rules by which a stored turn was masked and analysed, as one number.
pub const VERSION: u32 = redact::RULES_VERSION + analyse::VERSION - 1;

/// Turns of one session from one source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    pub session: String,
    pub place: ProjectLocation,
    pub client: String,
    pub source: String,
    pub turns: Vec<RawTurn>,
}

impl Batch {
    /// The same session and source with these turns.
    pub fn with(&self, turns: &[RawTurn]) -> Batch {
        Batch {
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
    /// The id of its record, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub role: TurnRole,
    pub text: String,
    pub ts: Timestamp,
    /// Where it stands in the order, unless that is its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Without an id: the n-th time this session has these words from this role, 1 for the first.
    #[serde(default = "first")]
    pub n: u32,
    /// Its place as an answer, as hexadecimal digits of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    #[serde(default)]
    pub tier: Tier,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cue: Option<String>,
}

fn first() -> u32 {
    1
}

impl RawTurn {
    /// What makes it this turn of this session.
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

/// A session's name, or another name that is no text, without its secrets. A digest keeps two apart
/// that differ in nothing else.
pub fn name_without_secrets(name: &str) -> String {
    let masked = redact::mask(name);
    if masked.originals.is_empty() {
        return masked.text;
    }
    let digest = TurnKey::of(&["name", name]).to_hex();
    format!("{}#{}", masked.text, &digest[..8])
}

/// A masked text with its secrets sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub text: String,
    pub sealed: Option<Vec<u8>>,
}

/// Masks the secrets of a text and seals them. Where they can't be sealed they are masked all the
/// same: better lost than leaked.
pub fn seal_secrets(text: &str, key: &SealingKey) -> Sealed {
    let masked = redact::mask(text);
    if masked.originals.is_empty() {
        return Sealed { text: masked.text, sealed: None };
    }
    let sealed = serde_json::to_vec(&masked.originals).ok().and_then(|clear| key.seal(&clear));
    Sealed { text: masked.text, sealed }
}

/// The text as it was, given what its seal held.
pub fn unsealed(text: &str, clear: &[u8]) -> Option<String> {
    let originals: Vec<redact::Original> = serde_json::from_slice(clear).ok()?;
    redact::unmask(text, &originals)
}

/// What a turn is found by: its words, and those of its cue.
pub fn found_by(text: &str, cue: Option<&str>) -> String {
    match cue {
        Some(cue) => format!("{text}\n{cue}"),
        None => text.to_owned(),
    }
}

/// What the index takes of a turn: its terms, separated by spaces, and its vector.
pub fn indexed(
    analyser: &Analyser,
    embedder: &dyn Embedder,
    text: &str,
    cue: Option<&str>,
) -> (String, Vec<i8>) {
    let found_by = found_by(text, cue);
    let terms = analyser.telling(&found_by);
    let vector = embedder.embed_analysed(&found_by, &terms);
    (terms.join(" "), vector)
}

/// Makes turns ready for the store.
pub struct Preparer {
    pub analyser: Analyser,
    pub embedder: Box<dyn Embedder>,
    pub sealing: SealingKey,
}

impl Preparer {
    pub fn prepare(&self, batch: &Batch) -> Vec<NewTurn> {
        batch.turns.iter().map(|turn| self.one(batch, turn)).collect()
    }

    fn one(&self, batch: &Batch, turn: &RawTurn) -> NewTurn {
        let Sealed { text, sealed } = seal_secrets(&turn.text, &self.sealing);
        let cue = turn.cue.as_ref().map(|cue| redact::mask(cue).text);
        let session = name_without_secrets(&batch.session);
        let (terms, vector) = indexed(&self.analyser, &*self.embedder, &text, cue.as_deref());
        NewTurn {
            identity: turn.identity(&session),
            words: words_key(turn.role, &turn.text),
            session,
            place: batch.place.clone(),
            role: turn.role,
            tier: turn.tier,
            vector,
            terms,
            text,
            sealed,
            cue,
            ts: turn.ts,
            at: turn.at.unwrap_or(turn.ts),
            client: batch.client.clone(),
            source: batch.source.clone(),
            rules: VERSION,
        }
    }

    /// The terms of a text as the index takes them.
    pub fn index_terms(&self, text: &str) -> String {
        self.analyser.telling(text).join(" ")
    }
}
