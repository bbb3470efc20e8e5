//! Several nodes on one ledger, and what they do for each other through it.
//!
//! Nodes never talk to each other directly. A node that needs another one writes a command into the ledger and
//! notifies it. The ledger is there anyway, decides who holds which lease, and keeps a command when the node that
//! should run it dies.

use std::time::Duration;

use async_trait::async_trait;

use crate::app::AppName;
use crate::command::{CommandOutcome, SessionCommand};
use crate::ids::{NodeId, SessionId};
use crate::node::{Lease, NodeStore};
use crate::store_error::StoreError;

/// An open session on which a node holds the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasedSession {
    pub lease: Lease,
    /// The numbers of its queued turns.
    pub queued: Vec<u32>,
    /// Whether one of its turns is running.
    pub running: bool,
}

/// A command that only the lease holder of a session can run, sent by another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteCommand {
    /// Random.
    pub id: String,
    pub app: AppName,
    pub session: SessionId,
    pub body: SessionCommand,
    /// What the command did; `None` until the lease holder has executed it.
    pub outcome: Option<CommandOutcome>,
}

/// A choice of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandFilter {
    /// The command with this id.
    Id(String),
    /// The commands for this node's sessions that have no outcome yet.
    Pending(NodeId),
}

/// An event of a node's heartbeat loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterEvent {
    /// A heartbeat is about to be sent.
    HeartbeatSent,
    /// The database has stored the heartbeat.
    Heartbeat {
        /// Whether other nodes are alive.
        others: bool,
    },
    /// Another node reports news in these sessions.
    Notified(Vec<SessionId>),
    /// The connection was lost for this reason.
    Disconnected(String),
    /// A connection is established. Notifications may have been missed before: check everything.
    Connected,
}

/// A part of a file that an app has uploaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePart {
    pub app: AppName,
    pub id: String,
    pub name: String,
    /// The position of this part; 0 for the first.
    pub part: u32,
    pub bytes: Vec<u8>,
    /// Whether this is the last part. A file exists only once its last part is stored.
    pub last: bool,
}

/// Storage of what nodes share in addition to the ledger itself.
///
/// Contract: a call that returned `Ok` is durable, except for notifications, which may be missed. A node that waits
/// for one must also poll.
#[async_trait]
pub trait ClusterStore: NodeStore {
    /// Sends heartbeats at this interval and receives notifications, for ever. Reports every event to `tell`, and
    /// reconnects after a lost connection.
    async fn run_heartbeat(
        &self,
        node: &NodeId,
        every: Duration,
        tell: &(dyn Fn(ClusterEvent) + Send + Sync),
    );

    /// Notifies all other nodes of news in these sessions.
    async fn notify(&self, from: &NodeId, sessions: &[SessionId]) -> Result<(), StoreError>;

    /// Returns the sessions leased by a node that are open or have a running turn.
    async fn leased_sessions(&self, node: &NodeId) -> Result<Vec<LeasedSession>, StoreError>;

    /// Enqueues a command without an outcome for the lease holder of its session.
    async fn enqueue_command(&self, command: &RemoteCommand) -> Result<(), StoreError>;

    /// Returns the commands that pass a filter, oldest first.
    async fn commands(&self, filter: &CommandFilter) -> Result<Vec<RemoteCommand>, StoreError>;

    /// Stores the outcome of a command. The first outcome stays.
    async fn complete_command(
        &self,
        command: &str,
        outcome: &CommandOutcome,
    ) -> Result<(), StoreError>;

    /// Removes a command, and with it old commands that other nodes abandoned.
    async fn remove_command(&self, command: &str) -> Result<(), StoreError>;

    /// Counts the open sessions of one app, or of all apps.
    async fn open_count(&self, app: Option<&AppName>) -> Result<usize, StoreError>;

    /// Counts a turn of an app. If the app has had `most` turns within a minute, counts nothing and returns how
    /// long to wait.
    async fn pace(&self, app: &AppName, most: usize) -> Result<Result<(), Duration>, StoreError>;

    /// Stores a part of a file.
    async fn put_file(&self, part: &FilePart) -> Result<(), StoreError>;

    /// Returns a part of a complete file.
    async fn file(
        &self,
        app: &AppName,
        id: &str,
        part: u32,
    ) -> Result<Option<FilePart>, StoreError>;

    /// Removes files that are older than this.
    async fn drop_files(&self, age: Duration) -> Result<(), StoreError>;
}
