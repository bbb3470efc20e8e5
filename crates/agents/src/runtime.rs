//! What every part of Hob that runs agents shares.

use std::path::Path;

use hob_child::Children;
use hob_files::Trash;
use hob_terminal::Terminals;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app_permits::AppPermits;
use crate::client_tools::ToolServers;
use crate::live_limit::LiveLimit;
use crate::sandbox::SandboxConfig;

/// How many long lines of an app's agents may be in memory at a time.
const MAX_LONG_LINES: usize = 2;

/// The processes, tasks and limits that all parts share. Clones share them too.
#[derive(Clone)]
pub struct Runtime {
    /// Every task belongs to this tracker.
    pub tasks: TaskTracker,
    /// Cancelled when no new work may begin.
    pub stopping: CancellationToken,
    /// Cancelled when running work must end.
    pub ending: CancellationToken,
    pub children: Children,
    /// The terminals of live agents.
    pub terminals: Terminals,
    /// The limit on live agents.
    pub live: LiveLimit,
    /// The limit on long lines of agents.
    pub long_lines: AppPermits,
    /// The environment and confinement of every agent.
    pub sandbox: SandboxConfig,
    /// Removes folders that agents have filled.
    pub trash: Trash,
    /// The servers by which agents call the tools of clients.
    pub tool_servers: ToolServers,
}

impl Runtime {
    /// Creates a runtime without tasks and without agents.
    pub fn new(
        children: Children,
        live: LiveLimit,
        sandbox: SandboxConfig,
        trash: Trash,
    ) -> Runtime {
        let tasks = TaskTracker::new();
        Runtime {
            terminals: Terminals::new(tasks.clone()),
            tasks,
            stopping: CancellationToken::new(),
            ending: CancellationToken::new(),
            children,
            live,
            long_lines: AppPermits::new(MAX_LONG_LINES),
            sandbox,
            trash,
            tool_servers: ToolServers::default(),
        }
    }

    /// Removes a file or a folder that agents may have filled.
    pub fn discard(&self, path: &Path) {
        if let Err(error) = self.trash.remove(path) {
            tracing::warn!(%error, path = %path.display(), "failed to remove what agents left");
        }
    }
}
