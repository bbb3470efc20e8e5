//! The sweeper: closes idle sessions, deletes closed ones and removes what they left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_domain::Timestamp;
use hob_domain::session::{DeleteFilter, Session, SessionFilter};

use super::local_sessions::LocalSessions;
use super::placement::Placement;
use crate::files::remove_old_files;
use crate::steady_clock::SteadyClock;

/// The time by the clock that this run started with.
struct OwnTime {
    started: Timestamp,
    clock: SteadyClock,
}

impl OwnTime {
    fn new() -> OwnTime {
        let started = Timestamp::now();
        OwnTime { started, clock: SteadyClock::new(started, Instant::now()) }
    }
}

/// Since when a session must have been idle to be closed. If the clock was wrong when this run started, sessions of an
/// earlier run look old.
struct IdleLimits {
    started: Timestamp,
    /// For sessions that were used since the start.
    since_start: Timestamp,
    /// For other sessions.
    earlier: Timestamp,
}

impl IdleLimits {
    /// Returns the limit for a session that was used last at this time.
    fn of(&self, last: Timestamp) -> Timestamp {
        if last >= self.started { self.since_start } else { self.earlier }
    }
}

/// Closes and deletes old sessions.
pub(super) struct Sweeper {
    local: Arc<LocalSessions>,
    placement: Arc<dyn Placement>,
}

impl Sweeper {
    pub fn new(local: Arc<LocalSessions>, placement: Arc<dyn Placement>) -> Sweeper {
        Sweeper { local, placement }
    }

    /// Sweeps at regular intervals until Hob stops.
    pub async fn run(self) {
        let options = &self.local.context.options;
        let mut clock = options.clock.clone();
        let mut own = OwnTime::new();
        loop {
            tokio::select! {
                () = tokio::time::sleep(options.limits.sweep_interval) => {}
                () = options.runtime.stopping.cancelled() => return,
            }
            let (system, at) = (Timestamp::now(), Instant::now());
            let own = (own.started, own.clock.now(system, at));
            self.sweep(clock.now(system, at), own).await;
        }
    }

    /// Sweeps once. The next sweep tries again what fails. `own` is the start of this run, and the time by the clock that
    /// it started with: what has happened since is measured by it.
    async fn sweep(&self, now: Timestamp, own: (Timestamp, Timestamp)) {
        let limits = &self.local.context.options.limits;
        let (started, own) = own;
        let idle = IdleLimits {
            started,
            since_start: before(own, limits.ttl),
            earlier: before(now, limits.ttl),
        };
        self.close_idle(&idle).await;
        self.delete_closed(before(now, limits.hard_ttl)).await;
        let runtime = self.local.context.options.runtime.clone();
        let age = limits.hard_ttl;
        let removal = move || {
            remove_old_files(&runtime.sandbox.files, now, age, &|path| runtime.discard(path))
        };
        let _ = tokio::task::spawn_blocking(removal).await;
        self.local.drop_deleted().await;
        if let Err(error) = self.placement.delete_old_files(age).await {
            tracing::error!(%error, "failed to delete old files");
        }
    }

    async fn close_idle(&self, limits: &IdleLimits) {
        let filter = SessionFilter::IdleSince(limits.since_start.max(limits.earlier));
        let idle = match self.local.context.store().sessions(&filter).await {
            Ok(idle) => idle,
            Err(error) => return tracing::error!(%error, "failed to find idle sessions"),
        };
        for session in idle {
            let last = session.last_turn_at.unwrap_or(session.created_at);
            let since = limits.of(last);
            if last >= since {
                continue;
            }
            let Session { app, id, .. } = session;
            let Some(handle) = self.placement.acquire(&app, &id).await else { continue };
            if let Err(error) = self.local.close_idle(&handle, since).await {
                tracing::error!(%error, session = %id, "failed to close an idle session");
            }
        }
    }

    async fn delete_closed(&self, closed_before: Timestamp) {
        let filter = DeleteFilter::ClosedBefore(closed_before);
        match self.local.context.store().delete_sessions(&filter).await {
            Ok(deleted) => deleted.iter().for_each(|id| self.local.clean_up_deleted(id)),
            Err(error) => tracing::error!(%error, "failed to delete closed sessions"),
        }
    }
}

fn before(now: Timestamp, age: Duration) -> Timestamp {
    let age = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(now.as_second().saturating_sub(age)).unwrap_or(Timestamp::MIN)
}
