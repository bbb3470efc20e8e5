//! All sessions.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hob_domain::session::{
    NewEvent, Session, SessionEvent, SessionId, SessionStore, SessionTurn, TurnState, UsageDay,
};
use hob_domain::{AppName, Lease, LeaseOutcome, StoreError, Timestamp};
use serde_json::Value;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::actor::Actor;
use super::counters::{Counts, Figures, NodeFigures};
use super::error::SessionError;
use super::follow::{Follow, Live};
use super::handle::{Answered, Entry, News, NotAnswered};
use super::limits::Pace;
use super::options::SessionsOptions;
use super::placement::cluster::Cluster;
use super::placement::remote_command::Wish;
use crate::files::FileRoom;
use hob_agents::LivePermit;
use hob_agents::claude::TranscriptWatcher;

/// All sessions of all apps. Cloning shares it.
#[derive(Clone)]
pub struct Sessions {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub options: SessionsOptions,
    pub open: Mutex<HashMap<SessionId, Arc<Entry>>>,
    pub creating: tokio::sync::Mutex<()>,
    pub counts: Counts,
    /// One watcher of transcripts for all: the system gives few.
    pub changes: TranscriptWatcher,
    pub pace: Pace,
    /// `None` where there is nobody but us.
    pub cluster: Option<Arc<Cluster>>,
}

/// A turn that is asked for.
#[derive(Debug, Clone)]
pub struct TurnAsk {
    pub prompt: String,
    /// The caller's key and a digest of what it asked.
    pub idempotency: Option<(String, String)>,
}

/// What a cancel did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CancelOutcome {
    /// The turn that was ended; `None` when nothing ran.
    pub turn: Option<u32>,
}

/// So many sessions are taken at a time.
const TAKES: usize = 256;

/// Takes all sessions: whatever is held is held by an earlier run of ours. Turns that ran in them are interrupted.
async fn take_all(options: &SessionsOptions) -> Result<HashMap<SessionId, Lease>, StoreError> {
    let (lease_timeout, now) = (Duration::ZERO, Timestamp::now());
    let mut takes = JoinSet::new();
    let (mut holds, mut interrupted) = (HashMap::new(), 0);
    let mut free = options.store.free_sessions(lease_timeout).await?.into_iter();
    loop {
        // Many at once: the store commits together what comes together.
        for (_, id) in free.by_ref().take(TAKES - takes.len()) {
            let (store, node) = (options.store.clone(), options.node.clone());
            takes.spawn(async move { store.acquire_lease(&id, &node, lease_timeout, now).await });
        }
        let Some(taken) = takes.join_next().await else { break };
        let taken = taken.map_err(|error| StoreError::Failed(error.to_string()))?;
        if let LeaseOutcome::Acquired(lease, turns) = taken? {
            interrupted += turns.len();
            holds.insert(lease.session.clone(), lease);
        }
    }
    if interrupted > 0 {
        tracing::warn!(interrupted, "turns were under way when hob ended");
    }
    Ok(holds)
}

impl Sessions {
    /// Takes up what an earlier run left: turns that ran then are interrupted, those that waited go
    /// on, and open sessions are open. Where there are other nodes, what nobody has is taken when it is asked for, or
    /// when turns wait in it.
    pub async fn restore(options: SessionsOptions) -> Result<Sessions, StoreError> {
        // What a killed run left for its agents.
        let _ = std::fs::remove_dir_all(options.claude.join("mcp"));
        let holds = match &options.cluster {
            None => take_all(&options).await?,
            Some(_) => HashMap::new(),
        };
        let inner = Inner {
            cluster: options.cluster.clone().map(Cluster::new).map(Arc::new),
            options,
            open: Mutex::default(),
            creating: tokio::sync::Mutex::default(),
            counts: Counts::default(),
            changes: TranscriptWatcher::new(),
            pace: Pace::default(),
        };
        let sessions = Sessions { inner: Arc::new(inner) };
        sessions.join().await?;
        if sessions.inner.cluster.is_some() {
            return Ok(sessions);
        }
        for session in sessions.store().open_sessions().await? {
            let Some(lease) = holds.get(&session.id) else { continue };
            let queue = sessions.store().queued_turns(&session.id).await?;
            let permit = sessions.inner.options.live.acquire_above_limit();
            let (entry, answered) = sessions.enter(&session, lease.clone(), permit, queue);
            sessions.start_actor(Actor::of(&sessions.inner, entry, answered));
        }
        Ok(sessions)
    }

    /// What apps have uploaded.
    pub fn files(&self) -> &FileRoom {
        &self.inner.options.files
    }

    pub(super) fn store(&self) -> &Arc<dyn SessionStore> {
        &self.inner.options.store
    }

    pub(super) fn open(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Entry>>> {
        self.inner.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session is open here from now on.
    pub(super) fn enter(
        &self,
        session: &Session,
        lease: Lease,
        permit: LivePermit,
        queue: Vec<u32>,
    ) -> (Arc<Entry>, mpsc::UnboundedReceiver<Answered>) {
        let cluster = self.inner.cluster.clone();
        let (entry, answered) = Entry::new(session, lease, permit, queue, cluster);
        self.open().insert(session.id.clone(), entry.clone());
        (entry, answered)
    }

    pub(super) fn start_actor(&self, actor: Actor) {
        self.inner.options.tasks.spawn(actor.run());
    }

    pub async fn get(&self, app: &AppName, id: &SessionId) -> Result<Session, SessionError> {
        self.store().session(app, id).await?.ok_or(SessionError::NotFound)
    }

    pub async fn list(&self, app: &AppName) -> Result<Vec<Session>, SessionError> {
        Ok(self.store().sessions(app).await?)
    }

    /// Those of all apps: for the owner.
    pub async fn list_all(&self) -> Result<Vec<Session>, SessionError> {
        Ok(self.store().all_sessions().await?)
    }

    /// Those of all apps that are open: for the owner.
    pub async fn list_open(&self) -> Result<Vec<Session>, SessionError> {
        Ok(self.store().open_sessions().await?)
    }

    /// Whose session it is: for the owner.
    pub async fn app_of(&self, id: &SessionId) -> Result<AppName, SessionError> {
        self.store().app_of(id).await?.ok_or(SessionError::NotFound)
    }

    /// A turn as it is now.
    pub async fn turn(
        &self,
        app: &AppName,
        id: &SessionId,
        turn: u32,
    ) -> Result<SessionTurn, SessionError> {
        self.store().turn(app, id, turn).await?.ok_or(SessionError::NotFound)
    }

    /// A turn once it is over.
    pub async fn turn_ended(
        &self,
        app: &AppName,
        id: &SessionId,
        turn: u32,
    ) -> Result<SessionTurn, SessionError> {
        let mut live = self.live(app, id);
        loop {
            let found = self.turn(app, id, turn).await?;
            if found.state.is_over() {
                return Ok(found);
            }
            match &mut live {
                Live::Over => return Ok(found),
                Live::Elsewhere(elsewhere) => elsewhere.news().await,
                Live::Here(news) => loop {
                    match news.recv().await {
                        Ok(News::Event(stored)) => {
                            let event = &stored.event;
                            if event.kind == "turn" && event.turn == Some(turn) {
                                break;
                            }
                        }
                        Ok(News::Look) | Err(RecvError::Lagged(_)) => break,
                        Err(RecvError::Closed) => {
                            live = self.live(app, id);
                            break;
                        }
                    }
                },
            }
        }
    }

    /// How one hears of a session from now on.
    pub(super) fn live(&self, app: &AppName, id: &SessionId) -> Live {
        let entry = self.entry(app, id).filter(|entry| !entry.is_lost());
        match (entry, &self.inner.cluster) {
            (Some(entry), _) => Live::Here(entry.listen()),
            (None, Some(cluster)) => Live::elsewhere(cluster.bell(id)),
            (None, None) => Live::Over,
        }
    }

    /// The messages of a turn, as the agent sent them.
    pub async fn turn_messages(
        &self,
        id: &SessionId,
        turn: u32,
    ) -> Result<Vec<String>, SessionError> {
        let events = self.store().turn_events(id, turn).await?;
        let messages = events.into_iter().filter(|event| event.event.kind == "message");
        Ok(messages.map(|event| event.event.body).collect())
    }

    /// The session's events after this number, from the log and as they come.
    pub async fn follow(
        &self,
        app: &AppName,
        id: &SessionId,
        after: u64,
    ) -> Result<Follow, SessionError> {
        // Listening begins before reading, so that nothing falls between.
        let live = self.live(app, id);
        let live = if self.get(app, id).await?.closed_at.is_some() { Live::Over } else { live };
        Ok(Follow {
            sessions: self.clone(),
            app: app.clone(),
            id: id.clone(),
            last: after,
            read: Default::default(),
            behind: true,
            live,
        })
    }

    /// A turn's events after this number, and then whatever comes in the session.
    pub async fn follow_turn(
        &self,
        app: &AppName,
        id: &SessionId,
        turn: u32,
        after: u64,
    ) -> Result<Follow, SessionError> {
        let live = self.live(app, id);
        let session = self.get(app, id).await?;
        let mut read: VecDeque<_> =
            self.store().turn_events(id, turn).await?.into_iter().map(Arc::new).collect();
        // Who has seen its end has seen all.
        let seen = |event: &Arc<SessionEvent>| event.event.kind == "turn" && event.seq <= after;
        let whole = read.iter().any(seen);
        let live = if whole || session.closed_at.is_some() { Live::Over } else { live };
        // Before the turn has said anything, what comes next is what comes after all there is.
        let last = if read.is_empty() { session.last_event } else { after };
        read.retain(|event| event.seq > after);
        let (sessions, app, id) = (self.clone(), app.clone(), id.clone());
        let last = read.back().map_or(last.max(after), |event| event.seq);
        Ok(Follow { sessions, app, id, last, read, behind: !whole, live })
    }

    /// The session's events so far after this number, at most so many.
    pub async fn events(
        &self,
        app: &AppName,
        id: &SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<SessionEvent>, SessionError> {
        self.store().events(app, id, after, limit).await?.ok_or(SessionError::NotFound)
    }

    /// The last events below this number, at most so many, in order.
    pub async fn events_before(
        &self,
        app: &AppName,
        id: &SessionId,
        before: u64,
        limit: usize,
    ) -> Result<Vec<SessionEvent>, SessionError> {
        let events = self.store().events_before(app, id, before, limit).await?;
        events.ok_or(SessionError::NotFound)
    }

    /// The last turns below this number, at most so many, in order.
    pub async fn turns_before(
        &self,
        app: &AppName,
        id: &SessionId,
        before: u32,
        limit: usize,
    ) -> Result<Vec<SessionTurn>, SessionError> {
        let turns = self.store().turns_before(app, id, before, limit).await?;
        turns.ok_or(SessionError::NotFound)
    }

    /// What was used from this day on, by day and app: for the owner.
    pub async fn usage_since(
        &self,
        first: Timestamp,
        app: Option<&AppName>,
    ) -> Result<Vec<UsageDay>, SessionError> {
        Ok(self.store().usage_since(first, app).await?)
    }

    /// How many sessions wait for an answer to their agent's question, and how many turns wait for
    /// their agent.
    pub fn waiting(&self) -> (usize, usize) {
        let open = self.open();
        let waiting = open.values().map(|entry| entry.waiting());
        waiting.fold((0, 0), |sum, (asks, queued)| (sum.0 + usize::from(asks), sum.1 + queued))
    }

    /// How many sessions each app has open.
    pub fn open_by_app(&self) -> HashMap<AppName, usize> {
        let mut counts = HashMap::new();
        for entry in self.open().values() {
            *counts.entry(entry.app.clone()).or_default() += 1;
        }
        counts
    }

    /// Answers an agent's question with one of its options, by id or by kind.
    pub async fn answer(
        &self,
        app: &AppName,
        id: &SessionId,
        request: &str,
        option: &str,
    ) -> Result<(), SessionError> {
        let wish = Wish::Answer { request: request.to_owned(), option: option.to_owned() };
        let (sessions, app, id) = (self.clone(), app.clone(), id.clone());
        let done = self.carry_through(async move { sessions.have_done(&app, &id, wish).await });
        done.await?.map(drop).ok_or(SessionError::NotFound)
    }

    pub(super) fn answer_here(
        &self,
        entry: &Entry,
        request: &str,
        option: &str,
    ) -> Result<(), SessionError> {
        entry.answer(request, option).map_err(|error| match error {
            NotAnswered::NoSuchAsk => SessionError::NotFound,
            NotAnswered::NoSuchOption { options } => {
                SessionError::Invalid(format!("option: it must be one of {}", options.join(", ")))
            }
        })
    }

    /// Whether this is the conversation of an open session of this app, by its agent's own name.
    pub fn is_conversation(&self, app: &str, name: &str) -> bool {
        let open = self.open();
        let mut theirs = open.values().filter(|entry| entry.app.as_str() == app);
        theirs.any(|entry| entry.conversation().as_deref() == Some(name))
    }

    /// How it stands now, and what there was since the start.
    pub fn figures(&self) -> Figures {
        let options = &self.inner.options;
        let (open, busy) = {
            let open = self.open();
            (open.len(), open.values().filter(|entry| !entry.is_idle()).count())
        };
        Figures {
            open,
            busy,
            live: options.live.in_use(),
            live_limit: options.live.limit(),
            agents: options.children.live(),
            turns: TurnState::ALL.map(|state| (state, self.inner.counts.turns(state))),
            messages: self.inner.counts.messages(),
            node: self.inner.cluster.as_ref().map(|cluster| NodeFigures {
                id: options.node.clone(),
                silence: cluster.silence(),
                taken: cluster.taken(),
                ready: self.is_ready(),
            }),
        }
    }

    pub(super) fn entry(&self, app: &AppName, id: &SessionId) -> Option<Arc<Entry>> {
        self.open().get(id).filter(|entry| entry.app == *app).cloned()
    }

    pub(super) fn remove_workspace(&self, id: &SessionId) {
        let workspaces = &self.inner.options.workspaces;
        let folder = workspaces.join(id.as_str());
        let _ = std::fs::remove_file(workspaces.join(".turns").join(id.as_str()));
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, session = %id, "a session's folder could not be removed");
            }
            _ => {}
        }
    }
}

/// An event of the audit.
pub(super) fn audit(kind: &str, turn: Option<u32>, body: Value) -> NewEvent {
    NewEvent { kind: kind.to_owned(), turn, body: body.to_string() }
}
