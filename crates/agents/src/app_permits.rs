//! Permits of which every app has its own, so that what one app keeps in memory is bounded and others do not wait for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The permits of all apps. Clones share them.
#[derive(Debug, Clone)]
pub struct AppPermits {
    by_app: Arc<Mutex<HashMap<String, Weak<Semaphore>>>>,
    /// How many an app has.
    max: usize,
}

/// What the agents of an app may keep in Hob's memory at a time. Clones share it.
#[derive(Debug, Clone)]
pub struct ReadingPermits {
    /// For long lines of output.
    pub long_lines: PermitsOfApp,
    /// For requests for files, each until a long answer has been read.
    pub file_requests: PermitsOfApp,
    /// For long parts of transcripts, each until its records are passed on.
    pub records: PermitsOfApp,
}

/// The permits of one app. Clones share them.
#[derive(Debug, Clone)]
pub struct PermitsOfApp(Arc<Semaphore>);

/// A permit. Dropping it lets the next one in.
#[derive(Debug)]
pub struct AppPermit {
    _permit: Option<OwnedSemaphorePermit>,
}

impl AppPermits {
    /// Every app has `max` permits.
    pub fn new(max: usize) -> AppPermits {
        AppPermits { by_app: Arc::default(), max }
    }

    pub fn of(&self, app: &str) -> PermitsOfApp {
        let mut all = self.by_app.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, permits| permits.strong_count() > 0);
        if let Some(permits) = all.get(app).and_then(Weak::upgrade) {
            return PermitsOfApp(permits);
        }
        let permits = Arc::new(Semaphore::new(self.max));
        all.insert(app.to_owned(), Arc::downgrade(&permits));
        PermitsOfApp(permits)
    }
}

impl PermitsOfApp {
    /// Waits for a permit.
    pub async fn acquire(&self) -> AppPermit {
        // The semaphore is never closed.
        AppPermit { _permit: self.0.clone().acquire_owned().await.ok() }
    }

    /// Returns a permit that counts as `count`, or `None` if fewer are left.
    pub fn try_acquire_many(&self, count: u32) -> Option<AppPermit> {
        let permit = self.0.clone().try_acquire_many_owned(count).ok()?;
        Some(AppPermit { _permit: Some(permit) })
    }

    /// Returns a permit, or `None` if all are taken.
    pub fn try_acquire(&self) -> Option<AppPermit> {
        let permit = self.0.clone().try_acquire_owned().ok()?;
        Some(AppPermit { _permit: Some(permit) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_app_has_its_own_permits() {
        let permits = AppPermits::new(2);
        let (first, second) = (permits.of("a"), permits.of("a"));
        let held = [first.acquire().await, second.acquire().await];
        assert!(permits.of("a").try_acquire().is_none());
        assert!(permits.of("b").try_acquire().is_some());
        drop(held);
        assert_eq!(second.0.available_permits(), 2);
        assert!(permits.of("a").try_acquire().is_some());
        assert!(permits.of("a").try_acquire_many(3).is_none());
        let both = permits.of("a").try_acquire_many(2);
        assert!(both.is_some() && permits.of("a").try_acquire().is_none());
    }
}
