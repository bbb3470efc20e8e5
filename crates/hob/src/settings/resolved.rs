//! The settings as the rest of the program uses them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hob_agents::claude::HistoryMode;
use hob_domain::{AgentName, AgentSpec, AppName};
use hob_sessions::ConversationSetup;
use hob_sessions::session::SessionLimits;
use hob_store::StoreUrl;

use super::source::Row;
use crate::home::Home;

/// All settings, as the rest of the program uses them.
#[derive(Debug)]
pub struct Resolved {
    pub home: Home,
    pub socket: PathBuf,
    pub passphrase: Option<String>,
    pub admin_token: Option<String>,
    /// Where the ledger is kept; `None` for a file of the home.
    pub store: Option<StoreUrl>,
    /// How long a node that is not heard of counts as alive.
    pub lease: Duration,
    /// Open sessions of all nodes together; zero is no limit.
    pub cluster_max_live: usize,
    /// Whether what was said is encrypted there.
    pub store_encrypt: bool,
    pub http: bool,
    pub listen: String,
    pub hosts: Vec<String>,
    /// How long one stays signed in to the console.
    pub console_session: Duration,
    pub idle_shutdown: Duration,
    pub shutdown_grace: Duration,
    pub max_body_bytes: usize,
    pub max_file_bytes: u64,
    pub log: String,
    pub max_live: usize,
    pub turn_timeout: Duration,
    pub sessions: SessionLimits,
    pub roots: Vec<PathBuf>,
    pub default_agent: AgentName,
    pub agents: BTreeMap<AgentName, AgentSpec>,
    pub claude: ClaudeSettings,
    /// The folder of the model that embeds beside the table.
    pub memory_model: Option<PathBuf>,
    /// Every setting with its value and source, secrets hidden.
    pub rows: Vec<Row>,
    /// What was written but is not understood. Nothing fails for it.
    pub warnings: Vec<String>,
}

/// Claude Code behind `/v1`.
#[derive(Debug)]
pub struct ClaudeSettings {
    pub agent: AgentName,
    pub history: HistoryMode,
    /// How long a process may wait for its conversation to go on.
    pub idle: Duration,
    pub apps: BTreeMap<AppName, ConversationSetup>,
}
