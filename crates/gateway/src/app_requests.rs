//! How many requests each app has open, streams included.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hob_agents::app_permits::{AppPermits, PermitsOfApp};
use hob_domain::AppName;

use crate::error::ApiError;

/// How many long bodies of an app's requests may be in memory at a time.
const MAX_LONG_BODIES: usize = 4;

/// The open requests of all apps. Clones share them.
#[derive(Debug, Clone)]
pub struct AppRequests {
    /// How many each app has open.
    open: Arc<Mutex<HashMap<AppName, usize>>>,
    max: usize,
    long_bodies: AppPermits,
}

/// One open request of an app. Dropping it ends the count.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    requests: AppRequests,
    app: AppName,
}

/// The place of a request's [`OpenRequest`], from its arrival until its response has been sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestSlot(Arc<Mutex<Option<OpenRequest>>>);

impl RequestSlot {
    pub fn set(&self, open: OpenRequest) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(open);
    }

    /// Returns the permits for long bodies of the app that sent the request.
    pub fn long_bodies(&self) -> Option<PermitsOfApp> {
        let slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().map(|open| open.requests.long_bodies.of(open.app.as_str()))
    }
}

impl AppRequests {
    /// An app may have `max` requests open.
    pub fn new(max: usize) -> AppRequests {
        AppRequests { open: Arc::default(), max, long_bodies: AppPermits::new(MAX_LONG_BODIES) }
    }

    /// Counts a request until the returned value is dropped. The owner has no limit.
    pub(crate) fn open(&self, app: &AppName) -> Result<OpenRequest, ApiError> {
        let mut open = self.lock();
        let count = open.get(app).copied().unwrap_or_default();
        if count >= self.max && !app.is_owner() {
            return Err(ApiError::Limited {
                code: "app_requests",
                message: format!(
                    "the app has {count} open requests, which is the limit; wait for one or raise \
                     limits.app_requests"
                ),
                retry_after: Duration::from_secs(1),
            });
        }
        *open.entry(app.clone()).or_default() += 1;
        Ok(OpenRequest { requests: self.clone(), app: app.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AppName, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut open = self.requests.lock();
        if let Some(count) = open.get_mut(&self.app) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.app);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_app_has_its_own_limit() {
        let requests = AppRequests::new(1);
        let (a, b) = (AppName::new("a").unwrap(), AppName::new("b").unwrap());
        let first = requests.open(&a).unwrap();
        assert!(requests.open(&a).is_err());
        assert!(requests.open(&b).is_ok());
        let owner = AppName::owner();
        assert!((requests.open(&owner), requests.open(&owner)).1.is_ok());
        drop(first);
        assert!(requests.open(&a).is_ok());
    }
}
