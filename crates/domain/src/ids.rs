//! Random identifiers of sessions and nodes.

use std::fmt;

use serde::Serialize;

use crate::secret::hex;

/// The id of a session: 32 lower-case hex digits. It is random, so it cannot be guessed, and it is safe in paths
/// and URLs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct SessionId(String);

impl SessionId {
    /// Makes an id from random bytes.
    pub fn from_random(bytes: [u8; 16]) -> SessionId {
        SessionId(hex(&bytes))
    }

    /// Parses an id that a caller sent; `None` if it is malformed.
    pub fn presented(text: &str) -> Option<SessionId> {
        is_hex_id(text).then(|| SessionId(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of a running Hob process: 32 lower-case hex digits. Every start makes a new one, so that a process is
/// never mistaken for its predecessor.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(String);

impl NodeId {
    /// Makes an id from random bytes.
    pub fn from_random(bytes: [u8; 16]) -> NodeId {
        NodeId(hex(&bytes))
    }

    /// Parses a stored id; `None` if it is malformed.
    pub fn stored(text: &str) -> Option<NodeId> {
        is_hex_id(text).then(|| NodeId(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether the text is the hex form of 16 bytes.
fn is_hex_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_malformed_ones_are_refused() {
        let session = SessionId::from_random([0xab; 16]);
        assert_eq!(SessionId::presented(session.as_str()), Some(session));
        let node = NodeId::from_random([0xcd; 16]);
        assert_eq!(NodeId::stored(node.as_str()), Some(node));
        for bad in ["", "..", "A", &"g".repeat(32), &"a".repeat(33), "../../etc/passwd"] {
            assert_eq!(SessionId::presented(bad), None, "{bad}");
            assert_eq!(NodeId::stored(bad), None, "{bad}");
        }
    }
}
