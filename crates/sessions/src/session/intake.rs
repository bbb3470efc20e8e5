//! Accepting turns: limits, repeats and the queue.

use std::sync::Arc;
use std::time::Duration;

use hob_domain::session::{Accepted, IdempotencyKey, Repeat, SessionId, TurnRequest, TurnUsage};
use hob_domain::{AppName, Timestamp};
use tokio::sync::OwnedMutexGuard;

use super::context::SessionContext;
use super::error::SessionError;
use super::limits::{check_budgets, too_many_turns};
use super::local_sessions::LocalSessions;
use super::placement::{Location, Placement};

const SECONDS_PER_DAY: u64 = 86_400;

/// A turn that a caller asks for.
#[derive(Debug, Clone)]
pub struct TurnSubmission {
    pub prompt: String,
    /// The paths of the request's files.
    pub files: Vec<String>,
    /// The key under which the caller may repeat the request.
    pub idempotency: Option<IdempotencyKey>,
}

/// Accepts turns into sessions.
pub(super) struct TurnIntake {
    context: Arc<SessionContext>,
    local: Arc<LocalSessions>,
    placement: Arc<dyn Placement>,
}

/// Where an accepted turn goes. A session of this node stays locked until the turn is queued.
enum Destination {
    Open(Location, Option<OwnedMutexGuard<()>>),
    Closed,
}

impl TurnIntake {
    pub fn new(local: Arc<LocalSessions>, placement: Arc<dyn Placement>) -> TurnIntake {
        TurnIntake { context: local.context.clone(), local, placement }
    }

    /// Stores a turn, queues it on the lease holder and returns its number.
    pub async fn accept(
        &self,
        app: &AppName,
        id: &SessionId,
        ask: TurnSubmission,
    ) -> Result<u32, SessionError> {
        let queue = self.context.options.limits.queue;
        let TurnSubmission { prompt, files, idempotency } = ask;
        let request = TurnRequest { prompt, files, idempotency, queue };
        let (location, _intake) = match self.destination(app, id).await? {
            Destination::Open(location, intake) => (location, intake),
            // A closed session accepts no turn, but a repeat still gets the number of the first
            // request.
            Destination::Closed => {
                self.context.session(app, id).await?;
                let repeat = match &request.idempotency {
                    Some(key) => self.find_repeat(app, id, key).await?,
                    None => None,
                };
                return repeat.ok_or(SessionError::Closed);
            }
        };
        // A repeat costs nothing; any other request counts against the limits.
        if let Some(key) = &request.idempotency
            && let Some(turn) = self.find_repeat(app, id, key).await?
        {
            return Ok(turn);
        }
        self.check_limits(app, id).await?;
        let accepted = self.context.store().accept_turn(app, id, &request, Timestamp::now()).await;
        if accepted.is_err() {
            // The turn may have been stored all the same. Then a poll finds it.
            self.placement.poll_soon();
        }
        match accepted? {
            None => Err(SessionError::NotFound),
            Some(Accepted::Queued(turn)) => {
                self.announce(id, location, turn).await;
                Ok(turn)
            }
            Some(Accepted::Repeated(turn)) => Ok(turn),
            Some(Accepted::OtherBody) => Err(SessionError::OtherBody),
            Some(Accepted::QueueFull) => Err(SessionError::QueueFull { queue }),
            Some(Accepted::Closed) => Err(SessionError::Closed),
        }
    }

    /// Finds the session and locks its intake if it is on this node.
    async fn destination(
        &self,
        app: &AppName,
        id: &SessionId,
    ) -> Result<Destination, SessionError> {
        loop {
            let Some(location) = self.placement.locate(app, id).await? else {
                return Ok(Destination::Closed);
            };
            if self.context.options.runtime.stopping.is_cancelled() {
                return Err(SessionError::Stopping);
            }
            let Location::Here(handle) = &location else {
                return Ok(Destination::Open(location, None));
            };
            let intake = handle.lock_intake().await;
            if handle.is_lost() {
                // Another node holds the lease by now.
                continue;
            }
            if handle.closing.is_cancelled() {
                return Ok(Destination::Closed);
            }
            if handle.ended.is_cancelled() {
                return Err(SessionError::Stopping);
            }
            return Ok(Destination::Open(location, Some(intake)));
        }
    }

    /// Queues a stored turn on the node that holds the session.
    async fn announce(&self, id: &SessionId, location: Location, turn: u32) {
        match location {
            Location::Here(handle) if handle.enqueue(turn) => {}
            Location::Here(handle) => self.local.refresh_queue(&handle).await,
            Location::Elsewhere => self.placement.notify_holder(id).await,
        }
    }

    /// Returns the turn that was accepted earlier under the same idempotency key, if any.
    pub async fn find_repeat(
        &self,
        app: &AppName,
        id: &SessionId,
        key: &IdempotencyKey,
    ) -> Result<Option<u32>, SessionError> {
        match self.context.store().find_repeat(app, id, key).await? {
            Some(Repeat::Same(turn)) => Ok(Some(turn)),
            Some(Repeat::OtherRequest) => Err(SessionError::OtherBody),
            None => Ok(None),
        }
    }

    async fn check_limits(&self, app: &AppName, id: &SessionId) -> Result<(), SessionError> {
        let limits = &self.context.options.limits;
        let session = match limits.session_tokens > 0 || limits.session_cost > 0.0 {
            true => self.context.session(app, id).await?.usage,
            false => TurnUsage::default(),
        };
        self.check_usage(app, &session).await
    }

    /// Counts a turn of an app outside of any session, or refuses it.
    pub async fn check_app(&self, app: &AppName) -> Result<(), SessionError> {
        self.check_usage(app, &TurnUsage::default()).await
    }

    async fn usage_today(&self, app: &AppName, now: Timestamp) -> Result<TurnUsage, SessionError> {
        let days = self.context.store().usage(now, Some(now), Some(app)).await?;
        Ok(days.first().map(|day| day.usage).unwrap_or_default())
    }

    /// Checks the budgets of the session and the app, then counts the turn against the app's rate
    /// limit.
    async fn check_usage(&self, app: &AppName, session: &TurnUsage) -> Result<(), SessionError> {
        let limits = &self.context.options.limits;
        let now = Timestamp::now();
        if limits.has_daily_budget() || *session != TurnUsage::default() {
            let today = match limits.has_daily_budget() {
                true => Some(self.usage_today(app, now).await?),
                false => None,
            };
            let second = now.as_second().rem_euclid(SECONDS_PER_DAY as i64) as u64;
            let until_tomorrow = Duration::from_secs(SECONDS_PER_DAY - second);
            check_budgets(limits, session, today.as_ref(), until_tomorrow)?;
        }
        let max = limits.app_turns_per_minute;
        let counted = self.placement.count_turn(app, max).await?;
        counted.map_err(|retry_after| too_many_turns(max, retry_after))
    }
}
