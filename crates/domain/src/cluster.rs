//! Several Hobs on one ledger: what they do through it for each other.
//!
//! Nodes do not talk to each other. What one wants of another it writes into the ledger, and rings: the ledger is there
//! anyway, decides who holds what, and keeps what was wanted when whoever was to do it dies.

use std::time::Duration;

use async_trait::async_trait;

use crate::app::{AppName, StoreError};
use crate::node::{Hold, NodeId, NodeStore};
use crate::session::{NewEvent, Session, SessionId};

/// An open session that a node holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldSession {
    pub app: AppName,
    pub hold: Hold,
    /// The turns that wait in it.
    pub queued: Vec<u32>,
    /// Whether a turn runs in it.
    pub running: bool,
}

/// Something that only the holder of a session can do, wanted by another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errand {
    /// Random.
    pub id: String,
    pub app: AppName,
    pub session: SessionId,
    /// What is wanted, in the words of those who run sessions.
    pub body: String,
}

/// How many sessions may be open over all nodes; zero is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenLimits {
    /// Of one app.
    pub app: usize,
    pub all: usize,
}

/// Whether a session was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    Made(Hold),
    /// Its app has so many.
    AppFull(usize),
    /// There are so many.
    Full(usize),
}

/// What a node hears while it attends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A beat is about to be sent.
    Beating,
    /// It has arrived.
    Beat {
        /// Whether there is anybody else.
        others: bool,
    },
    /// Another node says that there is something new in these sessions.
    Rung(Vec<SessionId>),
    /// The connection is lost, and why.
    Lost(String),
    /// There is a connection. Something may have been missed before: everything is to be looked at.
    Missed,
}

/// A part of a file that an app has uploaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePart {
    pub app: AppName,
    pub id: String,
    pub name: String,
    /// 0 for the first.
    pub part: u32,
    pub bytes: Vec<u8>,
    /// Whether it is the last: only then there is such a file.
    pub last: bool,
}

/// Storage of what nodes share beside the ledger itself.
///
/// Contract: a call that returned `Ok` is durable, but for bells, which may be missed: whoever hears looks now and
/// then all the same.
#[async_trait]
pub trait ClusterStore: NodeStore {
    /// Lets the node be heard of at this interval and hears the others, for ever: it tells what comes, and connects again when
    /// it must.
    async fn attend(&self, node: &NodeId, every: Duration, tell: &(dyn Fn(Heard) + Send + Sync));

    /// Says to all others that there is something new in these sessions.
    async fn ring(&self, from: &NodeId, sessions: &[SessionId]) -> Result<(), StoreError>;

    /// Who holds a session and was heard of within the lease.
    async fn holder(&self, id: &SessionId, lease: Duration) -> Result<Option<NodeId>, StoreError>;

    /// The sessions that a node holds and that are open, or in which a turn still runs.
    async fn held(&self, node: &NodeId) -> Result<Vec<HeldSession>, StoreError>;

    /// Sessions in which a turn runs or waits and whose holder was not heard of for the lease.
    async fn orphans(&self, lease: Duration) -> Result<Vec<(AppName, SessionId)>, StoreError>;

    /// Wants something of whoever holds the session.
    async fn want(&self, errand: &Errand) -> Result<(), StoreError>;

    /// What is wanted of a node and not yet answered, oldest first.
    async fn wanted(&self, node: &NodeId) -> Result<Vec<Errand>, StoreError>;

    /// An errand is done. The first answer stays.
    async fn answer(&self, errand: &str, answer: &str) -> Result<(), StoreError>;

    /// The answer, once there is one.
    async fn answered(&self, errand: &str) -> Result<Option<String>, StoreError>;

    /// The errand is no longer wanted, or its answer is known. Those that were left behind by others go along.
    async fn unwant(&self, errand: &str) -> Result<(), StoreError>;

    /// How many sessions an app has open, or all of them together.
    async fn open_count(&self, app: Option<&AppName>) -> Result<usize, StoreError>;

    /// Creates a session as [`crate::session::SessionStore::create_session`] does, unless there are as many as there may be.
    async fn create_within(
        &self,
        session: &Session,
        event: NewEvent,
        node: &NodeId,
        most: OpenLimits,
    ) -> Result<Created, StoreError>;

    /// Counts a turn of an app, or says how long to wait: in a minute there are `most`.
    async fn pace(&self, app: &AppName, most: usize) -> Result<Result<(), Duration>, StoreError>;

    /// Keeps a part of a file.
    async fn put_file(&self, part: &FilePart) -> Result<(), StoreError>;

    /// A part of a file, if there is that part of that file.
    async fn file(
        &self,
        app: &AppName,
        id: &str,
        part: u32,
    ) -> Result<Option<FilePart>, StoreError>;

    /// Removes files that are older, or all of an app.
    async fn drop_files(&self, app: Option<&AppName>, age: Duration) -> Result<(), StoreError>;
}
