//! How many agents may be live at once: open sessions, runs and the processes of the Claude backend.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;

/// The limit on live agents. Cloning shares it.
#[derive(Clone)]
pub struct LiveLimit {
    live: Arc<AtomicUsize>,
    limit: usize,
    spare: Arc<OnceLock<Weak<dyn Spare>>>,
}

/// The right to one live agent; dropping it gives the place back.
#[derive(Debug)]
pub struct LivePermit {
    live: Arc<AtomicUsize>,
}

/// Whoever keeps agents warm that nobody uses right now.
#[async_trait]
pub trait Spare: Send + Sync {
    /// Ends one of them, with its whole tree. `false` when there is none.
    async fn give_one_up(&self) -> bool;
}

impl LiveLimit {
    pub fn new(limit: usize) -> LiveLimit {
        LiveLimit { live: Arc::default(), limit, spare: Arc::default() }
    }

    /// Names who makes way when all places are taken. The first one counts.
    pub fn spare(&self, spare: Weak<dyn Spare>) {
        let _ = self.spare.set(spare);
    }

    /// A place; where all are taken, one of those that are only kept warm makes way. `None` when there
    /// is none of these. Nobody waits in line: the caller is told to retry.
    pub async fn take(&self) -> Option<LivePermit> {
        loop {
            if let Some(permit) = self.try_take() {
                return Some(permit);
            }
            let spare = self.spare.get().and_then(Weak::upgrade)?;
            if !spare.give_one_up().await {
                return None;
            }
        }
    }

    /// A place that is free.
    pub fn try_take(&self) -> Option<LivePermit> {
        let free = |live| (live < self.limit).then_some(live + 1);
        self.live.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).ok()?;
        Some(LivePermit { live: self.live.clone() })
    }

    /// A place for what is live already, whatever the limit is now.
    pub fn take_anyway(&self) -> LivePermit {
        self.live.fetch_add(1, Ordering::AcqRel);
        LivePermit { live: self.live.clone() }
    }

    /// How many places are taken.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }

    pub fn limit(&self) -> usize {
        self.limit
    }
}

impl Drop for LivePermit {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn places_come_back() {
        let limit = LiveLimit::new(1);
        let restored = limit.take_anyway();
        assert!(limit.try_take().is_none());
        let more = limit.take_anyway();
        assert_eq!(limit.live(), 2);
        drop((restored, more));
        let taken = limit.try_take();
        assert!(taken.is_some() && limit.try_take().is_none());
    }

    struct Warm(Mutex<Vec<LivePermit>>);

    #[async_trait]
    impl Spare for Warm {
        async fn give_one_up(&self) -> bool {
            self.0.lock().unwrap().pop().is_some()
        }
    }

    #[tokio::test]
    async fn what_is_only_kept_warm_makes_way() {
        let limit = LiveLimit::new(2);
        let warm = Arc::new(Warm(Mutex::new(vec![limit.try_take().unwrap()])));
        let shared: Arc<dyn Spare> = warm.clone();
        limit.spare(Arc::downgrade(&shared));
        let first = limit.take().await;
        let second = limit.take().await;
        assert!(first.is_some() && second.is_some() && warm.0.lock().unwrap().is_empty());
        assert!(limit.take().await.is_none(), "those in use stay");
        drop((first, shared, warm));
        assert!(limit.take().await.is_some());
    }
}
