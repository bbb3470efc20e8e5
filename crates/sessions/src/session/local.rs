//! What changes a session. Every change is carried through, also when whoever asked goes away: half of one
//! would be a turn that never runs, or a session that is neither open nor closed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_domain::session::{
    Accepted, SessionId, TurnEnding, TurnRequest, TurnState, TurnUsage, turn_event,
};
use hob_domain::{AppName, StoreError, Timestamp};
use serde_json::json;

use super::error::SessionError;
use super::handle::{Cancelled, Entry};
use super::limits::check_budgets;
use super::placement::cluster::Place;
use super::placement::remote_command::{Fulfilled, Wish};
use super::sessions::{CancelOutcome, Sessions, TurnAsk, audit};

/// A session that could not be closed is tried again after this.
const CLOSE_AGAIN: Duration = Duration::from_millis(500);

impl Sessions {
    /// Does this in a task of its own.
    pub(super) async fn carry_through<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, SessionError>> + Send + 'static,
    ) -> Result<T, SessionError> {
        let done = self.inner.options.tasks.spawn(work).await;
        done.unwrap_or_else(|error| Err(StoreError::Failed(error.to_string()).into()))
    }

    /// Takes a turn in and returns its number; it runs when those before it are over.
    pub async fn submit(
        &self,
        app: &AppName,
        id: &SessionId,
        ask: TurnAsk,
    ) -> Result<u32, SessionError> {
        let (sessions, app, id) = (self.clone(), app.clone(), id.clone());
        self.carry_through(async move { sessions.take_in(&app, &id, ask).await }).await
    }

    async fn take_in(
        &self,
        app: &AppName,
        id: &SessionId,
        ask: TurnAsk,
    ) -> Result<u32, SessionError> {
        let options = &self.inner.options;
        let (place, _one) = loop {
            let Some(place) = self.place(app, id).await? else {
                return self.submit_to_closed(app, id, ask).await;
            };
            if options.stopping.is_cancelled() {
                return Err(SessionError::Stopping);
            }
            let Place::Here(entry) = &place else { break (place, None) };
            let one = entry.take_in().await;
            if entry.is_lost() {
                // Somebody else has it by now.
                continue;
            }
            if entry.closing.is_cancelled() {
                return self.submit_to_closed(app, id, ask).await;
            }
            if entry.ended.is_cancelled() {
                return Err(SessionError::Stopping);
            }
            break (place, Some(one));
        };
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
        let accepted = self.store().accept_turn(app, id, &request, now).await;
        if accepted.is_err() {
            // It may have been taken in all the same; then it is found there.
            self.look_soon();
        }
        match accepted? {
            None => Err(SessionError::NotFound),
            Some(Accepted::Queued(turn)) => {
                match place {
                    Place::Here(entry) if entry.enqueue(turn) => {}
                    Place::Here(entry) => self.hear_of_turns(&entry).await,
                    Place::Elsewhere => self.call_holder(id).await,
                }
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
        let session = match limits.session_tokens > 0 || limits.session_cost > 0.0 {
            true => self.get(app, id).await?.usage,
            false => TurnUsage::default(),
        };
        self.check_all(app, &session).await
    }

    /// Whether an app may have one more turn now, outside any session; it counts as one.
    pub(crate) async fn check_app(&self, app: &AppName) -> Result<(), SessionError> {
        self.check_all(app, &TurnUsage::default()).await
    }

    async fn check_all(&self, app: &AppName, session: &TurnUsage) -> Result<(), SessionError> {
        let limits = &self.inner.options.limits;
        let now = Timestamp::now();
        if limits.has_daily_budget() || *session != TurnUsage::default() {
            let today = match limits.has_daily_budget() {
                true => Some(self.store().usage_on(app, now).await?),
                false => None,
            };
            let second = now.as_second().rem_euclid(86_400) as u64;
            let until_tomorrow = Duration::from_secs(86_400 - second);
            check_budgets(limits, session, today.as_ref(), until_tomorrow)?;
        }
        let most = limits.app_turns_per_minute;
        let pace = match &self.inner.cluster {
            Some(cluster) if most > 0 => cluster.options.store.pace(app, most).await?,
            _ => self.inner.pace.take(app, most, Instant::now()),
        };
        pace.map_err(|retry_after| SessionError::Limited {
            code: "app_pace",
            message: format!(
                "the app has had {most} turns in a minute (limits.app_turns_per_minute)"
            ),
            retry_after,
        })
    }

    /// Ends the running turn, else the first that waits, and returns once it is over.
    pub async fn cancel(
        &self,
        app: &AppName,
        id: &SessionId,
    ) -> Result<CancelOutcome, SessionError> {
        let (sessions, app, id) = (self.clone(), app.clone(), id.clone());
        self.carry_through(async move { sessions.break_off(&app, &id).await }).await
    }

    async fn break_off(
        &self,
        app: &AppName,
        id: &SessionId,
    ) -> Result<CancelOutcome, SessionError> {
        match self.have_done(app, id, Wish::Cancel).await? {
            Some(Fulfilled::Cancelled { turn }) => Ok(CancelOutcome { turn }),
            _ => Ok(CancelOutcome { turn: None }),
        }
    }

    pub(super) async fn break_off_here(
        &self,
        entry: &Arc<Entry>,
    ) -> Result<CancelOutcome, SessionError> {
        // One that another node has just taken in can be broken off as well.
        self.hear_of_turns(entry).await;
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
                let ended = entry.publish(async {
                    let now = Timestamp::now();
                    let stored = self.store().end_turn(&entry.lease, turn, ending, now).await?;
                    Ok(((), stored.unwrap_or_default()))
                });
                if let Err(error) = ended.await {
                    entry.put_back(turn);
                    return Err(error.into());
                }
                Ok(CancelOutcome { turn: Some(turn) })
            }
        }
    }

    /// Closes a session: what runs is cancelled, its agent ended. `false` when it was closed already.
    pub async fn close(&self, app: &AppName, id: &SessionId) -> Result<bool, SessionError> {
        let (sessions, app, id) = (self.clone(), app.clone(), id.clone());
        self.carry_through(async move {
            let done = sessions.have_done(&app, &id, Wish::Close).await?;
            Ok(matches!(done, Some(Fulfilled::Closed { now: true })))
        })
        .await
    }

    pub(super) async fn close_here(&self, entry: &Arc<Entry>) -> Result<bool, SessionError> {
        let _one = entry.intake.lock().await;
        if entry.is_lost() {
            return Err(StoreError::Lost.into());
        }
        self.close_taken(entry, "close").await
    }

    /// Closes a session in which nothing has happened since then, and nothing is under way.
    pub(super) async fn close_idle(
        &self,
        entry: &Arc<Entry>,
        then: Timestamp,
    ) -> Result<bool, SessionError> {
        let _one = entry.intake.lock().await;
        // One may have been taken in elsewhere just now.
        self.hear_of_turns(entry).await;
        let session = self.get(&entry.app, &entry.id).await?;
        let last = session.last_turn_at.unwrap_or(session.created_at);
        if !entry.is_idle() || last >= then {
            return Ok(false);
        }
        self.close_taken(entry, "sweep_close").await
    }

    /// Closes a session of which the caller has the intake: no turn comes in meanwhile.
    async fn close_taken(&self, entry: &Arc<Entry>, kind: &str) -> Result<bool, SessionError> {
        entry.closing.cancel();
        if let Cancelled::Running(running) = entry.cancel() {
            running.over.cancelled().await;
        }
        let (store, id) = (self.store(), &entry.id);
        let closed = loop {
            let closing = entry.publish(async {
                let event = audit(kind, None, json!({}));
                let closed = store.close_session(id, event, Timestamp::now()).await?;
                Ok((closed, Vec::new()))
            });
            let error = match closing.await {
                Ok(closed) => break closed,
                // Another node has it, and closes it.
                Err(StoreError::Lost) => return Err(StoreError::Lost.into()),
                Err(error) => error,
            };
            tracing::error!(%error, session = %id, "a session could not be closed");
            // Its agent is ending, so there is no way back.
            tokio::select! {
                () = tokio::time::sleep(CLOSE_AGAIN) => {}
                () = self.inner.options.ending.cancelled() => return Err(error.into()),
            }
        };
        entry.announce_more();
        self.drop_entry(entry);
        tracing::info!(app = %entry.app, session = %id, kind, "a session was closed");
        Ok(closed)
    }

    /// Ends and deletes all sessions of an app that is no more.
    pub async fn forget_app(&self, app: &AppName) -> Result<(), SessionError> {
        let (sessions, app) = (self.clone(), app.clone());
        self.carry_through(async move { sessions.drop_all_of(&app).await }).await
    }

    async fn drop_all_of(&self, app: &AppName) -> Result<(), SessionError> {
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
            self.forget_place(&id);
        }
        let _ = std::fs::remove_dir_all(self.inner.options.claude.join("apps").join(app.as_str()));
        Ok(())
    }
}
