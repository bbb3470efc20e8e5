//! The limit on live agents: open sessions, runs and the processes of the Claude backend.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use hob_domain::AppName;

/// How many agents of the owner's own may run in addition when all permits are taken.
const OWNERS_RESERVE: usize = 2;

/// The limit on live agents. Clones share it.
#[derive(Clone)]
pub struct LiveLimit {
    in_use: Arc<AtomicUsize>,
    limit: usize,
    idle: Arc<OnceLock<Weak<dyn IdleAgents>>>,
}

/// A permit for one live agent. Dropping it returns the permit.
#[derive(Debug)]
pub struct LivePermit {
    in_use: Arc<AtomicUsize>,
}

/// Agents that are kept warm but not in use.
#[async_trait]
pub trait IdleAgents: Send + Sync {
    /// Ends one idle agent with its process tree. Returns `false` if there is none.
    async fn end_one(&self) -> bool;
}

impl LiveLimit {
    pub fn new(limit: usize) -> LiveLimit {
        LiveLimit { in_use: Arc::default(), limit, idle: Arc::default() }
    }

    /// Registers the idle agents that are ended when all permits are taken. Only the first call counts.
    pub fn set_idle_agents(&self, idle: Weak<dyn IdleAgents>) {
        let _ = self.idle.set(idle);
    }

    /// Acquires a permit, ending an idle agent if all permits are taken. Returns `None` if every agent is
    /// in use. There is no queue: callers report the full pool and clients retry.
    pub async fn acquire(&self) -> Option<LivePermit> {
        loop {
            if let Some(permit) = self.try_acquire() {
                return Some(permit);
            }
            let idle = self.idle.get().and_then(Weak::upgrade)?;
            if !idle.end_one().await {
                return None;
            }
        }
    }

    /// Acquires a permit for an agent of this app. For the owner's own work there are some more.
    pub async fn acquire_for(&self, app: &AppName) -> Option<LivePermit> {
        match self.acquire().await {
            None if *app == AppName::owner() => self.try_acquire_below(self.limit + OWNERS_RESERVE),
            permit => permit,
        }
    }

    /// Acquires a permit if one is free.
    pub fn try_acquire(&self) -> Option<LivePermit> {
        self.try_acquire_below(self.limit)
    }

    fn try_acquire_below(&self, limit: usize) -> Option<LivePermit> {
        let free = |in_use| (in_use < limit).then_some(in_use + 1);
        self.in_use.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).ok()?;
        Some(LivePermit { in_use: self.in_use.clone() })
    }

    /// Returns a permit for an agent that is live already, even above the limit.
    pub fn acquire_above_limit(&self) -> LivePermit {
        self.in_use.fetch_add(1, Ordering::AcqRel);
        LivePermit { in_use: self.in_use.clone() }
    }

    /// Returns the number of permits in use.
    pub fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Acquire)
    }

    pub fn limit(&self) -> usize {
        self.limit
    }
}

impl Drop for LivePermit {
    fn drop(&mut self) {
        self.in_use.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn dropped_permits_are_free_again() {
        let limit = LiveLimit::new(1);
        let restored = limit.acquire_above_limit();
        assert!(limit.try_acquire().is_none());
        let more = limit.acquire_above_limit();
        assert_eq!(limit.in_use(), 2);
        drop((restored, more));
        let taken = limit.try_acquire();
        assert!(taken.is_some() && limit.try_acquire().is_none());
    }

    #[tokio::test]
    async fn owner_gets_a_place_when_apps_have_taken_all() {
        let limit = LiveLimit::new(1);
        let _taken = limit.acquire().await;
        assert!(limit.acquire().await.is_none());
        let (app, owner) = (AppName::new("a").unwrap(), AppName::owner());
        assert!(limit.acquire_for(&app).await.is_none());
        let (first, second) = (limit.acquire_for(&owner).await, limit.acquire_for(&owner).await);
        assert!(first.is_some() && second.is_some());
        assert!(limit.acquire_for(&owner).await.is_none());
    }

    struct Warm(Mutex<Vec<LivePermit>>);

    #[async_trait]
    impl IdleAgents for Warm {
        async fn end_one(&self) -> bool {
            self.0.lock().unwrap().pop().is_some()
        }
    }

    #[tokio::test]
    async fn idle_agent_is_ended_when_the_limit_is_reached() {
        let limit = LiveLimit::new(2);
        let warm = Arc::new(Warm(Mutex::new(vec![limit.try_acquire().unwrap()])));
        let shared: Arc<dyn IdleAgents> = warm.clone();
        limit.set_idle_agents(Arc::downgrade(&shared));
        let first = limit.acquire().await;
        let second = limit.acquire().await;
        assert!(first.is_some() && second.is_some() && warm.0.lock().unwrap().is_empty());
        assert!(limit.acquire().await.is_none(), "agents in use are never ended");
        drop((first, shared, warm));
        assert!(limit.acquire().await.is_some());
    }
}
