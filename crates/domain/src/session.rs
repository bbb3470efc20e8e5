//! Sessions: conversations with an agent that outlive processes, connections and restarts.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::agent::AgentName;
use crate::app::AppName;
pub use crate::event::{EventKind, NewEvent, SessionEvent, turn_event};
use crate::file::prompt_with_files;
use crate::ids::NodeId;
pub use crate::ids::SessionId;
use crate::node::{Lease, LeaseOutcome};
pub use crate::outbox::{OutboxChange, OutboxItem, RememberedTurn};
pub use crate::permissions::Permissions;
use crate::store_error::StoreError;
pub use crate::turn_state::TurnState;
pub use crate::usage::{TurnUsage, UsageDay};

/// What a session runs with. It is stored, so that a resumed conversation continues as it began.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionSetup {
    pub agent: AgentName,
    pub meta: Value,
    /// The folder that the agent works in.
    pub cwd: String,
    pub model: Option<String>,
    pub system: Option<String>,
    pub permissions: Permissions,
    /// The MCP servers in the format of the Agent Client Protocol.
    pub mcp_servers: Value,
}

/// A session in the ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    pub id: SessionId,
    pub app: AppName,
    pub setup: SessionSetup,
    pub created_at: Timestamp,
    pub closed_at: Option<Timestamp>,
    pub turn_count: u32,
    pub last_turn_at: Option<Timestamp>,
    /// Whether a turn runs or is queued.
    pub busy: bool,
    /// The agent's own name for the conversation, by which it is resumed, with the settings that were
    /// chosen for it; see [`StoredConversation`](crate::StoredConversation). The name is stored before the first
    /// prompt is sent, so without one the agent has received no prompt.
    pub agent_session: Option<String>,
    /// The usage of all its turns.
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

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// Ready for a turn.
    Idle,
    Running,
    Closed,
}

/// The end of a turn outside any session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionlessTurn {
    pub app: AppName,
    pub state: TurnState,
    pub usage: TurnUsage,
    /// What the memory is to remember of the turn.
    pub outbox: Option<RememberedTurn>,
}

/// The most sessions that may be open in the ledger; zero means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenLimits {
    /// The limit per app.
    pub app: usize,
    /// The limit over all apps.
    pub all: usize,
}

impl OpenLimits {
    /// Returns the refusal of another session, given the open sessions of its app and of all apps;
    /// `None` if the limits allow another one.
    pub fn refusal(&self, of_app: usize, of_all: usize) -> Option<Created> {
        if self.app > 0 && of_app >= self.app {
            return Some(Created::AppFull(of_app));
        }
        (self.all > 0 && of_all >= self.all).then_some(Created::Full(of_all))
    }
}

/// The outcome of creating a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    Made(Lease),
    /// The app already has this many open sessions.
    AppFull(usize),
    /// All apps together already have this many open sessions.
    Full(usize),
}

/// A turn in the ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionTurn {
    /// The number of the turn; 1 for the first.
    pub index: u32,
    pub state: TurnState,
    /// The user's text.
    pub prompt: String,
    /// The paths of the request's files.
    pub files: Vec<String>,
    /// The agent's text.
    pub text: String,
    pub stop_reason: Option<String>,
    /// The error message for the caller.
    pub error: Option<String>,
    pub queued_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub usage: TurnUsage,
}

impl SessionTurn {
    /// Returns the prompt as the agent receives it: the paths of the files, then the user's text.
    pub fn rendered_prompt(&self) -> String {
        prompt_with_files(&self.prompt, &self.files)
    }
}

/// A request for a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRequest {
    /// The user's text.
    pub prompt: String,
    /// The paths of the request's files.
    pub files: Vec<String>,
    /// A repeated request under this key starts no turn.
    pub idempotency: Option<IdempotencyKey>,
    /// The most turns that may be queued.
    pub queue: usize,
}

/// The name under which a request for a turn may be repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The caller's name for the request.
    pub key: String,
    /// The digest of the request, by which another request under this key is recognised.
    pub digest: String,
}

/// The outcome of a request for a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// The turn is queued under this number.
    Queued(u32),
    /// An equal request was accepted before, as this turn.
    Repeated(u32),
    /// The idempotency key was used for another request.
    OtherBody,
    QueueFull,
    Closed,
}

/// What an idempotency key was used for before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// An equal request, which became this turn.
    Same(u32),
    OtherRequest,
}

/// The end of a turn, with everything that is stored together with it.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnEnding {
    pub state: TurnState,
    pub text: String,
    pub stop_reason: Option<String>,
    pub error: Option<String>,
    pub usage: TurnUsage,
    /// The last events of the turn.
    pub events: Vec<NewEvent>,
    /// The agent's current name for the conversation.
    pub agent_session: Option<String>,
    /// What the memory is to remember of the turn.
    pub outbox: Option<RememberedTurn>,
}

/// Usage that is not stored with the end of a session's turn.
#[derive(Debug, Clone, PartialEq)]
pub enum UsageNote {
    /// A turn outside any session. What the memory is to remember of it goes to the outbox.
    SessionlessTurn(SessionlessTurn),
    /// A cost that became known after the end of its turn: it is added to the turn, to its session and to the usage of its
    /// app's day. No turn is counted.
    LateCost { target: CostTarget, cost_usd: f64 },
}

/// What a cost belongs to that an agent reported after the end of its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CostTarget {
    /// A turn of a session. The holder of its lease adds the cost.
    Turn { lease: Lease, index: u32 },
    /// A turn of this app outside any session.
    Sessionless(AppName),
}

/// A choice of sessions. All choices but the first, and pages of one app, are for the owner and for Hob itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionFilter {
    /// The sessions of this app.
    App(AppName),
    /// The sessions of all apps.
    All,
    /// A part of the sessions of one app, or of all apps.
    Page(SessionPage),
    /// The session with this id, of any app.
    Id(SessionId),
    /// The open sessions.
    Open,
    /// The open sessions without a running or queued turn and without activity since this time.
    IdleSince(Timestamp),
    /// The sessions that are open or have a running or queued turn, and have no lease holder that
    /// has sent a heartbeat within this timeout.
    Unleased(Duration),
    /// The sessions that have a running or queued turn, and no lease holder that has sent a heartbeat
    /// within this timeout.
    Orphaned(Duration),
}

/// The most bytes of descriptions of sessions that a store returns at once. If the first session has more, it is returned
/// alone.
pub const MAX_SESSION_PAGE_BYTES: usize = 512 << 10;

/// A part of a list of sessions, oldest first, closed ones included. A store may return fewer sessions than there are,
/// but at least one; see [`MAX_SESSION_PAGE_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPage {
    /// The app whose sessions are listed; `None` for those of all apps, which are for the owner.
    pub app: Option<AppName>,
    /// The session that the page begins after, by its creation and its id.
    pub after: Option<(Timestamp, SessionId)>,
    pub limit: usize,
}

/// A choice of sessions to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteFilter {
    /// The sessions that were closed before this time, and the responses that were created before it.
    ClosedBefore(Timestamp),
    /// All sessions of a removed app, together with its documents, its outbox and its usage.
    App(AppName),
}

/// A part of a session's turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnRange {
    /// The turn with this number.
    One(u32),
    /// The last `limit` turns before this number.
    Before { before: u32, limit: usize },
    /// The turns that are queued.
    Queued,
}

/// The most bytes of events that a store returns at once. If the first event is larger, it is returned alone.
pub const MAX_EVENT_PAGE_BYTES: usize = 1 << 20;

/// A part of a session's events. A store may return fewer events than there are, but at least one; see
/// [`MAX_EVENT_PAGE_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventRange {
    /// At most `limit` events after this number.
    After { after: u64, limit: usize },
    /// The last `limit` events before this number.
    Before { before: u64, limit: usize },
    /// The first events of this turn.
    Turn(u32),
}

/// Storage of sessions.
///
/// Contract: every call is atomic, and durable once it returned `Ok`. Events of a session are
/// numbered without gaps in the order of the calls that stored them. A call that names an app finds
/// nothing of another app. A call that only the lease holder may make takes its [`Lease`], and
/// fails with [`StoreError::Lost`] if a newer lease exists.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Stores a new session with its first event, unless a limit is reached. The creating node gets
    /// the lease, with fence 1.
    async fn create_session(
        &self,
        session: &Session,
        event: NewEvent,
        node: &NodeId,
        limits: OpenLimits,
    ) -> Result<Created, StoreError>;

    /// Acquires the lease of a session that has none, or whose holder is the caller itself or has
    /// sent no heartbeat within the timeout. Running turns are interrupted, each with a `turn`
    /// event under the new fence. Queued turns stay queued.
    async fn acquire_lease(
        &self,
        id: &SessionId,
        node: &NodeId,
        lease_timeout: Duration,
        now: Timestamp,
    ) -> Result<LeaseOutcome, StoreError>;

    /// Releases a lease, so that any node may acquire it.
    async fn release_lease(&self, lease: &Lease) -> Result<(), StoreError>;

    async fn session(&self, app: &AppName, id: &SessionId) -> Result<Option<Session>, StoreError>;

    /// Returns the sessions that pass a filter, oldest first.
    async fn sessions(&self, filter: &SessionFilter) -> Result<Vec<Session>, StoreError>;

    /// Stores and queues a turn. Returns `None` if the session does not exist.
    async fn accept_turn(
        &self,
        app: &AppName,
        id: &SessionId,
        request: &TurnRequest,
        now: Timestamp,
    ) -> Result<Option<Accepted>, StoreError>;

    /// Finds the turn that was accepted under this idempotency key.
    async fn find_repeat(
        &self,
        app: &AppName,
        id: &SessionId,
        key: &IdempotencyKey,
    ) -> Result<Option<Repeat>, StoreError>;

    /// Stores the agent's own name for the conversation.
    async fn keep_agent_session(&self, lease: &Lease, name: &str) -> Result<(), StoreError>;

    /// Marks a turn as running. Returns `false` if it is over already.
    async fn start_turn(
        &self,
        lease: &Lease,
        index: u32,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Stores events and returns them with their numbers. Events of a turn come after its start.
    async fn append_events(
        &self,
        lease: &Lease,
        events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<Vec<SessionEvent>, StoreError>;

    /// Ends a turn: stores its state, its last events, its usage and what the memory is to
    /// remember. Returns `None` and changes nothing if the turn was over already.
    async fn end_turn(
        &self,
        lease: &Lease,
        index: u32,
        ending: TurnEnding,
        now: Timestamp,
    ) -> Result<Option<Vec<SessionEvent>>, StoreError>;

    /// Returns turns of a session, in order; `None` if the session does not exist.
    async fn turns(
        &self,
        app: &AppName,
        id: &SessionId,
        range: TurnRange,
    ) -> Result<Option<Vec<SessionTurn>>, StoreError>;

    /// Returns events of a session, in order; `None` if the session does not exist.
    async fn events(
        &self,
        app: &AppName,
        id: &SessionId,
        range: EventRange,
    ) -> Result<Option<Vec<SessionEvent>>, StoreError>;

    /// Closes a session with an audit event. Queued turns are cancelled, each with a `turn` event.
    /// Returns `false` if the session was closed already.
    async fn close_session(
        &self,
        id: &SessionId,
        event: NewEvent,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Deletes the sessions that pass a filter, and returns them.
    async fn delete_sessions(&self, filter: &DeleteFilter) -> Result<Vec<SessionId>, StoreError>;

    /// Returns the usage per app and day (UTC) from the first day to the last one, if there is a last
    /// one, of one app or of all. The oldest day comes first. Usage outlives the sessions.
    async fn usage(
        &self,
        first: Timestamp,
        last: Option<Timestamp>,
        app: Option<&AppName>,
    ) -> Result<Vec<UsageDay>, StoreError>;

    /// Stores usage that does not come with the end of a session's turn.
    async fn note_usage(&self, note: &UsageNote, now: Timestamp) -> Result<(), StoreError>;

    /// Returns entries of the outbox, without the given ones and those that were set aside: first those with the fewest
    /// attempts, and of these the oldest.
    async fn outbox(&self, limit: usize, without: &[i64]) -> Result<Vec<OutboxItem>, StoreError>;

    /// Changes entries of the outbox. Entries that are gone are left out.
    async fn change_outbox(&self, ids: Vec<i64>, note: OutboxChange) -> Result<(), StoreError>;
}
