//! The open sessions of this node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hob_domain::AppName;
use hob_domain::session::SessionId;

use super::handle::SessionHandle;

/// Handles of the open sessions, by id.
#[derive(Default)]
pub(super) struct Registry {
    open: Mutex<HashMap<SessionId, Arc<SessionHandle>>>,
}

impl Registry {
    fn open(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<SessionHandle>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn insert(&self, handle: Arc<SessionHandle>) {
        self.open().insert(handle.id.clone(), handle);
    }

    /// Returns an app's session, even if this node has lost its lease.
    pub fn get(&self, app: &AppName, id: &SessionId) -> Option<Arc<SessionHandle>> {
        self.open().get(id).filter(|handle| handle.app == *app).cloned()
    }

    /// Returns an app's session if this node still holds its lease.
    pub fn leased(&self, app: &AppName, id: &SessionId) -> Option<Arc<SessionHandle>> {
        self.get(app, id).filter(|handle| !handle.is_lost())
    }

    /// Returns all open sessions.
    pub fn all(&self) -> Vec<Arc<SessionHandle>> {
        self.open().values().cloned().collect()
    }

    /// Returns any open session.
    pub fn any(&self) -> Option<Arc<SessionHandle>> {
        self.open().values().next().cloned()
    }

    pub fn is_empty(&self) -> bool {
        self.open().is_empty()
    }

    /// Removes a session, unless a newer handle has taken its place, and frees its permit.
    pub fn remove(&self, handle: &Arc<SessionHandle>) {
        handle.release_permit();
        let mut open = self.open();
        if open.get(&handle.id).is_some_and(|found| Arc::ptr_eq(found, handle)) {
            open.remove(&handle.id);
        }
    }

    /// Removes and returns all sessions of an app.
    pub fn remove_app(&self, app: &AppName) -> Vec<Arc<SessionHandle>> {
        let mut open = self.open();
        let ids: Vec<SessionId> = open
            .values()
            .filter(|handle| handle.app == *app)
            .map(|handle| handle.id.clone())
            .collect();
        ids.iter().filter_map(|id| open.remove(id)).collect()
    }

    /// Returns how many sessions an app has open.
    pub fn count_of(&self, app: &AppName) -> usize {
        self.open().values().filter(|handle| handle.app == *app).count()
    }

    /// Returns how many sessions each app has open.
    pub fn counts_by_app(&self) -> HashMap<AppName, usize> {
        let mut counts = HashMap::new();
        for handle in self.open().values() {
            *counts.entry(handle.app.clone()).or_default() += 1;
        }
        counts
    }

    /// Returns how many sessions are open, and how many of them have a turn running or queued.
    pub fn open_and_busy(&self) -> (usize, usize) {
        let open = self.open();
        (open.len(), open.values().filter(|handle| !handle.is_idle()).count())
    }

    /// Returns how many sessions wait for a permission answer, and how many turns are queued.
    pub fn waiting(&self) -> (usize, usize) {
        let open = self.open();
        let waiting = open.values().map(|handle| handle.waiting());
        waiting.fold((0, 0), |sum, (asks, queued)| (sum.0 + usize::from(asks), sum.1 + queued))
    }

    /// Returns whether a session waits for an answer to a permission request or a form.
    pub fn is_waiting(&self, id: &SessionId) -> bool {
        self.open().get(id).is_some_and(|handle| handle.waiting().0)
    }

    /// Returns whether an open session of this app runs the agent's conversation of this name.
    pub fn has_conversation(&self, app: &str, name: &str) -> bool {
        let open = self.open();
        let mut of_app = open.values().filter(|handle| handle.app.as_str() == app);
        of_app.any(|handle| handle.conversation().as_deref() == Some(name))
    }
}
