//! What every part of Hob that runs agents shares.

use std::path::Path;

use hob_child::Children;
use hob_files::Trash;
use hob_terminal::Terminals;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app_permits::{AppPermits, ReadingPermits};
use crate::client_tools::ToolServers;
use crate::json_lines::MAX_LONG_LINES;
use crate::live_limit::LiveLimit;
use crate::sandbox::SandboxConfig;

/// How many requests for files of an app's agents run at a time.
const MAX_FILE_REQUESTS: usize = 2;
/// How many long parts of transcripts of an app's agents are in memory at a time.
const MAX_LONG_RECORDS: usize = 1;

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
    long_lines: AppPermits,
    file_requests: AppPermits,
    records: AppPermits,
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
            file_requests: AppPermits::new(MAX_FILE_REQUESTS),
            records: AppPermits::new(MAX_LONG_RECORDS),
            sandbox,
            trash,
            tool_servers: ToolServers::default(),
        }
    }

    /// Returns the permits by which the output and the requests of an app's agents are read.
    pub fn reading_permits(&self, app: &str) -> ReadingPermits {
        ReadingPermits {
            long_lines: self.long_lines.of(app),
            file_requests: self.file_requests.of(app),
            records: self.records.of(app),
        }
    }

    /// Removes a file or a folder that agents may have filled.
    pub fn discard(&self, path: &Path) {
        if let Err(error) = self.trash.remove(path) {
            tracing::warn!(%error, path = %path.display(), "failed to remove what agents left");
        }
    }
}
