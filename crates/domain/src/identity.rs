//! What makes a turn this one and no other.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::memory::TurnRole;
use crate::secret::hex;

/// The name of a stored turn.
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

/// A digest that names a turn or its words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnKey([u8; 32]);

impl TurnKey {
    /// The digest of these parts; where one ends and the next begins is part of it.
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

    /// The name a turn of this key gets when it is stored.
    pub fn record_id(&self) -> RecordId {
        RecordId(hex(&self.0[..12]))
    }
}

impl fmt::Debug for TurnKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TurnKey({})", hex(&self.0[..6]))
    }
}

/// What makes a turn this one and no other, never the time of its capture.
///
/// One turn may be known by several names, since it may come in several ways. The store keeps all
/// that it has heard of, and recognises a turn by any of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// A record of a transcript, by its id. An answer also knows its place: see [`answer_key`].
    Record { key: TurnKey, answer: Option<TurnKey> },
    /// An answer that a hook was told of, by its place; its record may come later.
    Answer(TurnKey),
    /// The n-th time that the session has these words from this role, 1 for the first: a turn of a
    /// transcript without ids.
    Nth(u32),
}

/// The key of a turn that has a record id. An id that looks random, as a UUID does, is unique in the
/// world: a record that was copied into another session's transcript is still the same turn. Others
/// are unique within their session. The words are part of it: one id with two texts is two turns.
pub fn record_key(session: &str, id: &str, role: TurnRole, text: &str) -> TurnKey {
    let count = |kind: fn(&u8) -> bool| id.bytes().filter(kind).count();
    let looks_random =
        id.len() >= 20 && count(u8::is_ascii_digit) >= 4 && count(u8::is_ascii_alphabetic) >= 3;
    let scope = if looks_random { "" } else { session };
    TurnKey::of(&["record", scope, id, role.as_str(), text])
}

/// The key of an answer's place: the n-th time that these words answer this prompt.
pub fn answer_key(prompt: &str, text: &str, n: usize) -> TurnKey {
    TurnKey::of(&["answer", prompt, text.trim(), &n.to_string()])
}

/// The key of a turn's words: what turns without a record id are counted by. Blanks around them do
/// not count, since not every way keeps them.
pub fn words_key(role: TurnRole, text: &str) -> TurnKey {
    TurnKey::of(&["words", role.as_str(), text.trim()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_itself_wherever_it_was_copied() {
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
    fn parts_do_not_run_into_each_other() {
        assert_ne!(TurnKey::of(&["ab", "c"]), TurnKey::of(&["a", "bc"]));
        let key = TurnKey::of(&["x"]);
        assert_eq!(TurnKey::from_hex(&key.to_hex()), Some(key));
        assert_eq!(key.record_id().as_str().len(), 24);
    }
}
