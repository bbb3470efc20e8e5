//! Sessions: conversations with an agent that outlive processes, connections and restarts.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::agent::AgentName;
use crate::app::AppName;
pub use crate::event::{EventKind, NewEvent, SessionEvent, turn_event};
use crate::ids::NodeId;
pub use crate::ids::SessionId;
use crate::node::{Lease, LeaseOutcome};
pub use crate::outbox::{OutboxItem, RememberedTurn};
pub use crate::permissions::Permissions;
use crate::store_error::StoreError;
pub use crate::turn_state::TurnState;
pub use crate::usage::{TurnUsage, UsageDay};

/// What a session runs with. It is kept, so that a resumed conversation goes on as it was begun.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionSetup {
    pub agent: AgentName,
    pub meta: Value,
    /// The folder it works in.
    pub cwd: String,
    pub model: Option<String>,
    pub system: Option<String>,
    pub permissions: Permissions,
    /// In the shape of the agent's protocol.
    pub mcp_servers: Value,
}

/// A session as the ledger knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    pub id: SessionId,
    pub app: AppName,
    pub setup: SessionSetup,
    pub created_at: Timestamp,
    pub closed_at: Option<Timestamp>,
    pub turn_count: u32,
    pub last_turn_at: Option<Timestamp>,
    /// Whether a turn waits or runs.
    pub busy: bool,
    /// The agent's own name for the conversation, by which it is resumed. Kept before the first prompt
    /// is sent, so `None` means that nothing was ever said.
    pub agent_session: Option<String>,
    /// What all its turns used.
    pub usage: TurnUsage,
    /// The number of its last event.
    pub last_event: u64,
}

impl Session {
    pub fn state(&self) -> SessionState {
        match (self.closed_at, self.busy) {
            (Some(_), _) => SessionState::Closed,
            (None, true) => SessionState::Running,
            (None, false) => SessionState::Idle,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// Ready for a turn.
    Idle,
    Running,
    Closed,
}

/// A turn as the ledger knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionTurn {
    /// 1 for the first.
    pub index: u32,
    pub state: TurnState,
    pub prompt: String,
    pub text: String,
    pub stop_reason: Option<String>,
    /// What went wrong, for the caller.
    pub error: Option<String>,
    pub queued_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub usage: TurnUsage,
}

/// A turn that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRequest {
    pub prompt: String,
    /// The caller's key and a digest of what it asked: a repeat runs nothing.
    pub idempotency: Option<(String, String)>,
    /// How many turns may wait.
    pub queue: usize,
}

/// Whether a turn was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// It waits for its agent.
    Queued(u32),
    /// It was asked before, with the same key and the same words.
    Repeated(u32),
    /// The key was used for something else.
    OtherBody,
    QueueFull,
    Closed,
}

/// What an idempotency key was used for before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// The same request, which became this turn.
    Same(u32),
    OtherRequest,
}

/// How a turn ended, with all that becomes durable with it.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnEnding {
    pub state: TurnState,
    pub text: String,
    pub stop_reason: Option<String>,
    pub error: Option<String>,
    pub usage: TurnUsage,
    /// The last events.
    pub events: Vec<NewEvent>,
    /// The agent's own name for the conversation, as it is now.
    pub agent_session: Option<String>,
    /// What the memory is to remember of the turn.
    pub outbox: Option<RememberedTurn>,
}

/// Storage of sessions.
///
/// Contract: a call that returned `Ok` is durable; each is atomic. Events of a session are numbered
/// without gaps in the order of the calls that stored them. Every call about a session names its
/// app, and finds nothing of another's. What only the holder of a session may do takes its [`Lease`], and is
/// [`StoreError::Lost`] with one that is not the latest.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Adds a session with its first event. It is held by the node that makes it, with the fence 1.
    async fn create_session(
        &self,
        session: &Session,
        event: NewEvent,
        node: &NodeId,
    ) -> Result<Lease, StoreError>;

    /// Takes a session that is free, the caller's own, or one whose holder was not heard of for the lease. Turns
    /// that ran are interrupted, each with a `turn` event under the new fence; those that waited still wait.
    async fn acquire_lease(
        &self,
        id: &SessionId,
        node: &NodeId,
        lease_timeout: Duration,
        now: Timestamp,
    ) -> Result<LeaseOutcome, StoreError>;

    /// Sessions that are open, or in which a turn is under way, and that [`SessionStore::acquire_lease`] would give.
    async fn free_sessions(
        &self,
        lease_timeout: Duration,
    ) -> Result<Vec<(AppName, SessionId)>, StoreError>;

    /// Gives a session back: anybody may take it.
    async fn release_lease(&self, lease: &Lease) -> Result<(), StoreError>;

    async fn session(&self, app: &AppName, id: &SessionId) -> Result<Option<Session>, StoreError>;

    /// All sessions of an app, oldest first.
    async fn sessions(&self, app: &AppName) -> Result<Vec<Session>, StoreError>;

    /// All sessions of all apps, oldest first: for the owner.
    async fn all_sessions(&self) -> Result<Vec<Session>, StoreError>;

    /// Whose session it is: for the owner.
    async fn app_of(&self, id: &SessionId) -> Result<Option<AppName>, StoreError>;

    /// The sessions that are not closed, oldest first.
    async fn open_sessions(&self) -> Result<Vec<Session>, StoreError>;

    /// Takes a turn in. `None` when there is no such session.
    async fn accept_turn(
        &self,
        app: &AppName,
        id: &SessionId,
        request: &TurnRequest,
        now: Timestamp,
    ) -> Result<Option<Accepted>, StoreError>;

    /// Finds the turn that was accepted under this idempotency key. `digest` is the request's digest.
    async fn find_repeat(
        &self,
        app: &AppName,
        id: &SessionId,
        key: &str,
        digest: &str,
    ) -> Result<Option<Repeat>, StoreError>;

    /// Keeps the agent's own name for the conversation.
    async fn keep_agent_session(&self, lease: &Lease, name: &str) -> Result<(), StoreError>;

    /// The turn's agent begins. `false` when it is over already.
    async fn start_turn(
        &self,
        lease: &Lease,
        index: u32,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Stores events and returns them with their numbers. Those of a turn come after its start.
    async fn append_events(
        &self,
        lease: &Lease,
        events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<Vec<SessionEvent>, StoreError>;

    /// Ends a turn: its state, its last events, its usage and the memory's share in one. `None` when
    /// it was over already, and nothing is changed.
    async fn end_turn(
        &self,
        lease: &Lease,
        index: u32,
        ending: TurnEnding,
        now: Timestamp,
    ) -> Result<Option<Vec<SessionEvent>>, StoreError>;

    async fn turn(
        &self,
        app: &AppName,
        id: &SessionId,
        index: u32,
    ) -> Result<Option<SessionTurn>, StoreError>;

    /// Events with a greater number, at most so many. `None` when there is no such session.
    async fn events(
        &self,
        app: &AppName,
        id: &SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Option<Vec<SessionEvent>>, StoreError>;

    /// The last events with a smaller number, at most so many, in order. `None` when there is no such
    /// session.
    async fn events_before(
        &self,
        app: &AppName,
        id: &SessionId,
        before: u64,
        limit: usize,
    ) -> Result<Option<Vec<SessionEvent>>, StoreError>;

    /// The last turns with a smaller number, at most so many, in order. `None` when there is no such
    /// session.
    async fn turns_before(
        &self,
        app: &AppName,
        id: &SessionId,
        before: u32,
        limit: usize,
    ) -> Result<Option<Vec<SessionTurn>>, StoreError>;

    /// The events of one turn in order.
    async fn turn_events(
        &self,
        id: &SessionId,
        index: u32,
    ) -> Result<Vec<SessionEvent>, StoreError>;

    /// Closes a session with an audit event; turns that wait are cancelled, each with a `turn` event.
    /// `false` when it was closed already.
    async fn close_session(
        &self,
        id: &SessionId,
        event: NewEvent,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// The turns of a session that wait, in order.
    async fn queued_turns(&self, id: &SessionId) -> Result<Vec<u32>, StoreError>;

    /// Open sessions in which nothing has happened since then and nothing is under way.
    async fn idle_since(&self, then: Timestamp) -> Result<Vec<(AppName, SessionId)>, StoreError>;

    /// Deletes sessions that were closed before then, and says which.
    async fn delete_closed(&self, then: Timestamp) -> Result<Vec<SessionId>, StoreError>;

    /// Deletes all sessions of an app with what is still for the memory, and says which.
    async fn delete_sessions_of(&self, app: &AppName) -> Result<Vec<SessionId>, StoreError>;

    /// What an app's turns that ended on this day (UTC) used.
    async fn usage_on(&self, app: &AppName, day: Timestamp) -> Result<TurnUsage, StoreError>;

    /// What was used from this day on, of one app or of all, oldest day first. It outlives the sessions.
    async fn usage_since(
        &self,
        first: Timestamp,
        app: Option<&AppName>,
    ) -> Result<Vec<UsageDay>, StoreError>;

    /// A turn outside any session has ended: what it used counts for its app's day, and what the memory
    /// is to remember of it is drained once.
    async fn note_turn(
        &self,
        app: &AppName,
        state: TurnState,
        usage: TurnUsage,
        outbox: Option<RememberedTurn>,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    /// Returns the oldest turns that the memory is to remember.
    async fn outbox(&self, limit: usize) -> Result<Vec<OutboxItem>, StoreError>;

    /// Removes turns that the memory has.
    async fn outbox_done(&self, ids: Vec<i64>) -> Result<(), StoreError>;
}
