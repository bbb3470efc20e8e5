//! All sessions.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hob_domain::session::{
    Accepted, NewEvent, Session, SessionEvent, SessionId, SessionStore, SessionTurn, TurnEnding,
    TurnRequest, TurnState, TurnUsage, turn_event,
};
use hob_domain::{AppName, StoreError, Timestamp};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::actor::Actor;
use super::counts::{Counts, Figures};
use super::entry::{Cancelled, Entry, News, NotAnswered};
use super::error::SessionError;
use super::follow::Follow;
use super::limits::{Pace, check_budgets};
use super::options::SessionsOptions;
use crate::claude::Changes;

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
    pub changes: Changes,
    pace: Pace,
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

impl Sessions {
    /// Takes up what an earlier run left: turns that ran then are interrupted, those that waited go
    /// on, and open sessions are open.
    pub async fn restore(options: SessionsOptions) -> Result<Sessions, StoreError> {
        let interrupted = options.store.interrupt_turns(Timestamp::now()).await?;
        if interrupted > 0 {
            tracing::warn!(interrupted, "turns were under way when hob ended");
        }
        let inner = Inner {
            options,
            open: Mutex::default(),
            creating: tokio::sync::Mutex::default(),
            counts: Counts::default(),
            changes: Changes::new(),
            pace: Pace::default(),
        };
        let sessions = Sessions { inner: Arc::new(inner) };
        for session in sessions.store().open_sessions().await? {
            let queue = sessions.store().queued_turns(&session.id).await?;
            let permit = sessions.inner.options.live.take_anyway();
            let (entry, answered) = Entry::new(&session, permit, queue);
            sessions.open().insert(session.id.clone(), entry.clone());
            sessions.start_actor(Actor::of(&sessions.inner, entry, answered));
        }
        Ok(sessions)
    }

    pub(super) fn store(&self) -> &Arc<dyn SessionStore> {
        &self.inner.options.store
    }

    pub(super) fn open(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Entry>>> {
        self.inner.open.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Whose session it is: for the owner.
    pub async fn app_of(&self, id: &SessionId) -> Result<AppName, SessionError> {
        self.store().app_of(id).await?.ok_or(SessionError::NotFound)
    }

    /// Takes a turn in and returns its number; it runs when those before it are over.
    pub async fn submit(
        &self,
        app: &AppName,
        id: &SessionId,
        ask: TurnAsk,
    ) -> Result<u32, SessionError> {
        let options = &self.inner.options;
        let Some(entry) = self.entry(app, id) else {
            return self.submit_to_closed(app, id, ask).await;
        };
        if options.stopping.is_cancelled() {
            return Err(SessionError::Stopping);
        }
        let _one = entry.intake.lock().await;
        let request = TurnRequest {
            prompt: ask.prompt,
            idempotency: ask.idempotency,
            queue: options.limits.queue,
        };
        // A repeat costs nothing; whatever else is asked is counted.
        if request.idempotency.is_some()
            && let Some(turn) = self.repeated(app, id, &request).await?
        {
            return Ok(turn);
        }
        self.check_limits(app, id).await?;
        let now = Timestamp::now();
        match self.store().accept_turn(app, id, &request, now).await? {
            None => Err(SessionError::NotFound),
            Some(Accepted::Queued(turn)) => {
                entry.enqueue(turn);
                Ok(turn)
            }
            Some(Accepted::Repeated(turn)) => Ok(turn),
            Some(Accepted::OtherBody) => Err(SessionError::OtherBody),
            Some(Accepted::QueueFull) => {
                Err(SessionError::QueueFull { queue: options.limits.queue })
            }
            Some(Accepted::Closed) => Err(SessionError::Closed),
        }
    }

    /// A closed session takes no turn, but one that was asked before still has its answer.
    async fn submit_to_closed(
        &self,
        app: &AppName,
        id: &SessionId,
        ask: TurnAsk,
    ) -> Result<u32, SessionError> {
        let request = TurnRequest { prompt: ask.prompt, idempotency: ask.idempotency, queue: 0 };
        self.repeated(app, id, &request).await?.ok_or(SessionError::Closed)
    }

    /// The turn that was asked for before with this key, if any.
    async fn repeated(
        &self,
        app: &AppName,
        id: &SessionId,
        request: &TurnRequest,
    ) -> Result<Option<u32>, SessionError> {
        // Where none may wait, none is taken in.
        let request = TurnRequest { queue: 0, ..request.clone() };
        match self.store().accept_turn(app, id, &request, Timestamp::now()).await? {
            None => Err(SessionError::NotFound),
            Some(Accepted::Repeated(turn)) => Ok(Some(turn)),
            Some(Accepted::OtherBody) => Err(SessionError::OtherBody),
            Some(_) => Ok(None),
        }
    }

    async fn check_limits(&self, app: &AppName, id: &SessionId) -> Result<(), SessionError> {
        let limits = &self.inner.options.limits;
        let now = Timestamp::now();
        if limits.has_daily_budget() || limits.session_tokens > 0 || limits.session_cost > 0.0 {
            let session = self.get(app, id).await?.usage;
            let today = match limits.has_daily_budget() {
                true => Some(self.store().usage_on(app, now).await?),
                false => None,
            };
            let second = now.as_second().rem_euclid(86_400) as u64;
            let until_tomorrow = Duration::from_secs(86_400 - second);
            check_budgets(limits, &session, today.as_ref(), until_tomorrow)?;
        }
        let most = limits.app_turns_per_minute;
        self.inner.pace.take(app, most, Instant::now()).map_err(|retry_after| {
            SessionError::Limited {
                code: "app_pace",
                message: format!(
                    "the app has had {most} turns in a minute (limits.app_turns_per_minute)"
                ),
                retry_after,
            }
        })
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
        let mut news = self.entry(app, id).map(|entry| entry.listen());
        loop {
            let found = self.turn(app, id, turn).await?;
            if found.state.is_over() {
                return Ok(found);
            }
            let Some(news) = &mut news else { return Ok(found) };
            loop {
                match news.recv().await {
                    Ok(News::Event(stored)) => {
                        let event = &stored.event;
                        if event.kind == "turn" && event.turn == Some(turn) {
                            break;
                        }
                    }
                    Ok(News::Look) | Err(RecvError::Lagged(_)) => break,
                    Err(RecvError::Closed) => return self.turn(app, id, turn).await,
                }
            }
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
        let live = self.entry(app, id).map(|entry| entry.listen());
        self.get(app, id).await?;
        Ok(Follow {
            store: self.store().clone(),
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
        let live = self.entry(app, id).map(|entry| entry.listen());
        let session = self.get(app, id).await?;
        let mut read: VecDeque<_> =
            self.store().turn_events(id, turn).await?.into_iter().map(Arc::new).collect();
        // Who has seen its end has seen all.
        let seen = |event: &Arc<SessionEvent>| event.event.kind == "turn" && event.seq <= after;
        let whole = read.iter().any(seen);
        let live = live.filter(|_| !whole);
        // Before the turn has said anything, what comes next is what comes after all there is.
        let last = if read.is_empty() { session.last_event } else { after };
        read.retain(|event| event.seq > after);
        let (store, app, id) = (self.store().clone(), app.clone(), id.clone());
        let last = read.back().map_or(last.max(after), |event| event.seq);
        Ok(Follow { store, app, id, last, read, behind: !whole, live })
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

    /// Ends the running turn, else the first that waits, and returns once it is over.
    pub async fn cancel(
        &self,
        app: &AppName,
        id: &SessionId,
    ) -> Result<CancelOutcome, SessionError> {
        let Some(entry) = self.entry(app, id) else {
            self.get(app, id).await?;
            return Ok(CancelOutcome { turn: None });
        };
        match entry.cancel() {
            Cancelled::Nothing => Ok(CancelOutcome { turn: None }),
            Cancelled::Running(running) => {
                let body = json!({"turn_index": running.turn});
                let event = audit("cancel", Some(running.turn), body);
                entry.append(self.store().as_ref(), vec![event]).await?;
                running.over.cancelled().await;
                Ok(CancelOutcome { turn: Some(running.turn) })
            }
            Cancelled::Waiting(turn) => {
                let reason = Some("cancelled");
                let events = vec![
                    audit("cancel", Some(turn), json!({"turn_index": turn})),
                    turn_event(turn, TurnState::Cancelled, reason),
                ];
                let ending = TurnEnding {
                    state: TurnState::Cancelled,
                    text: String::new(),
                    stop_reason: reason.map(str::to_owned),
                    error: None,
                    usage: TurnUsage::default(),
                    events,
                    agent_session: None,
                    outbox: None,
                };
                entry
                    .publish(async {
                        let now = Timestamp::now();
                        let stored = self.store().end_turn(id, turn, ending, now).await?;
                        Ok(((), stored.unwrap_or_default()))
                    })
                    .await?;
                Ok(CancelOutcome { turn: Some(turn) })
            }
        }
    }

    /// Answers an agent's question with one of its options, by id or by kind.
    pub async fn answer(
        &self,
        app: &AppName,
        id: &SessionId,
        request: &str,
        option: &str,
    ) -> Result<(), SessionError> {
        let Some(entry) = self.entry(app, id) else {
            self.get(app, id).await?;
            return Err(SessionError::NotFound);
        };
        entry.answer(request, option).map_err(|error| match error {
            NotAnswered::NoSuchAsk => SessionError::NotFound,
            NotAnswered::NoSuchOption { options } => {
                SessionError::Invalid(format!("option: it must be one of {}", options.join(", ")))
            }
        })
    }

    /// Closes a session: what runs is cancelled, its agent ended. `false` when it was closed already.
    pub async fn close(&self, app: &AppName, id: &SessionId) -> Result<bool, SessionError> {
        let Some(entry) = self.entry(app, id) else {
            self.get(app, id).await?;
            return Ok(false);
        };
        self.close_entry(&entry, "close").await
    }

    pub(super) async fn close_entry(
        &self,
        entry: &Arc<Entry>,
        kind: &str,
    ) -> Result<bool, SessionError> {
        entry.closing.cancel();
        if let Cancelled::Running(running) = entry.cancel() {
            running.over.cancelled().await;
        }
        let _one = entry.intake.lock().await;
        let (store, id) = (self.store(), &entry.id);
        let closed = entry
            .publish(async {
                let before = store.session(&entry.app, id).await?;
                let event = audit(kind, None, json!({}));
                let closed = store.close_session(id, event, Timestamp::now()).await?;
                Ok((closed && before.is_some(), Vec::new()))
            })
            .await?;
        entry.announce_more();
        entry.release();
        self.open().remove(id);
        tracing::info!(app = %entry.app, session = %id, kind, "a session was closed");
        Ok(closed)
    }

    /// Ends and deletes all sessions of an app that is no more.
    pub async fn forget_app(&self, app: &AppName) -> Result<(), SessionError> {
        let entries: Vec<Arc<Entry>> = {
            let mut open = self.open();
            let theirs: Vec<SessionId> =
                open.values().filter(|e| e.app == *app).map(|e| e.id.clone()).collect();
            theirs.iter().filter_map(|id| open.remove(id)).collect()
        };
        for entry in &entries {
            entry.closing.cancel();
            entry.release();
        }
        for entry in &entries {
            entry.ended.cancelled().await;
        }
        for id in self.store().delete_sessions_of(app).await? {
            self.remove_workspace(&id);
        }
        Ok(())
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
            live: options.live.live(),
            live_limit: options.live.limit(),
            agents: options.children.live(),
            turns: TurnState::ALL.map(|state| (state, self.inner.counts.turns(state))),
            messages: self.inner.counts.messages(),
        }
    }

    pub(super) fn entry(&self, app: &AppName, id: &SessionId) -> Option<Arc<Entry>> {
        self.open().get(id).filter(|entry| entry.app == *app).cloned()
    }

    pub(super) fn remove_workspace(&self, id: &SessionId) {
        let folder = self.inner.options.workspaces.join(id.as_str());
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
