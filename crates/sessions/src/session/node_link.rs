//! What an open session needs to know about the other nodes on its ledger.

use hob_domain::session::SessionId;

/// A session's link to the other nodes.
///
/// A session is the same whether or not other nodes exist. It only reports what changes and asks
/// whether its lease still counts.
pub(super) trait NodeLink: Send + Sync {
    /// Tells listeners on every node that a session has new events.
    fn notify(&self, id: &SessionId);

    /// Returns whether this node may still write under its leases.
    fn lease_status(&self) -> LeaseStatus;

    /// Asks for a poll of the ledger before the next regular one.
    fn poll_soon(&self);
}

/// How far a node can rely on the leases it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseStatus {
    /// No other node exists that could take a session over.
    Exclusive,
    /// The other nodes have seen a recent heartbeat.
    Valid,
    /// The last heartbeat is too old: another node may hold the lease by now.
    Expired,
}
