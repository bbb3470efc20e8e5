//! Nodes: several Hob processes on one ledger, and their leases on sessions.

use std::time::Duration;

use async_trait::async_trait;

use crate::app::AppName;
pub use crate::ids::NodeId;
use crate::ids::SessionId;
use crate::store_error::StoreError;

/// A lease on a session: the right to write to it, with its fencing token.
///
/// Every new lease on a session has a fence one higher than the last. A write with an older fence is refused, so a
/// former lease holder cannot write any more, however late it notices that it lost the lease. So is a write under a
/// lease that names another app than the session's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The app of the session.
    pub app: AppName,
    pub session: SessionId,
    pub fence: u64,
}

/// The outcome of a request for a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// The caller has the lease. These turns ran under the former lease and are now interrupted.
    Acquired(Lease, Vec<u32>),
    /// This live node holds the lease.
    HeldBy(NodeId),
    /// No such session exists.
    Missing,
}

/// A node in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub id: NodeId,
    /// The time since its last heartbeat by the database's clock, because the nodes' clocks may differ.
    pub age: Duration,
}

/// Something that happened to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeEvent {
    /// The node is alive.
    Heartbeat,
    /// The node is gone. Other nodes may acquire its leases at once.
    Left,
}

/// Storage of nodes.
#[async_trait]
pub trait NodeStore: Send + Sync {
    /// Records what happened to a node.
    async fn note_node(&self, node: &NodeId, event: NodeEvent) -> Result<(), StoreError>;

    /// Returns all nodes that sent a heartbeat and have not left, ordered by id.
    async fn nodes(&self) -> Result<Vec<Node>, StoreError>;
}
