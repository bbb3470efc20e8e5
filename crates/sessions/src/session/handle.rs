//! An open session as the rest of the program meets it: its queue, its running turn, its questions and
//! those who listen.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hob_domain::session::{NewEvent, Session, SessionEvent, SessionId, SessionSetup, SessionStore};
use hob_domain::{AppName, Lease, StoreError, Timestamp};
use tokio::sync::{Notify, OwnedMutexGuard, broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use super::permission;
use super::placement::cluster::Cluster;
use hob_agents::LivePermit;
use hob_agents::driver::PermissionRequest;

/// How many events a listener may be behind before it reads them from the store.
const BEHIND: usize = 256;
/// Events that may not have been stored are tried again after this.
const APPEND_AGAIN: Duration = Duration::from_millis(200);

/// One open session.
pub(super) struct Entry {
    pub id: SessionId,
    pub app: AppName,
    pub setup: SessionSetup,
    /// By which we may write to it.
    pub lease: Lease,
    /// Those who want to know what is new.
    cluster: Option<Arc<Cluster>>,
    /// The number of the last event that we know of; 0 when we can't tell.
    last: AtomicU64,
    state: Mutex<State>,
    /// Taking a turn into the store and into the queue is one step.
    pub intake: Arc<tokio::sync::Mutex<()>>,
    /// So is storing events and telling listeners: they hear them in order.
    publishing: tokio::sync::Mutex<()>,
    pub wake: Notify,
    /// Cancelled when the session is to be closed.
    pub closing: CancellationToken,
    /// Cancelled when another node has it, or may have it.
    pub lost: CancellationToken,
    /// Cancelled once its actor is gone.
    pub ended: CancellationToken,
    listeners: broadcast::Sender<News>,
    answers: mpsc::UnboundedSender<Answered>,
}

/// What listeners hear.
#[derive(Debug, Clone)]
pub(super) enum News {
    Event(Arc<SessionEvent>),
    /// The store has more than was said.
    Look,
}

/// A caller's answer to a question.
#[derive(Debug)]
pub(super) struct Answered {
    pub ask: String,
    pub option: String,
}

struct State {
    /// In the order of their numbers.
    queue: VecDeque<u32>,
    /// All turns up to this one are known here: they wait, run or are over.
    known: u32,
    running: Option<Running>,
    asks: HashMap<String, PermissionRequest>,
    /// The agent's own name for the conversation.
    conversation: Option<String>,
    permit: Option<LivePermit>,
}

#[derive(Clone)]
pub(super) struct Running {
    pub turn: u32,
    /// Cancelled by the caller.
    pub cancel: CancellationToken,
    /// Cancelled when the turn is over.
    pub over: CancellationToken,
}

/// What there was to cancel.
pub(super) enum Cancelled {
    Nothing,
    Running(Running),
    /// It waited, and was taken from the queue.
    Waiting(u32),
}

/// Why a question was not answered.
#[derive(Debug)]
pub(super) enum NotAnswered {
    NoSuchAsk,
    NoSuchOption { options: Vec<String> },
}

impl Entry {
    pub fn new(
        session: &Session,
        lease: Lease,
        permit: LivePermit,
        queue: Vec<u32>,
        cluster: Option<Arc<Cluster>>,
    ) -> (Arc<Entry>, mpsc::UnboundedReceiver<Answered>) {
        let (answers, answered) = mpsc::unbounded_channel();
        let state = State {
            known: queue.last().map_or(session.turn_count, |last| session.turn_count.max(*last)),
            queue: queue.into(),
            running: None,
            asks: HashMap::new(),
            conversation: session.agent_session.clone(),
            permit: Some(permit),
        };
        let entry = Entry {
            id: session.id.clone(),
            app: session.app.clone(),
            setup: session.setup.clone(),
            lease,
            cluster,
            last: AtomicU64::new(session.last_event),
            state: Mutex::new(state),
            intake: Arc::default(),
            publishing: tokio::sync::Mutex::default(),
            wake: Notify::new(),
            closing: CancellationToken::new(),
            lost: CancellationToken::new(),
            ended: CancellationToken::new(),
            listeners: broadcast::channel(BEHIND).0,
            answers,
        };
        (Arc::new(entry), answered)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a turn at the end of the queue. `false` when others have taken in turns before it that are not known here: they
    /// come first.
    pub fn enqueue(&self, turn: u32) -> bool {
        let mut state = self.state();
        if turn > state.known + 1 {
            return false;
        }
        if turn > state.known {
            state.known = turn;
            state.queue.push_back(turn);
            self.wake.notify_one();
        }
        true
    }

    /// While this is held no turn comes in, and the session is not closed.
    pub async fn take_in(&self) -> OwnedMutexGuard<()> {
        self.intake.clone().lock_owned().await
    }

    /// Puts those turns into the queue of which nobody has told us, of all that wait, in order. What is known here is left
    /// alone: the ledger may have been asked before it began.
    pub fn enqueue_missing(&self, turns: &[u32]) {
        let mut state = self.state();
        for turn in turns {
            if *turn > state.known {
                state.known = *turn;
                state.queue.push_back(*turn);
                self.wake.notify_one();
            }
        }
    }

    /// It is another node's. `false` when that was known.
    pub fn lose(&self) -> bool {
        let first = !self.is_lost();
        self.lost.cancel();
        self.closing.cancel();
        first
    }

    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Puts a turn that was taken from the queue back to its beginning.
    pub fn put_back(&self, turn: u32) {
        self.state().queue.push_front(turn);
        self.wake.notify_one();
    }

    /// The next turn, which runs from now on.
    pub fn begin_next(&self) -> Option<Running> {
        let mut state = self.state();
        let turn = state.queue.pop_front()?;
        let running =
            Running { turn, cancel: CancellationToken::new(), over: CancellationToken::new() };
        state.running = Some(running.clone());
        Some(running)
    }

    /// The running turn is over and durable.
    pub fn finish(&self) {
        let mut state = self.state();
        state.asks.clear();
        if let Some(running) = state.running.take() {
            running.over.cancel();
        }
    }

    /// Whether nothing runs or waits.
    pub fn is_idle(&self) -> bool {
        let state = self.state();
        state.running.is_none() && state.queue.is_empty()
    }

    /// Whether a question waits for its answer, and how many turns wait.
    pub fn waiting(&self) -> (bool, usize) {
        let state = self.state();
        (!state.asks.is_empty(), state.queue.len())
    }

    /// Cancels what runs, else what waits first.
    pub fn cancel(&self) -> Cancelled {
        let mut state = self.state();
        if let Some(running) = &state.running {
            running.cancel.cancel();
            return Cancelled::Running(running.clone());
        }
        state.queue.pop_front().map_or(Cancelled::Nothing, Cancelled::Waiting)
    }

    /// Makes a question answerable.
    pub fn offer(&self, ask: PermissionRequest) {
        self.state().asks.insert(ask.id.clone(), ask);
    }

    /// A question that nobody answers any more.
    pub fn withdraw(&self, ask: &str) -> Option<PermissionRequest> {
        self.state().asks.remove(ask)
    }

    /// Answers a question.
    pub fn answer(&self, ask: &str, word: &str) -> Result<(), NotAnswered> {
        let mut state = self.state();
        let known = state.asks.get(ask).ok_or(NotAnswered::NoSuchAsk)?;
        let Some(offer) = permission::meant(known, word) else {
            let options = known.options.iter().map(|offer| offer.id.clone()).collect();
            return Err(NotAnswered::NoSuchOption { options });
        };
        let answered = Answered { ask: ask.to_owned(), option: offer.id.clone() };
        state.asks.remove(ask);
        let _ = self.answers.send(answered);
        Ok(())
    }

    pub fn conversation(&self) -> Option<String> {
        self.state().conversation.clone()
    }

    pub fn set_conversation(&self, name: String) {
        self.state().conversation = Some(name);
    }

    /// Gives its place back: it is closed, only its agent is still ending.
    pub fn release(&self) {
        self.state().permit = None;
    }

    pub fn listen(&self) -> broadcast::Receiver<News> {
        self.listeners.subscribe()
    }

    /// Stores events, then tells those who listen.
    pub async fn append(
        &self,
        store: &dyn SessionStore,
        events: Vec<NewEvent>,
    ) -> Result<(), StoreError> {
        let _one = self.publishing.lock().await;
        self.still_ours()?;
        let append = async {
            let stored = store.append_events(&self.lease, events.clone(), Timestamp::now()).await;
            match (stored, &self.cluster) {
                (Err(StoreError::Unavailable(error)), Some(cluster)) => {
                    self.append_again(store, cluster, events, error).await
                }
                (stored, _) => stored,
            }
        };
        // A ledger that does not answer must not keep an agent alive that is no longer ours.
        let stored = tokio::select! {
            stored = append => stored,
            () = self.lost.cancelled() => Err(StoreError::Lost),
        };
        self.announce(self.noted(stored)?);
        Ok(())
    }

    /// The connection to the ledger broke, and nobody knows whether the events were stored. As nobody but us stores any, the
    /// last number says it.
    async fn append_again(
        &self,
        store: &dyn SessionStore,
        cluster: &Cluster,
        events: Vec<NewEvent>,
        mut error: String,
    ) -> Result<Vec<SessionEvent>, StoreError> {
        let last = self.last.load(Ordering::Acquire);
        while last > 0 && cluster.is_heard_of() {
            tokio::time::sleep(APPEND_AGAIN).await;
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
                let stored = store.events(&self.app, &self.id, last, events.len()).await?;
                return stored.ok_or(StoreError::Lost);
            } else {
                // Not by us.
                return Err(StoreError::Lost);
            }
        }
        Err(StoreError::Unavailable(error))
    }

    /// The same for whatever else stores events.
    pub async fn publish<T>(
        &self,
        work: impl Future<Output = Result<(T, Vec<SessionEvent>), StoreError>>,
    ) -> Result<T, StoreError> {
        let _one = self.publishing.lock().await;
        self.still_ours()?;
        let done = tokio::select! {
            done = work => done,
            () = self.lost.cancelled() => Err(StoreError::Lost),
        };
        let (value, stored) = self.noted(done)?;
        self.announce(stored);
        Ok(value)
    }

    /// Of what is lost nothing is written, also where nobody else has it yet: what its agent says while it is ended is not
    /// how its turn ended.
    fn still_ours(&self) -> Result<(), StoreError> {
        if self.is_lost() { Err(StoreError::Lost) } else { Ok(()) }
    }

    /// Takes note of having lost the session.
    fn noted<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let (Err(StoreError::Lost), Some(_)) = (&result, &self.cluster) {
            self.lose();
        }
        result
    }

    fn announce(&self, stored: Vec<SessionEvent>) {
        if let Some(last) = stored.last() {
            self.last.store(last.seq, Ordering::Release);
            self.tell_others();
        }
        for event in stored {
            // Nobody listening is fine.
            let _ = self.listeners.send(News::Event(Arc::new(event)));
        }
    }

    /// Makes listeners look at the store, which has more than we know of.
    pub fn announce_more(&self) {
        self.last.store(0, Ordering::Release);
        let _ = self.listeners.send(News::Look);
        self.tell_others();
    }

    fn tell_others(&self) {
        if let Some(cluster) = &self.cluster {
            cluster.note_change(&self.id);
        }
    }
}
