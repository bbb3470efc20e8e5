//! The limit on live agents: open sessions, runs and the processes of the Claude backend.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use async_trait::async_trait;
use hob_domain::AppName;

/// How many apps without a live agent get one in addition when all permits are taken, so that one app cannot keep all
/// others out.
const NEWCOMERS_RESERVE: usize = 2;
/// How many agents of the owner's own may run in addition to those.
const OWNERS_RESERVE: usize = 2;

/// The limit on live agents. Clones share it.
#[derive(Clone)]
pub struct LiveLimit {
    in_use: Arc<InUse>,
    limit: usize,
    idle: Arc<OnceLock<Weak<dyn IdleAgents>>>,
}

/// How many permits are in use.
#[derive(Debug, Default)]
struct InUse {
    by_app: Mutex<HashMap<String, usize>>,
}

impl InUse {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.by_app.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A permit for one live agent. Dropping it returns the permit.
#[derive(Debug)]
pub struct LivePermit {
    in_use: Arc<InUse>,
    app: String,
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

    /// Acquires a permit for an agent of this app, ending an idle agent if all permits are taken. Returns `None` if
    /// every agent is in use. There is no queue: callers report the full pool and clients retry. There are some more
    /// permits for apps that have no live agent, and for the owner's own work.
    pub async fn acquire(&self, app: &str) -> Option<LivePermit> {
        loop {
            if let Some(permit) = self.try_acquire(app) {
                return Some(permit);
            }
            let idle = self.idle.get().and_then(Weak::upgrade);
            let has_ended_one = match idle {
                Some(idle) => idle.end_one().await,
                None => false,
            };
            if !has_ended_one {
                return self.acquire_reserve(app);
            }
        }
    }

    /// Acquires a permit if one is free.
    pub fn try_acquire(&self, app: &str) -> Option<LivePermit> {
        let mut in_use = self.in_use.lock();
        let is_free = total(&in_use) < self.limit;
        is_free.then(|| self.add(&mut in_use, app))
    }

    fn acquire_reserve(&self, app: &str) -> Option<LivePermit> {
        let mut in_use = self.in_use.lock();
        let limit = match app == AppName::owner().as_str() {
            true => self.limit + NEWCOMERS_RESERVE + OWNERS_RESERVE,
            false if in_use.contains_key(app) => self.limit,
            false => self.limit + NEWCOMERS_RESERVE,
        };
        let is_free = total(&in_use) < limit;
        is_free.then(|| self.add(&mut in_use, app))
    }

    /// Returns a permit for an agent that is live already, even above the limit.
    pub fn acquire_above_limit(&self, app: &str) -> LivePermit {
        self.add(&mut self.in_use.lock(), app)
    }

    fn add(&self, in_use: &mut HashMap<String, usize>, app: &str) -> LivePermit {
        *in_use.entry(app.to_owned()).or_default() += 1;
        LivePermit { in_use: self.in_use.clone(), app: app.to_owned() }
    }

    /// Returns the number of permits in use.
    pub fn in_use(&self) -> usize {
        total(&self.in_use.lock())
    }

    pub fn limit(&self) -> usize {
        self.limit
    }
}

fn total(in_use: &HashMap<String, usize>) -> usize {
    in_use.values().sum()
}

impl Drop for LivePermit {
    fn drop(&mut self) {
        let mut in_use = self.in_use.lock();
        if let Some(count) = in_use.get_mut(&self.app) {
            *count -= 1;
            if *count == 0 {
                in_use.remove(&self.app);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_permits_are_free_again() {
        let (limit, a) = (LiveLimit::new(1), "a");
        let restored = limit.acquire_above_limit(a);
        assert!(limit.try_acquire(a).is_none());
        let more = limit.acquire_above_limit(a);
        assert_eq!(limit.in_use(), 2);
        drop((restored, more));
        let taken = limit.try_acquire(a);
        assert!(taken.is_some() && limit.try_acquire(a).is_none());
    }

    #[tokio::test]
    async fn others_get_a_place_when_one_app_has_taken_all() {
        let limit = LiveLimit::new(1);
        let (greedy, owner) = ("greedy", AppName::owner());
        let _taken = limit.acquire(greedy).await;
        assert!(limit.acquire(greedy).await.is_none());
        let (b, c) = (limit.acquire("b").await, limit.acquire("c").await);
        assert!(b.is_some() && c.is_some());
        assert!(limit.acquire("b").await.is_none(), "one place, not two");
        assert!(limit.acquire("d").await.is_none(), "the reserve is taken");
        let (first, second) =
            (limit.acquire(owner.as_str()).await, limit.acquire(owner.as_str()).await);
        assert!(first.is_some() && second.is_some());
        assert!(limit.acquire(owner.as_str()).await.is_none());
        drop(b);
        assert!(limit.acquire(greedy).await.is_none());
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
        let (limit, a) = (LiveLimit::new(2), "a");
        let warm = Arc::new(Warm(Mutex::new(vec![limit.try_acquire(a).unwrap()])));
        let shared: Arc<dyn IdleAgents> = warm.clone();
        limit.set_idle_agents(Arc::downgrade(&shared));
        let first = limit.acquire(a).await;
        let second = limit.acquire(a).await;
        assert!(first.is_some() && second.is_some() && warm.0.lock().unwrap().is_empty());
        assert!(limit.acquire(a).await.is_none(), "agents in use are never ended");
        drop((first, shared, warm));
        assert!(limit.acquire(a).await.is_some());
    }
}
