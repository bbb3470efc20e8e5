//! Where a session's turns run: on this node, or on another one that shares the ledger.

mod cluster;
mod membership;
mod remote_command;
mod single;
mod traits;

pub(super) use cluster::ClusterNode;
pub(super) use single::SingleNode;
pub(super) use traits::{Location, Placement};
