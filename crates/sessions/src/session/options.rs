//! What sessions get from the rest of Hob: options, limits and requests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hob_agents::Runtime;
use hob_agents::client_tools::ClientTool;
use hob_agents::mcp_servers::McpTransport;
use hob_domain::session::{Permissions, SessionStore};
use hob_domain::{AgentName, AgentSpec, ClusterStore, DocumentStore, NodeId};
use serde_json::Value;

use crate::files::UploadStore;
use crate::steady_clock::SteadyClock;

/// What the sessions run with.
pub struct SessionsOptions {
    pub runtime: Runtime,
    pub store: Arc<dyn SessionStore>,
    /// The part of the ledger with documents.
    pub documents: Arc<dyn DocumentStore>,
    /// The id of this node on the ledger.
    pub node: NodeId,
    /// Set when other nodes may share the ledger.
    pub cluster: Option<ClusterOptions>,
    pub agents: BTreeMap<AgentName, AgentSpec>,
    /// The files that apps have uploaded.
    pub files: UploadStore,
    /// The folder in which sessions get their own folders.
    pub workspaces: PathBuf,
    /// The folders in which a caller's `cwd` may lie.
    pub roots: Vec<PathBuf>,
    /// How an agent reaches Hob's own memory.
    pub memory: McpTransport,
    /// The folder of Hob's own configuration folders and temporary files for Claude Code.
    pub claude: PathBuf,
    pub limits: SessionLimits,
    /// The clock by which sessions of an earlier run are closed, and closed ones deleted.
    pub clock: SteadyClock,
}

/// How a node takes part in a cluster.
#[derive(Clone)]
pub struct ClusterOptions {
    pub store: Arc<dyn ClusterStore>,
    /// The lease time: a node whose heartbeats are older has lost its sessions.
    pub lease: Duration,
    /// The most open sessions on all nodes together; zero is no limit.
    pub max_live: usize,
    /// This node's id in an earlier run on the same home, which has ended.
    pub earlier: Option<NodeId>,
}

/// The limits on sessions.
#[derive(Debug, Clone)]
pub struct SessionLimits {
    /// Idle time after which a session is closed.
    pub ttl: Duration,
    /// Time after which a closed session is deleted.
    pub hard_ttl: Duration,
    pub sweep_interval: Duration,
    /// The most turns that may wait in a session.
    pub queue: usize,
    pub turn_timeout: Duration,
    /// How long a caller may take to answer a permission request.
    pub permission_timeout: Duration,
    /// Time without agent output before a `stalled` event; zero disables it.
    pub stall_after: Duration,
    /// The agent start-up timeout.
    pub start_timeout: Duration,
    /// The most open sessions of one app. Zero is no limit, as for all fields below.
    pub app_sessions: usize,
    pub app_turns_per_minute: usize,
    pub app_tokens_per_day: u64,
    pub app_cost_per_day: f64,
    pub session_tokens: u64,
    pub session_cost: f64,
}

/// A request for a new session.
#[derive(Debug, Clone)]
pub struct NewSession {
    pub agent: AgentName,
    pub meta: Value,
    pub cwd: Option<String>,
    pub model: Option<String>,
    pub system: Option<String>,
    pub permissions: Permissions,
    /// The MCP servers as the caller wrote them.
    pub mcp_servers: Value,
    /// The tools that the caller runs itself.
    pub client_tools: Vec<ClientTool>,
}
