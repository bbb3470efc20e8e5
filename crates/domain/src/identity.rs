//! The identity of turns.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::message::Role as TurnRole;
use crate::secret::hex;

/// The id of a stored turn.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecordId(String);

impl RecordId {
    pub fn new(text: impl Into<String>) -> RecordId {
        RecordId(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A SHA-256 digest that names a turn or its words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnKey([u8; 32]);

impl TurnKey {
    /// Hashes these parts. Their boundaries are part of the digest.
    pub fn of(parts: &[&str]) -> TurnKey {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        TurnKey(hash.finalize().into())
    }

    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub fn from_bytes(bytes: [u8; 32]) -> TurnKey {
        TurnKey(bytes)
    }

    pub fn to_hex(self) -> String {
        hex(&self.0)
    }

    pub fn from_hex(text: &str) -> Option<TurnKey> {
        Some(TurnKey(crate::secret::unhex(text)?.try_into().ok()?))
    }

    /// Returns the id of a turn that is stored under this key.
    pub fn record_id(&self) -> RecordId {
        RecordId(hex(&self.0[..12]))
    }
}

impl fmt::Debug for TurnKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TurnKey({})", hex(&self.0[..6]))
    }
}

/// The name under which a turn is captured. The time of its capture is never part of it.
///
/// A turn may be captured several times, each time under another name: by a hook, from a
/// transcript, by an import. The store keeps all names of a turn and recognises it by any of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// A record of a transcript, by its id. The record of an answer also knows the answer's place:
    /// see [`answer_key`].
    Record { key: TurnKey, answer: Option<TurnKey> },
    /// An answer that a hook has reported, by its place. Its record may come later.
    Answer(TurnKey),
    /// The n-th turn of the session with these words from this role, counted from 1: a turn of a
    /// transcript without ids.
    Nth(u32),
}

/// Returns the key of a turn that has a record id. An id that looks random, such as a UUID, is
/// unique in the world: a record that was copied into another session's transcript is still the
/// same turn. Other ids are unique within their session. The words are part of the key: one id with
/// two texts is two turns.
pub fn record_key(session: &str, id: &str, role: TurnRole, text: &str) -> TurnKey {
    let count = |kind: fn(&u8) -> bool| id.bytes().filter(kind).count();
    let looks_random =
        id.len() >= 20 && count(u8::is_ascii_digit) >= 4 && count(u8::is_ascii_alphabetic) >= 3;
    let scope = if looks_random { "" } else { session };
    TurnKey::of(&["record", scope, id, role.as_str(), text])
}

/// Returns the key of an answer's place: the n-th time that these words answer this prompt.
pub fn answer_key(prompt: &str, text: &str, n: usize) -> TurnKey {
    TurnKey::of(&["answer", prompt, text.trim(), &n.to_string()])
}

/// Returns the key of a turn's words, by which turns without a record id are counted. Blanks around
/// the words are left out, since not every client keeps them.
pub fn words_key(role: TurnRole, text: &str) -> TurnKey {
    TurnKey::of(&["words", role.as_str(), text.trim()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_with_a_random_id_is_the_same_in_every_session() {
        let uuid = "0197a2f4-5d2e-7c3b-9a10-7f2b8c1d4e5f";
        assert_eq!(words_key(TurnRole::User, "x"), words_key(TurnRole::User, " x\n"));
        let key = |session, id, text| record_key(session, id, TurnRole::User, text);
        assert_eq!(key("a", uuid, "x"), key("b", uuid, "x"));
        assert_ne!(key("a", uuid, "x"), key("a", uuid, "y"));
        assert_ne!(key("a", "1", "x"), key("b", "1", "x"));
        assert_ne!(key("a", "assistant-message-1", "x"), key("b", "assistant-message-1", "x"));
        assert_eq!(key("a", "1", "x"), key("a", "1", "x"));
    }

    #[test]
    fn key_depends_on_the_boundaries_of_its_parts() {
        assert_ne!(TurnKey::of(&["ab", "c"]), TurnKey::of(&["a", "bc"]));
        let key = TurnKey::of(&["x"]);
        assert_eq!(TurnKey::from_hex(&key.to_hex()), Some(key));
        assert_eq!(key.record_id().as_str().len(), 24);
    }
}
