//! The registry of live terminals.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hob_child::{Child, Size};
use hob_domain::Timestamp;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::terminal::{Terminal, TerminalInfo, TerminalKind};

/// All live terminals by id. Clones share them.
#[derive(Clone, Default)]
pub struct Terminals {
    inner: Arc<Mutex<BTreeMap<String, Arc<Terminal>>>>,
    tasks: TaskTracker,
}

/// Registers a child's terminal under an id.
#[derive(Clone)]
pub struct TerminalRegistrar {
    pub terminals: Terminals,
    pub id: String,
    pub kind: TerminalKind,
    pub agent: String,
}

/// A registered terminal. Dropping it removes the terminal and stops reading its output.
pub struct TerminalRegistration {
    terminals: Terminals,
    terminal: Arc<Terminal>,
    _reading: DropGuard,
}

impl Terminals {
    /// Creates an empty registry. The tasks that read terminals and serve viewers belong to `tasks`.
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

impl TerminalRegistrar {
    /// Creates a registrar whose terminals nobody can find.
    pub fn detached() -> TerminalRegistrar {
        let (id, agent) = (String::new(), String::new());
        TerminalRegistrar {
            terminals: Terminals::default(),
            id,
            kind: TerminalKind::Session,
            agent,
        }
    }

    /// Registers a child that was started in a terminal of this size. Must be called within a tokio
    /// runtime.
    pub fn register(
        self,
        child: &Child,
        size: Size,
        app: String,
        cwd: std::path::PathBuf,
    ) -> TerminalRegistration {
        let TerminalRegistrar { terminals, id, kind, agent } = self;
        let since = Timestamp::now();
        let info = TerminalInfo { id: id.clone(), kind, app, agent, cwd, pid: child.pid(), since };
        let terminal =
            Arc::new(Terminal::new(info, child.output().clone(), child.terminal(), size));
        let stop = CancellationToken::new();
        terminals.tasks.spawn(terminal.clone().keep_reading(stop.clone()));
        terminals.lock().insert(id, terminal.clone());
        TerminalRegistration { terminals, terminal, _reading: stop.drop_guard() }
    }
}

impl Deref for TerminalRegistration {
    type Target = Arc<Terminal>;

    fn deref(&self) -> &Arc<Terminal> {
        &self.terminal
    }
}

impl Drop for TerminalRegistration {
    fn drop(&mut self) {
        let mut all = self.terminals.lock();
        // The session's next agent may have registered under the same id already.
        if all.get(&self.info.id).is_some_and(|other| Arc::ptr_eq(other, &self.terminal)) {
            all.remove(&self.info.id);
        }
    }
}
