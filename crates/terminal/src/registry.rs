//! All live terminals.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hob_child::{Child, Size};
use hob_domain::Timestamp;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::live::{About, Kind, Terminal};

/// All live terminals by name. Cloning shares it.
#[derive(Clone, Default)]
pub struct Terminals {
    inner: Arc<Mutex<BTreeMap<String, Arc<Terminal>>>>,
    tasks: TaskTracker,
}

/// What a terminal is entered as.
#[derive(Clone)]
pub struct Entering {
    pub terminals: Terminals,
    pub id: String,
    pub kind: Kind,
    pub agent: String,
}

/// A terminal's place among all. Dropping it ends the watching.
pub struct Entered {
    terminals: Terminals,
    terminal: Arc<Terminal>,
    _reading: DropGuard,
}

impl Terminals {
    /// None yet. What reads them, and what serves those who watch, are tasks of `tasks`.
    pub fn new(tasks: TaskTracker) -> Terminals {
        Terminals { inner: Arc::default(), tasks }
    }

    pub fn all(&self) -> Vec<Arc<Terminal>> {
        self.lock().values().cloned().collect()
    }

    pub fn get(&self, id: &str) -> Option<Arc<Terminal>> {
        self.lock().get(id).cloned()
    }

    pub fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Terminal>>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entering {
    /// For what has no terminal that anybody would look at.
    pub fn nowhere() -> Entering {
        let (id, agent) = (String::new(), String::new());
        Entering { terminals: Terminals::default(), id, kind: Kind::Session, agent }
    }

    /// Enters a child that was started in a terminal of this size. Must be called within a runtime.
    pub fn enter(self, child: &Child, size: Size, app: String, cwd: std::path::PathBuf) -> Entered {
        let Entering { terminals, id, kind, agent } = self;
        let since = Timestamp::now();
        let about = About { id: id.clone(), kind, app, agent, cwd, pid: child.pid(), since };
        let terminal =
            Arc::new(Terminal::new(about, child.output().clone(), child.terminal(), size));
        let stop = CancellationToken::new();
        terminals.tasks.spawn(terminal.clone().keep_reading(stop.clone()));
        terminals.lock().insert(id, terminal.clone());
        Entered { terminals, terminal, _reading: stop.drop_guard() }
    }
}

impl Deref for Entered {
    type Target = Arc<Terminal>;

    fn deref(&self) -> &Arc<Terminal> {
        &self.terminal
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut all = self.terminals.lock();
        // A session's next agent may have taken its place already.
        if all.get(&self.about.id).is_some_and(|other| Arc::ptr_eq(other, &self.terminal)) {
            all.remove(&self.about.id);
        }
    }
}
