//! The limit on live agents: open sessions, runs and the processes of the Claude backend.
//!
//! An app may use every place that is free, so that a server with one app is used in full. When no place is free, an app
//! that has less than its share gets one beyond the limit, as long as another has more than its share: the places divided by
//! the apps that have agents or want one. Two places are enough for a session and a run next to it, so an app gets no more of
//! those. Hence with many apps two to three times as many agents can run as the limit says, but only while apps keep more than
//! their share. A place of such an app that becomes free is not given away until the number is below the limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use hob_domain::AppName;

/// How many apps without a live agent get one in addition when all permits are taken, so that one app cannot keep all
/// others out.
const NEWCOMERS_RESERVE: usize = 2;
/// How many agents of the owner's own may run in addition to those.
const OWNERS_RESERVE: usize = 2;
/// How many agents an app may have by its share when no place is free.
const MAX_BY_SHARE: usize = 2;
/// When to ask again if nobody knows which agent ends next.
const RETRY_AFTER: Duration = Duration::from_secs(1);

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

    /// Returns how long it takes until an agent can be ended that cannot be ended yet, if there is one.
    fn next_end(&self) -> Option<Duration>;
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
    /// permits for apps that have less than their share, and for the owner's own work.
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
        let own = in_use.get(app).copied().unwrap_or_default();
        let is_owner = app == AppName::owner().as_str();
        let (reserve, by_share) = match (is_owner, own) {
            (true, _) => (NEWCOMERS_RESERVE + OWNERS_RESERVE, usize::MAX),
            (false, 0) => (NEWCOMERS_RESERVE, MAX_BY_SHARE),
            (false, _) => (0, MAX_BY_SHARE),
        };
        let is_free = total(&in_use) < self.limit + reserve
            || is_owner && own < OWNERS_RESERVE
            || own < by_share && self.has_less_than_its_share(&in_use, app);
        is_free.then(|| self.add(&mut in_use, app))
    }

    /// Returns whether an app has less than its share, and another one more than that.
    fn has_less_than_its_share(&self, in_use: &HashMap<String, usize>, app: &str) -> bool {
        let mut others = in_use.iter().filter(|(name, _)| *name != app);
        let own = in_use.get(app).copied().unwrap_or_default();
        let share = self.limit / (others.clone().count() + 1);
        own < share && others.any(|(_, count)| *count > share)
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

    /// Returns when a caller without a permit should ask again.
    pub fn retry_after(&self) -> Duration {
        let idle = self.idle.get().and_then(Weak::upgrade);
        idle.and_then(|idle| idle.next_end()).unwrap_or(RETRY_AFTER)
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

    #[tokio::test]
    async fn every_app_gets_a_place_while_others_have_more_than_their_share() {
        let limit = LiveLimit::new(16);
        let mut held = Vec::new();
        while let Some(permit) = limit.acquire("greedy").await {
            held.push(permit);
        }
        assert_eq!(held.len(), 16, "one app alone uses every place");
        for number in 0..15 {
            let app = format!("app-{number}");
            held.extend([limit.acquire(&app).await.unwrap_or_else(|| panic!("{app}"))]);
        }
        assert!(limit.acquire("one more").await.is_none(), "there are more apps than places");
        let owner = AppName::owner();
        assert!(limit.acquire(owner.as_str()).await.is_some(), "the owner always gets one");
        assert!(limit.acquire("greedy").await.is_none());
        assert!(limit.in_use() < 2 * limit.limit());
    }

    #[tokio::test]
    async fn app_below_its_share_gets_a_session_and_a_run() {
        let limit = LiveLimit::new(16);
        let mut held = Vec::new();
        while let Some(permit) = limit.acquire("greedy").await {
            held.push(permit);
        }
        for app in ["b", "c", "d"] {
            let (session, run) = (limit.acquire(app).await, limit.acquire(app).await);
            assert!(session.is_some() && run.is_some(), "{app}");
            assert!(limit.acquire(app).await.is_none(), "not more than two");
            held.extend([session, run].into_iter().flatten());
        }
        let fair = LiveLimit::new(4);
        let _all = [fair.acquire("a").await, fair.acquire("a").await, fair.acquire("b").await];
        let _last = fair.acquire("b").await;
        assert!(fair.acquire("a").await.is_none(), "nobody has more than the share");
    }

    struct Warm(Mutex<Vec<LivePermit>>);

    #[async_trait]
    impl IdleAgents for Warm {
        async fn end_one(&self) -> bool {
            self.0.lock().unwrap().pop().is_some()
        }

        fn next_end(&self) -> Option<Duration> {
            None
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
