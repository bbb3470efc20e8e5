//! Nodes: several Hobs on one ledger, and which of them a session belongs to.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::app::StoreError;
use crate::session::SessionId;

/// A Hob that runs. It has a new one at every start, so that nobody is taken for who was there before.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(String);

impl NodeId {
    /// A name from random bytes.
    pub fn from_random(bytes: [u8; 16]) -> NodeId {
        NodeId(crate::secret::hex(&bytes))
    }

    /// A name that was stored.
    pub fn stored(text: &str) -> Option<NodeId> {
        SessionId::presented(text).map(|id| NodeId(id.as_str().to_owned()))
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

/// The right to write to a session. Every time a session is taken its fence is one higher, and what comes with an
/// older one is refused: whoever had it before can't write any more, however late it notices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    pub session: SessionId,
    pub fence: u64,
}

/// Whether a session was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It is the caller's. Turns that ran under its former holder are interrupted: these.
    Held(Hold, Vec<u32>),
    /// This one has it, and lives.
    HeldBy(NodeId),
    Missing,
}

/// A node as the ledger knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub id: NodeId,
    /// Where the others reach it.
    pub address: String,
    /// How long ago it was last heard of, by the clock of the database: the nodes' own may differ.
    pub age: Duration,
}

/// Storage of nodes.
#[async_trait]
pub trait NodeStore: Send + Sync {
    /// The node lives, and is reached there.
    async fn beat(&self, node: &NodeId, address: &str) -> Result<(), StoreError>;

    /// All nodes that were heard of and have not said good-bye, by name.
    async fn nodes(&self) -> Result<Vec<Node>, StoreError>;

    /// The node is no more: what it holds may be taken at once.
    async fn gone(&self, node: &NodeId) -> Result<(), StoreError>;
}
