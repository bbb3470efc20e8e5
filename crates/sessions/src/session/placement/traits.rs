//! The questions whose answers depend on whether other nodes share the ledger.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hob_domain::session::{Created, NewEvent, Session, SessionId};
use hob_domain::{AppName, CommandOutcome, SessionCommand, StoreError};
use tokio::sync::watch;

use super::super::counters::NodeFigures;
use super::super::error::SessionError;
use super::super::handle::SessionHandle;

/// Where the turns of an open session run.
pub(in crate::session) enum Location {
    Here(Arc<SessionHandle>),
    Elsewhere,
}

/// How sessions are placed on nodes. One implementation is a node that has its ledger to itself,
/// the other is a node of a cluster.
#[async_trait]
pub(in crate::session) trait Placement: Send + Sync {
    /// Returns where a session's turns run; `None` when it is closed. Takes the lease if no live
    /// node holds it.
    async fn locate(&self, app: &AppName, id: &SessionId)
    -> Result<Option<Location>, SessionError>;

    /// Returns a session that runs here, after taking its lease if no live node holds it.
    async fn acquire(&self, app: &AppName, id: &SessionId) -> Option<Arc<SessionHandle>>;

    /// Executes a command on whichever node holds the session. Returns `None` when the session is
    /// closed.
    async fn execute(
        &self,
        app: &AppName,
        id: &SessionId,
        command: SessionCommand,
    ) -> Result<Option<CommandOutcome>, SessionError>;

    /// Tells the lease holder that a session has a new turn.
    async fn notify_holder(&self, id: &SessionId);

    /// Reads a possibly changed ledger before the next regular poll.
    fn poll_soon(&self);

    /// Returns a channel that signals changes of a session without a lease here; `None` if no other
    /// node could change it.
    fn watch(&self, id: &SessionId) -> Option<watch::Receiver<()>>;

    /// Returns how many sessions an app has open on all nodes.
    async fn open_count(&self, app: &AppName) -> Result<usize, StoreError>;

    /// Stores a new session unless that would exceed the limits. `max_app_sessions` of zero is no
    /// limit.
    async fn create(
        &self,
        session: &Session,
        event: NewEvent,
        max_app_sessions: usize,
    ) -> Result<Created, StoreError>;

    /// Checks that a run fits the limit on open sessions of all nodes.
    async fn check_capacity(&self) -> Result<(), SessionError>;

    /// Counts a turn of an app; `Ok(Err(_))` is how long to wait first. `max_per_minute` of zero is
    /// no limit.
    async fn count_turn(
        &self,
        app: &AppName,
        max_per_minute: usize,
    ) -> Result<Result<(), Duration>, StoreError>;

    /// Deletes shared uploads that are older than this.
    async fn delete_old_files(&self, age: Duration) -> Result<(), StoreError>;

    /// Returns whether the node can serve sessions: the other nodes have seen its heartbeat
    /// recently.
    fn is_reachable(&self) -> bool;

    /// Returns the node's own figures, in a cluster only. `ready` is what the node says of itself.
    fn figures(&self) -> Option<NodeFigures>;
}
