//! What sessions need from outside.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hob_child::Children;
use hob_domain::session::{Permissions, SessionStore};
use hob_domain::{AgentName, AgentSpec, NodeId};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::placement::cluster::ClusterOptions;
use crate::files::FileRoom;
use hob_agents::LiveLimit;
use hob_agents::SandboxConfig;
use hob_agents::mcp_servers::McpTransport;
use hob_terminal::Terminals;

pub struct SessionsOptions {
    pub store: Arc<dyn SessionStore>,
    /// Who we are among those on the same ledger.
    pub node: NodeId,
    /// Where there may be other nodes on the ledger.
    pub cluster: Option<ClusterOptions>,
    pub children: Children,
    pub sandbox: SandboxConfig,
    pub agents: BTreeMap<AgentName, AgentSpec>,
    /// What apps have uploaded.
    pub files: FileRoom,
    /// Where sessions get their folders.
    pub workspaces: PathBuf,
    /// Folders a caller's `cwd` may lie in.
    pub roots: Vec<PathBuf>,
    /// How an agent reaches Hob's own memory.
    pub memory: McpTransport,
    /// Where configuration folders of our own and temporary files for Claude Code lie.
    pub claude: PathBuf,
    pub live: LiveLimit,
    /// Where people find the terminals of agents that have one.
    pub terminals: Terminals,
    pub limits: SessionLimits,
    /// Every task belongs to this tracker.
    pub tasks: TaskTracker,
    /// Cancelled when no new work may begin.
    pub stopping: CancellationToken,
    /// Cancelled when running work must end.
    pub ending: CancellationToken,
}

/// Bounds. Zero is none where the field says so.
#[derive(Debug, Clone)]
pub struct SessionLimits {
    pub ttl: Duration,
    pub hard_ttl: Duration,
    pub sweep_interval: Duration,
    pub queue: usize,
    pub turn_timeout: Duration,
    pub permission_timeout: Duration,
    /// A turn in which nothing has come for so long is said to stall; zero is never.
    pub stall_after: Duration,
    /// How long an agent may take until it can be asked.
    pub start_timeout: Duration,
    /// Open sessions of one app; zero is no limit. So for all that follow.
    pub app_sessions: usize,
    pub app_turns_per_minute: usize,
    pub app_tokens_per_day: u64,
    pub app_cost_per_day: f64,
    pub session_tokens: u64,
    pub session_cost: f64,
}

/// A session that is asked for.
#[derive(Debug, Clone)]
pub struct NewSession {
    pub agent: AgentName,
    pub meta: Value,
    pub cwd: Option<String>,
    pub model: Option<String>,
    pub system: Option<String>,
    pub permissions: Permissions,
    /// As the caller wrote it.
    pub mcp_servers: Value,
}
