//! The list of live processes, in a turn or idle.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hob_child::Output;
use hob_domain::Timestamp;

use super::options::Profile;
use crate::LivePermit;

/// A live process, as a person would want to see it.
#[derive(Debug, Clone)]
pub struct LiveInfo {
    pub number: u64,
    pub session_id: String,
    pub app: String,
    pub cwd: PathBuf,
    /// `None` while it is being started.
    pub pid: Option<i32>,
    /// Whether a turn runs.
    pub busy: bool,
    pub turns: u32,
    pub since: Timestamp,
    /// What its terminal shows.
    pub output: Option<Output>,
}

/// All entries by number. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct LiveList {
    inner: Arc<Mutex<Entries>>,
}

#[derive(Debug, Default)]
struct Entries {
    last: u64,
    entries: BTreeMap<u64, LiveInfo>,
}

impl LiveList {
    /// Enters a process that is about to be started. Its place in the limit is given back with its
    /// entry.
    pub fn enter(&self, permit: LivePermit, profile: &Profile, session_id: &str) -> Listed {
        let mut list = self.lock();
        list.last += 1;
        let number = list.last;
        let info = LiveInfo {
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
        Listed { list: self.clone(), number, _permit: permit }
    }

    pub fn entries(&self) -> Vec<LiveInfo> {
        self.lock().entries.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One process's place on the list. Dropping it gives the place up, however the process ended and
/// whoever was waiting for that.
#[derive(Debug)]
pub struct Listed {
    list: LiveList,
    number: u64,
    _permit: LivePermit,
}

impl Listed {
    /// Whose process it is.
    pub fn app(&self) -> String {
        self.list.lock().entries.get(&self.number).map(|info| info.app.clone()).unwrap_or_default()
    }

    pub fn change(&self, change: impl FnOnce(&mut LiveInfo)) {
        if let Some(info) = self.list.lock().entries.get_mut(&self.number) {
            change(info);
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.list.lock().entries.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LiveLimit;

    #[test]
    fn a_place_is_given_up_with_its_owner() {
        let list = LiveList::default();
        let profile = Profile::new("/w");
        let limit = LiveLimit::new(1);
        let first = list.enter(limit.try_take().unwrap(), &profile, "a");
        assert!(limit.try_take().is_none());
        first.change(|info| info.turns = 3);
        assert_eq!(list.entries()[0].turns, 3);
        drop(first);
        assert!(list.entries().is_empty());
        assert!(limit.try_take().is_some());
    }
}
