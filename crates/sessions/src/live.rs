//! How many agents may be live at once: open sessions and runs together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The limit on live agents. Cloning shares it.
#[derive(Debug, Clone)]
pub struct LiveLimit {
    live: Arc<AtomicUsize>,
    limit: usize,
}

/// The right to one live agent; dropping it gives the place back.
#[derive(Debug)]
pub struct LivePermit {
    live: Arc<AtomicUsize>,
}

impl LiveLimit {
    pub fn new(limit: usize) -> LiveLimit {
        LiveLimit { live: Arc::default(), limit }
    }

    /// A place, or `None` when all are taken. Nobody waits in line: the caller is told to retry.
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
}
