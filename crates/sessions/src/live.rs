//! How many agents may be live at once: open sessions and runs together.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The limit on live agents. Cloning shares it.
#[derive(Debug, Clone)]
pub struct LiveLimit {
    semaphore: Arc<Semaphore>,
    limit: usize,
}

/// The right to one live agent; dropping it gives the place back.
#[derive(Debug)]
pub struct LivePermit {
    _permit: OwnedSemaphorePermit,
}

impl LiveLimit {
    pub fn new(limit: usize) -> LiveLimit {
        LiveLimit { semaphore: Arc::new(Semaphore::new(limit)), limit }
    }

    /// A place, or `None` when all are taken. Nobody waits in line: the caller is told to retry.
    pub fn try_take(&self) -> Option<LivePermit> {
        let permit = self.semaphore.clone().try_acquire_owned().ok()?;
        Some(LivePermit { _permit: permit })
    }

    /// How many places are taken.
    pub fn live(&self) -> usize {
        self.limit - self.semaphore.available_permits()
    }

    pub fn limit(&self) -> usize {
        self.limit
    }
}
