//! Where a session's turns run: on this node or on another one that shares the ledger.

pub(super) mod cluster;
pub(super) mod remote_command;
