//! An open session as the rest of the program meets it: its queue, its running turn, its questions and
//! those who listen.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hob_domain::session::{NewEvent, Session, SessionEvent, SessionId, SessionSetup, SessionStore};
use hob_domain::{AppName, Hold, StoreError, Timestamp};
use tokio::sync::{Notify, broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use super::choice;
use crate::driver::Ask;
use crate::live::LivePermit;

/// How many events a listener may be behind before it reads them from the store.
const BEHIND: usize = 256;

/// One open session.
pub(super) struct Entry {
    pub id: SessionId,
    pub app: AppName,
    pub setup: SessionSetup,
    /// By which we may write to it.
    pub hold: Hold,
    state: Mutex<State>,
    /// Taking a turn into the store and into the queue is one step.
    pub intake: tokio::sync::Mutex<()>,
    /// So is storing events and telling listeners: they hear them in order.
    publishing: tokio::sync::Mutex<()>,
    pub wake: Notify,
    /// Cancelled when the session is to be closed.
    pub closing: CancellationToken,
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
    queue: VecDeque<u32>,
    running: Option<Running>,
    asks: HashMap<String, Ask>,
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
        hold: Hold,
        permit: LivePermit,
        queue: Vec<u32>,
    ) -> (Arc<Entry>, mpsc::UnboundedReceiver<Answered>) {
        let (answers, answered) = mpsc::unbounded_channel();
        let state = State {
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
            hold,
            state: Mutex::new(state),
            intake: tokio::sync::Mutex::default(),
            publishing: tokio::sync::Mutex::default(),
            wake: Notify::new(),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
            listeners: broadcast::channel(BEHIND).0,
            answers,
        };
        (Arc::new(entry), answered)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a turn at the end of the queue.
    pub fn enqueue(&self, turn: u32) {
        self.state().queue.push_back(turn);
        self.wake.notify_one();
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
    pub fn offer(&self, ask: Ask) {
        self.state().asks.insert(ask.id.clone(), ask);
    }

    /// A question that nobody answers any more.
    pub fn withdraw(&self, ask: &str) -> Option<Ask> {
        self.state().asks.remove(ask)
    }

    /// Answers a question.
    pub fn answer(&self, ask: &str, word: &str) -> Result<(), NotAnswered> {
        let mut state = self.state();
        let known = state.asks.get(ask).ok_or(NotAnswered::NoSuchAsk)?;
        let Some(offer) = choice::meant(known, word) else {
            let options = known.offers.iter().map(|offer| offer.id.clone()).collect();
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
        let stored = store.append_events(&self.hold, events, Timestamp::now()).await?;
        self.announce(stored);
        Ok(())
    }

    /// The same for whatever else stores events.
    pub async fn publish<T>(
        &self,
        work: impl Future<Output = Result<(T, Vec<SessionEvent>), StoreError>>,
    ) -> Result<T, StoreError> {
        let _one = self.publishing.lock().await;
        let (value, stored) = work.await?;
        self.announce(stored);
        Ok(value)
    }

    fn announce(&self, stored: Vec<SessionEvent>) {
        for event in stored {
            // Nobody listening is fine.
            let _ = self.listeners.send(News::Event(Arc::new(event)));
        }
    }

    /// Makes listeners look at the store.
    pub fn announce_more(&self) {
        let _ = self.listeners.send(News::Look);
    }
}
