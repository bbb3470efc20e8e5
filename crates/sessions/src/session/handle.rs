//! An open session as the rest of the program sees it: its queue, its running turn, its open
//! permission requests and its listeners.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hob_agents::client_tools::ToolExchange;
use hob_domain::session::{
    EventRange, NewEvent, Session, SessionEvent, SessionId, SessionSetup, SessionStore,
};
use hob_domain::{
    AgentChoices, AppName, Lease, SettingChange, StoreError, StoredConversation, Timestamp,
};
use serde_json::Value;
use tokio::sync::{Notify, OwnedMutexGuard, broadcast, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::inbox::{ActorInbox, PermissionAnswer, SettingsRequest};
use super::node_link::{LeaseStatus, NodeLink};
use super::permission;
use hob_agents::LivePermit;
use hob_agents::driver::{PermissionRequest, SettingRefusal};

/// How many events a listener may lag before it has to read them from the store.
const MAX_LISTENER_LAG_EVENTS: usize = 256;
/// Listeners read longer events from the store, so that few of them are in memory.
const MAX_ANNOUNCED_BYTES: usize = 16 << 10;
/// Pause before appending events again after an attempt with an unknown result.
const APPEND_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// A handle to one open session.
pub(super) struct SessionHandle {
    pub id: SessionId,
    pub app: AppName,
    pub setup: SessionSetup,
    /// The lease under which this node writes to the session.
    pub lease: Lease,
    link: Arc<dyn NodeLink>,
    /// The number of the last event known here; 0 when it is unknown.
    last_event: AtomicU64,
    state: Mutex<HandleState>,
    /// Held while a turn is stored and queued, so that both happen in one step.
    intake: Arc<tokio::sync::Mutex<()>>,
    /// Held while events are stored and announced, so that listeners receive them in order.
    publishing: tokio::sync::Mutex<()>,
    /// Held while the conversation is stored, so that no change of it is lost.
    keeping: tokio::sync::Mutex<()>,
    /// Held while a setting is changed and stored, so that both happen in the same order.
    changing: tokio::sync::Mutex<()>,
    pub wake: Notify,
    /// Cancelled when the session has to be closed.
    pub closing: CancellationToken,
    /// Cancelled when another node holds the lease, or may hold it.
    pub lost: CancellationToken,
    /// Cancelled once the session's actor has ended.
    pub ended: CancellationToken,
    listeners: broadcast::Sender<SessionUpdate>,
    answers: mpsc::UnboundedSender<PermissionAnswer>,
    settings: mpsc::UnboundedSender<SettingsRequest>,
}

/// What a handle is made from.
pub(super) struct OpenSession<'a> {
    pub session: &'a Session,
    pub lease: Lease,
    pub permit: LivePermit,
    /// Turns that wait, in order.
    pub queue: Vec<u32>,
}

/// What listeners of a session receive.
#[derive(Debug, Clone)]
pub(super) enum SessionUpdate {
    Event(Arc<SessionEvent>),
    /// A turn runs now. Its first event may take a while.
    TurnStarted(u32),
    /// The store has events that were not announced one by one.
    Reload,
}

struct HandleState {
    /// Waiting turns, in the order of their numbers.
    queue: VecDeque<u32>,
    /// The highest turn number seen here: every turn up to it waits, runs or is over.
    last_turn: u32,
    running: Option<RunningTurn>,
    asks: HashMap<String, PermissionRequest>,
    conversation: StoredConversation,
    permit: Option<LivePermit>,
    /// What the agent and the caller exchange about the caller's tools.
    tools: Option<Arc<ToolExchange>>,
}

/// The turn that runs now.
#[derive(Clone)]
pub(super) struct RunningTurn {
    pub turn: u32,
    /// Cancelled by the caller.
    pub cancel: CancellationToken,
    /// Cancelled when the turn is over.
    pub over: CancellationToken,
}

/// The turn that a cancel applies to.
pub(super) enum CancelTarget {
    Nothing,
    Running(RunningTurn),
    /// The turn waited and was removed from the queue.
    Queued(u32),
}

/// Why a permission request was not answered.
#[derive(Debug)]
pub(super) enum AnswerError {
    UnknownRequest,
    UnknownOption {
        options: Vec<String>,
    },
    /// The fields do not fit the form.
    InvalidContent(String),
}

impl SessionHandle {
    /// Creates a handle, and what its actor receives from callers.
    pub fn new(open: OpenSession<'_>, link: Arc<dyn NodeLink>) -> (Arc<SessionHandle>, ActorInbox) {
        let OpenSession { session, lease, permit, queue } = open;
        let (answers, answered) = mpsc::unbounded_channel();
        let (settings, requested) = mpsc::unbounded_channel();
        let conversation = session.agent_session.as_deref().unwrap_or_default();
        let state = HandleState {
            last_turn: queue
                .last()
                .map_or(session.turn_count, |last| session.turn_count.max(*last)),
            queue: queue.into(),
            running: None,
            tools: None,
            asks: HashMap::new(),
            conversation: StoredConversation::from_text(conversation),
            permit: Some(permit),
        };
        let handle = SessionHandle {
            id: session.id.clone(),
            app: session.app.clone(),
            setup: session.setup.clone(),
            lease,
            link,
            last_event: AtomicU64::new(session.last_event),
            state: Mutex::new(state),
            intake: Arc::default(),
            publishing: tokio::sync::Mutex::default(),
            keeping: tokio::sync::Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            wake: Notify::new(),
            closing: CancellationToken::new(),
            lost: CancellationToken::new(),
            ended: CancellationToken::new(),
            listeners: broadcast::channel(MAX_LISTENER_LAG_EVENTS).0,
            answers,
            settings,
        };
        (Arc::new(handle), ActorInbox { answers: answered, settings: requested })
    }

    fn state(&self) -> MutexGuard<'_, HandleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether another node could take this session over.
    pub fn is_shared(&self) -> bool {
        self.link.lease_status() != LeaseStatus::Exclusive
    }

    /// Appends a turn to the queue. Returns `false` if the ledger has earlier turns that are not
    /// known here: those come first.
    pub fn enqueue(&self, turn: u32) -> bool {
        let mut state = self.state();
        if turn > state.last_turn + 1 {
            return false;
        }
        if turn > state.last_turn {
            state.last_turn = turn;
            state.queue.push_back(turn);
            self.wake.notify_one();
        }
        true
    }

    /// Locks the intake. While the guard lives no turn is accepted and the session is not closed.
    pub async fn lock_intake(&self) -> OwnedMutexGuard<()> {
        self.intake.clone().lock_owned().await
    }

    /// Appends those of the ledger's waiting turns that are not known here, in order. Known turns
    /// are left alone: the ledger may have been read before they began.
    pub fn enqueue_missing(&self, turns: &[u32]) {
        let mut state = self.state();
        for turn in turns {
            if *turn > state.last_turn {
                state.last_turn = *turn;
                state.queue.push_back(*turn);
                self.wake.notify_one();
            }
        }
    }

    /// Marks the lease as lost, which ends the session on this node. Returns `false` if it was lost
    /// already.
    pub fn mark_lost(&self) -> bool {
        let first = !self.is_lost();
        self.lost.cancel();
        self.closing.cancel();
        first
    }

    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Puts a turn back at the front of the queue.
    pub fn requeue(&self, turn: u32) {
        self.state().queue.push_front(turn);
        self.wake.notify_one();
    }

    /// Removes the next turn from the queue and marks it as running.
    pub fn start_next_turn(&self) -> Option<RunningTurn> {
        let mut state = self.state();
        let turn = state.queue.pop_front()?;
        let running =
            RunningTurn { turn, cancel: CancellationToken::new(), over: CancellationToken::new() };
        state.running = Some(running.clone());
        Some(running)
    }

    /// Marks the running turn as over. Its end is durable by then.
    pub fn finish_turn(&self) {
        let mut state = self.state();
        state.asks.clear();
        if let Some(running) = state.running.take() {
            running.over.cancel();
        }
    }

    /// Returns whether no turn runs or waits.
    pub fn is_idle(&self) -> bool {
        let state = self.state();
        state.running.is_none() && state.queue.is_empty()
    }

    /// Returns whether a permission request is open, and how many turns wait.
    pub fn waiting(&self) -> (bool, usize) {
        let state = self.state();
        (!state.asks.is_empty(), state.queue.len())
    }

    /// Cancels the running turn, else removes the first one from the queue.
    pub fn cancel(&self) -> CancelTarget {
        let mut state = self.state();
        if let Some(running) = &state.running {
            running.cancel.cancel();
            return CancelTarget::Running(running.clone());
        }
        state.queue.pop_front().map_or(CancelTarget::Nothing, CancelTarget::Queued)
    }

    /// Opens a permission request for the caller to answer.
    pub fn open_request(&self, ask: PermissionRequest) {
        self.state().asks.insert(ask.id.clone(), ask);
    }

    /// Closes a permission request. Returns it if it was still open.
    pub fn close_request(&self, ask: &str) -> Option<PermissionRequest> {
        self.state().asks.remove(ask)
    }

    /// Answers an open permission request with an option's id or kind.
    pub fn answer(
        &self,
        ask: &str,
        option: &str,
        content: Option<Value>,
        message: Option<String>,
    ) -> Result<(), AnswerError> {
        let mut state = self.state();
        let open = state.asks.get(ask).ok_or(AnswerError::UnknownRequest)?;
        let Some(offer) = permission::find_option(open, option) else {
            let options = open.options.iter().map(|offer| offer.id.clone()).collect();
            return Err(AnswerError::UnknownOption { options });
        };
        permission::check_content(open, offer, content.as_ref())
            .map_err(AnswerError::InvalidContent)?;
        let (ask_id, option) = (ask.to_owned(), offer.id.clone());
        let answer = PermissionAnswer { ask: ask_id, option, content, message };
        state.asks.remove(ask);
        let _ = self.answers.send(answer);
        Ok(())
    }

    pub fn tools(&self) -> Option<Arc<ToolExchange>> {
        self.state().tools.clone()
    }

    pub fn set_tools(&self, tools: Option<Arc<ToolExchange>>) {
        self.state().tools = tools;
    }

    pub fn running_turn(&self) -> Option<u32> {
        self.state().running.as_ref().map(|running| running.turn)
    }

    /// Returns the agent's own name for the conversation.
    pub fn conversation(&self) -> Option<String> {
        self.state().conversation.name.clone()
    }

    /// Returns the settings that the caller has chosen.
    pub fn choices(&self) -> AgentChoices {
        self.state().conversation.choices.clone()
    }

    /// Stores a change of the conversation, and then makes it here.
    pub async fn keep_conversation(
        &self,
        store: &dyn SessionStore,
        change: impl FnOnce(&mut StoredConversation) + Send,
    ) -> Result<(), StoreError> {
        let keep = async {
            let _keeping = self.keeping.lock().await;
            let mut conversation = self.state().conversation.clone();
            change(&mut conversation);
            store.keep_agent_session(&self.lease, &conversation.to_text()).await?;
            self.state().conversation = conversation;
            Ok::<(), StoreError>(())
        };
        // A ledger that does not answer must not keep the agent of a lost session alive.
        tokio::select! {
            kept = keep => kept,
            () = self.lost.cancelled() => Err(StoreError::Lost),
        }
    }

    /// Waits until no other change of a setting is under way. The next one begins when the guard is dropped.
    pub async fn lock_settings(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.changing.lock().await
    }

    /// Asks the session's actor for the agent's settings, after a change if there is one. The answer never comes if the
    /// agent ends first.
    pub fn request_settings(
        &self,
        change: Option<SettingChange>,
    ) -> oneshot::Receiver<Result<Value, SettingRefusal>> {
        let (reply, answer) = oneshot::channel();
        let _ = self.settings.send(SettingsRequest { change, reply });
        answer
    }

    /// Frees the session's place among the live ones. Its agent may still be ending.
    pub fn release_permit(&self) {
        self.state().permit = None;
    }

    pub fn subscribe(&self) -> broadcast::Receiver<SessionUpdate> {
        self.listeners.subscribe()
    }

    /// Tells the listeners that a turn runs now.
    pub fn announce_start(&self, turn: u32) {
        let _ = self.listeners.send(SessionUpdate::TurnStarted(turn));
    }

    /// Stores events, then sends them to the listeners.
    pub async fn append(
        &self,
        store: &dyn SessionStore,
        events: Vec<NewEvent>,
    ) -> Result<(), StoreError> {
        let _publishing = self.publishing.lock().await;
        self.check_lease()?;
        let append = async {
            let stored = store.append_events(&self.lease, events.clone(), Timestamp::now()).await;
            match stored {
                Err(StoreError::Unavailable(error)) if self.is_shared() => {
                    self.append_again(store, events, error).await
                }
                stored => stored,
            }
        };
        // A ledger that does not answer must not keep the agent of a lost session alive.
        let stored = tokio::select! {
            stored = append => stored,
            () = self.lost.cancelled() => Err(StoreError::Lost),
        };
        self.announce(self.note_loss(stored)?);
        Ok(())
    }

    /// Appends events after the connection to the ledger broke during an append. Only this node
    /// appends to the session, so the ledger's last event number tells whether the events were
    /// stored.
    async fn append_again(
        &self,
        store: &dyn SessionStore,
        events: Vec<NewEvent>,
        mut error: String,
    ) -> Result<Vec<SessionEvent>, StoreError> {
        let last = self.last_event.load(Ordering::Acquire);
        while last > 0 && self.link.lease_status() == LeaseStatus::Valid {
            tokio::time::sleep(APPEND_RETRY_INTERVAL).await;
            let found = match store.session(&self.app, &self.id).await {
                Ok(Some(session)) => session.last_event,
                Ok(None) => return Err(StoreError::Lost),
                Err(StoreError::Unavailable(text)) => {
                    error = text;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if found == last {
                match store.append_events(&self.lease, events.clone(), Timestamp::now()).await {
                    Err(StoreError::Unavailable(text)) => error = text,
                    stored => return stored,
                }
            } else if found == last + events.len() as u64 {
                let range = EventRange::After { after: last, limit: events.len() };
                let stored = store.events(&self.app, &self.id, range).await?;
                return stored.ok_or(StoreError::Lost);
            } else {
                // Another node has appended events.
                return Err(StoreError::Lost);
            }
        }
        Err(StoreError::Unavailable(error))
    }

    /// Runs a store call that stores events, then sends those events to the listeners.
    pub async fn publish<T>(
        &self,
        work: impl Future<Output = Result<(T, Vec<SessionEvent>), StoreError>>,
    ) -> Result<T, StoreError> {
        let _publishing = self.publishing.lock().await;
        self.check_lease()?;
        let done = tokio::select! {
            done = work => done,
            () = self.lost.cancelled() => Err(StoreError::Lost),
        };
        let (value, stored) = self.note_loss(done)?;
        self.announce(stored);
        Ok(value)
    }

    /// Refuses writes after the lease is lost, even while no other node holds it yet: what the
    /// agent says while Hob stops it is not how its turn ended.
    fn check_lease(&self) -> Result<(), StoreError> {
        if self.is_lost() { Err(StoreError::Lost) } else { Ok(()) }
    }

    /// Marks the session as lost if the store says that another node holds the lease.
    fn note_loss<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if matches!(result, Err(StoreError::Lost)) && self.is_shared() {
            self.mark_lost();
        }
        result
    }

    fn announce(&self, stored: Vec<SessionEvent>) {
        if let Some(last) = stored.last() {
            self.last_event.store(last.seq, Ordering::Release);
            self.link.notify(&self.id);
        }
        for event in stored {
            // Having no listeners is fine.
            let _ = self.listeners.send(match event.event.body.len() > MAX_ANNOUNCED_BYTES {
                true => SessionUpdate::Reload,
                false => SessionUpdate::Event(Arc::new(event)),
            });
        }
    }

    /// Makes listeners read the store, which has events that are not known here.
    pub fn announce_reload(&self) {
        self.last_event.store(0, Ordering::Release);
        let _ = self.listeners.send(SessionUpdate::Reload);
        self.link.notify(&self.id);
    }
}
