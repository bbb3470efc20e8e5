//! A connection of a client: requests one way, notifications and questions the other.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hob_domain::session::SessionId;
use hob_domain::{AgentName, App, AppFilter, AppName};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::acp_protocol;
use crate::state::Gateway;

/// How many messages may wait for a client that does not read. Then the connection ends.
const MAX_WAITING_MESSAGES: usize = 4096;
/// How many KiB of messages may wait for a client that does not read. One message may be larger.
const MAX_WAITING_KIB: usize = 1024;
/// How many requests of a client may run at a time.
pub(super) const MAX_REQUESTS: usize = 64;

/// A connection of an app. Clones share it.
#[derive(Clone)]
pub(super) struct Connection {
    shared: Arc<Shared>,
}

struct Shared {
    gateway: Arc<Gateway>,
    app: App,
    /// The agent of new sessions.
    agent: AgentName,
    outbound: mpsc::Sender<Outbound>,
    /// The KiB of notifications that may still wait.
    room: Arc<Semaphore>,
    /// The KiB of answers and questions that may still wait.
    answer_room: Arc<Semaphore>,
    /// Cancelled when the connection has ended.
    ended: CancellationToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next_id: u64,
    requests: usize,
    /// Questions to the client that wait for their answers.
    waiting: HashMap<u64, oneshot::Sender<Value>>,
    /// The turns whose updates this connection shows.
    followed: HashSet<(SessionId, u32)>,
    /// The sessions whose settings this connection shows.
    watched: HashSet<SessionId>,
    /// Whether the client shows forms.
    shows_forms: bool,
}

/// The right to show a turn's updates, which one task of a connection has.
pub(super) struct FollowedTurn {
    connection: Connection,
    turn: (SessionId, u32),
}

impl Drop for FollowedTurn {
    fn drop(&mut self) {
        self.connection.state().followed.remove(&self.turn);
    }
}

/// The right to show a session's settings, which one task of a connection has.
pub(super) struct WatchedSession {
    connection: Connection,
    pub id: SessionId,
}

impl Drop for WatchedSession {
    fn drop(&mut self) {
        self.connection.state().watched.remove(&self.id);
    }
}

/// A question to the client. Dropping it withdraws the question.
struct Question<'c> {
    connection: &'c Connection,
    id: u64,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.connection.state().waiting.remove(&self.id);
    }
}

/// A message to the client.
#[derive(Debug)]
pub(super) struct Outbound {
    /// The session that it belongs to.
    pub session: Option<String>,
    pub text: String,
    /// The room that it takes, until it is sent.
    pub room: OwnedSemaphorePermit,
}

/// Returns how many KiB a message takes of the room for waiting messages.
fn room_of(text: &str) -> u32 {
    u32::try_from(text.len().div_ceil(1024).min(MAX_WAITING_KIB)).unwrap_or(u32::MAX)
}

impl Connection {
    /// Opens a connection. Messages to the client arrive at the receiver.
    pub fn open(
        gateway: Arc<Gateway>,
        app: App,
        agent: AgentName,
    ) -> (Connection, mpsc::Receiver<Outbound>) {
        let (outbound, receiver) = mpsc::channel(MAX_WAITING_MESSAGES);
        let (ended, state) = (CancellationToken::new(), Mutex::default());
        let room = || Arc::new(Semaphore::new(MAX_WAITING_KIB));
        let (room, answer_room) = (room(), room());
        let shared = Shared { gateway, app, agent, outbound, room, answer_room, ended, state };
        (Connection { shared: Arc::new(shared) }, receiver)
    }

    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.shared.gateway
    }

    pub fn app(&self) -> &AppName {
        &self.shared.app.name
    }

    /// Returns whether the app still exists. An app that was removed and created again is another app.
    pub async fn is_allowed(&self) -> bool {
        let own = &self.shared.app;
        if own.name == AppName::owner() {
            return true;
        }
        let apps = self.shared.gateway.apps.apps(AppFilter::All).await;
        // If the store can't be read, the methods say so.
        apps.map_or(true, |apps| {
            apps.iter().any(|app| app.name == own.name && app.created_at == own.created_at)
        })
    }

    pub fn agent(&self) -> &AgentName {
        &self.shared.agent
    }

    pub fn ended(&self) -> &CancellationToken {
        &self.shared.ended
    }

    /// Ends the connection. Turns go on.
    pub fn end(&self) {
        self.shared.ended.cancel();
        self.state().waiting.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request that begins. Returns `false` if too many run already.
    pub fn begin_request(&self) -> bool {
        let mut state = self.state();
        let has_room = state.requests < MAX_REQUESTS;
        state.requests += usize::from(has_room);
        has_room
    }

    pub fn end_request(&self) {
        self.state().requests -= 1;
    }

    /// Notes what the parameters of `initialize` say of the client.
    pub fn introduce(&self, params: &Value) {
        self.state().shows_forms = acp_protocol::shows_forms(params);
    }

    pub fn shows_forms(&self) -> bool {
        self.state().shows_forms
    }

    /// Takes the answer to an earlier question.
    pub fn take_answer(&self, message: Value) {
        let waiting = message["id"].as_u64().and_then(|id| self.state().waiting.remove(&id));
        if let Some(waiting) = waiting {
            let _ = waiting.send(message);
        }
    }

    /// Takes the right to show a turn's updates; `None` if another task of this connection has it.
    pub fn follow(&self, id: &SessionId, turn: u32) -> Option<FollowedTurn> {
        let turn = (id.clone(), turn);
        let is_new = self.state().followed.insert(turn.clone());
        is_new.then(|| FollowedTurn { connection: self.clone(), turn })
    }

    /// Returns whether a task of this connection shows a turn's updates.
    pub fn follows(&self, id: &SessionId, turn: u32) -> bool {
        self.state().followed.contains(&(id.clone(), turn))
    }

    /// Takes the right to show a session's settings; `None` if another task of this connection has it.
    pub fn watch(&self, id: &SessionId) -> Option<WatchedSession> {
        let is_new = self.state().watched.insert(id.clone());
        is_new.then(|| WatchedSession { connection: self.clone(), id: id.clone() })
    }

    /// Sends an answer. A client that does not read loses its connection.
    pub fn send(&self, session: Option<String>, message: Value) {
        let text = message.to_string();
        let room = self.shared.answer_room.clone().try_acquire_many_owned(room_of(&text));
        let sent = room.is_ok_and(|room| {
            self.shared.outbound.try_send(Outbound { session, text, room }).is_ok()
        });
        if !sent {
            self.end();
        }
    }

    /// Sends a notification, and waits until there is room for it.
    pub async fn notify(&self, session: &str, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        let text = message.to_string();
        let send = async {
            let room = self.shared.room.clone().acquire_many_owned(room_of(&text)).await.ok()?;
            let message = Outbound { session: Some(session.to_owned()), text, room };
            self.shared.outbound.send(message).await.ok()
        };
        tokio::select! {
            sent = send => if sent.is_none() { self.end() },
            () = self.shared.ended.cancelled() => {}
        }
    }

    /// Asks the client. Returns `null` if it answers with an error, and `None` if it has gone.
    pub async fn ask(&self, session: &str, method: &str, params: Value) -> Option<Value> {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut state = self.state();
            state.next_id += 1;
            let id = state.next_id;
            state.waiting.insert(id, sender);
            id
        };
        let _question = Question { connection: self, id };
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(Some(session.to_owned()), message);
        Some(answer.await.ok()?.get("result").cloned().unwrap_or_default())
    }
}
