//! How many requests each app has open, streams included.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hob_agents::app_permits::{AppPermit, AppPermits, PermitsOfApp};
use hob_domain::AppName;

use crate::connection_places::{ConnectionPlace, PlaceInUse};
use crate::error::ApiError;

/// How many long bodies of an app's requests may be in memory at a time.
const MAX_LONG_BODIES: usize = 4;
/// Longer bodies need a permit until they are parsed, and count until they are answered.
pub(crate) const LONG_BODY_BYTES: usize = 64 << 10;
/// How many KiB of long bodies an app's open requests and turns may have. A request makes several copies of its body on the
/// way to the agent, so this counts until the response has been sent, and until a turn is over.
const MAX_OPEN_BODY_KIB: usize = 24 << 10;

/// The open requests of all apps. Clones share them.
#[derive(Debug, Clone)]
pub struct AppRequests {
    /// How many each app has open.
    open: Arc<Mutex<HashMap<AppName, usize>>>,
    max: usize,
    /// How many all apps have open together.
    max_together: usize,
    long_bodies: AppPermits,
    body_kib: AppPermits,
}

/// One open request of an app. Dropping it ends the count.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    requests: AppRequests,
    app: AppName,
    /// What its long body counts.
    body: Option<AppPermit>,
}

/// What a request holds from its arrival until its response has been sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestSlot(Arc<Mutex<HeldByRequest>>);

#[derive(Debug, Default)]
struct HeldByRequest {
    open: Option<OpenRequest>,
    /// The place of its connection.
    place: Option<PlaceInUse>,
}

impl RequestSlot {
    pub fn set(&self, open: OpenRequest) {
        self.lock().open = Some(open);
    }

    /// Keeps the place of the request's connection, because its caller is known.
    pub fn keep_place(&self, place: &ConnectionPlace) {
        let mut held = self.lock();
        if held.place.is_none() {
            held.place = Some(place.keep());
        }
    }

    /// Returns the permits for long bodies of the app that sent the request.
    pub fn long_bodies(&self) -> Option<PermitsOfApp> {
        self.lock().open.as_ref().map(|open| open.requests.long_bodies.of(open.app.as_str()))
    }

    /// Counts a body until the response has been sent, if it is long.
    pub fn count_body(&self, bytes: usize) -> Result<(), ApiError> {
        if let Some(open) = self.lock().open.as_mut() {
            open.body = open.requests.count_long(&open.app, bytes)?;
        }
        Ok(())
    }

    /// Returns what a long body counts, for something that outlives the request.
    pub fn take_body(&self) -> Option<AppPermit> {
        self.lock().open.as_mut().and_then(|open| open.body.take())
    }

    fn lock(&self) -> MutexGuard<'_, HeldByRequest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AppRequests {
    /// An app may have `max` requests open, and at most half of all connections. All apps together leave a quarter of them,
    /// so that the owner always gets one; of an app that has none, a request is always accepted.
    pub fn new(max: usize, max_connections: usize) -> AppRequests {
        let max = max.min(max_connections / 2);
        AppRequests {
            open: Arc::default(),
            max,
            max_together: max_connections / 4 * 3,
            long_bodies: AppPermits::new(MAX_LONG_BODIES),
            body_kib: AppPermits::new(MAX_OPEN_BODY_KIB),
        }
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
        let together: usize = open.iter().filter(|(app, _)| !app.is_owner()).map(|(_, n)| n).sum();
        if count > 0 && together >= self.max_together && !app.is_owner() {
            return Err(ApiError::Limited {
                code: "app_requests",
                message: "the apps have too many open requests together; wait for one".to_owned(),
                retry_after: Duration::from_secs(1),
            });
        }
        *open.entry(app.clone()).or_default() += 1;
        Ok(OpenRequest { requests: self.clone(), app: app.clone(), body: None })
    }

    /// Counts the bytes of a body or a prompt until the returned value is dropped, if they are many. One alone may have any
    /// length. The owner has no limit.
    pub(crate) fn count_long(
        &self,
        app: &AppName,
        bytes: usize,
    ) -> Result<Option<AppPermit>, ApiError> {
        if bytes <= LONG_BODY_BYTES || app.is_owner() {
            return Ok(None);
        }
        let kib = bytes.div_ceil(1 << 10).min(MAX_OPEN_BODY_KIB) as u32;
        let permit = self.body_kib.of(app.as_str()).try_acquire_many(kib);
        permit.map(Some).ok_or_else(|| ApiError::Limited {
            code: "app_bodies",
            message: format!(
                "the app's open requests and turns have {} MiB of long bodies, which is the limit; wait \
                 for one",
                MAX_OPEN_BODY_KIB >> 10
            ),
            retry_after: Duration::from_secs(1),
        })
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
        let requests = AppRequests::new(1, 16);
        let (a, b) = (AppName::new("a").unwrap(), AppName::new("b").unwrap());
        let first = requests.open(&a).unwrap();
        assert!(requests.open(&a).is_err());
        assert!(requests.open(&b).is_ok());
        let owner = AppName::owner();
        assert!((requests.open(&owner), requests.open(&owner)).1.is_ok());
        drop(first);
        assert!(requests.open(&a).is_ok());
    }

    #[test]
    fn all_apps_together_leave_connections_for_the_owner() {
        let requests = AppRequests::new(99, 16);
        let app = |name: &str| AppName::new(name).unwrap();
        let open: Vec<OpenRequest> = ["a", "a", "a", "a", "a", "a", "b", "b", "b", "b", "b", "b"]
            .map(|name| requests.open(&app(name)).unwrap())
            .into();
        assert!(requests.open(&app("a")).is_err() && requests.open(&app("b")).is_err());
        assert!(requests.open(&app("c")).is_ok(), "the first request of an app");
        assert!(requests.open(&AppName::owner()).is_ok());
        drop(open);
        assert!((requests.open(&app("a")), requests.open(&app("a"))).1.is_ok());
    }

    #[test]
    fn long_bodies_of_an_app_are_bounded_until_their_responses_are_sent() {
        let requests = AppRequests::new(9, 99);
        let slot = |app: &str| {
            let slot = RequestSlot::default();
            slot.set(requests.open(&AppName::new(app).unwrap()).unwrap());
            slot
        };
        let slots = [slot("a"), slot("a"), slot("a"), slot("a")];
        let counted = slots.each_ref().map(|slot| slot.count_body(8 << 20).is_ok());
        assert_eq!(counted, [true, true, true, false]);
        assert!(slot("b").count_body(900 << 20).is_ok(), "one alone");
        drop(slots);
        assert!(slot("a").count_body(900 << 20).is_ok());
        let owner = RequestSlot::default();
        owner.set(requests.open(&AppName::owner()).unwrap());
        assert!((owner.count_body(900 << 20), owner.count_body(900 << 20)).1.is_ok());
    }
}
