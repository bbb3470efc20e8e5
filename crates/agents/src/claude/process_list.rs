//! The list of live processes, in a turn or idle.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hob_child::Output;
use hob_domain::Timestamp;

use super::profile::Profile;
use crate::live_limit::LivePermit;

/// The facts about a live process.
#[derive(Debug, Clone)]
pub struct ProcessInfo {
    pub number: u64,
    pub session_id: String,
    pub app: String,
    pub cwd: PathBuf,
    /// `None` while the process starts.
    pub pid: Option<i32>,
    /// Whether a turn runs.
    pub busy: bool,
    pub turns: u32,
    pub since: Timestamp,
    /// The output of its terminal.
    pub output: Option<Output>,
}

/// All live processes by number. Clones share the list.
#[derive(Debug, Clone, Default)]
pub struct ProcessList {
    inner: Arc<Mutex<Entries>>,
}

#[derive(Debug, Default)]
struct Entries {
    last: u64,
    entries: BTreeMap<u64, ProcessInfo>,
}

impl ProcessList {
    /// Adds a process that is about to start. Its permit is returned when the entry is dropped.
    pub fn enter(&self, permit: LivePermit, profile: &Profile, session_id: &str) -> ProcessEntry {
        let mut list = self.lock();
        list.last += 1;
        let number = list.last;
        let info = ProcessInfo {
            number,
            session_id: session_id.to_owned(),
            app: profile.app.clone(),
            cwd: profile.cwd.clone(),
            pid: None,
            busy: true,
            turns: 0,
            since: Timestamp::now(),
            output: None,
        };
        list.entries.insert(number, info);
        ProcessEntry { list: self.clone(), number, _permit: permit }
    }

    pub fn entries(&self) -> Vec<ProcessInfo> {
        self.lock().entries.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One process's entry in the list. Dropping it removes the entry, however the process ended.
#[derive(Debug)]
pub struct ProcessEntry {
    list: ProcessList,
    number: u64,
    _permit: LivePermit,
}

impl ProcessEntry {
    /// Returns the app that owns the process.
    pub fn app(&self) -> String {
        self.list.lock().entries.get(&self.number).map(|info| info.app.clone()).unwrap_or_default()
    }

    /// Returns the session id and the number of completed turns.
    pub fn session(&self) -> (String, u32) {
        let list = self.list.lock();
        let info = list.entries.get(&self.number);
        info.map(|info| (info.session_id.clone(), info.turns)).unwrap_or_default()
    }

    pub fn update(&self, change: impl FnOnce(&mut ProcessInfo)) {
        if let Some(info) = self.list.lock().entries.get_mut(&self.number) {
            change(info);
        }
    }
}

impl Drop for ProcessEntry {
    fn drop(&mut self) {
        self.list.lock().entries.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live_limit::LiveLimit;

    #[test]
    fn dropped_entry_returns_its_permit() {
        let list = ProcessList::default();
        let profile = Profile::new("/w");
        let limit = LiveLimit::new(1);
        let first = list.enter(limit.try_acquire("a").unwrap(), &profile, "a");
        assert!(limit.try_acquire("a").is_none());
        first.update(|info| info.turns = 3);
        assert_eq!(list.entries()[0].turns, 3);
        drop(first);
        assert!(list.entries().is_empty());
        assert!(limit.try_acquire("a").is_some());
    }
}
