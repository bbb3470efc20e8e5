//! The settings as the rest of the program uses them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hob_domain::{AgentName, AgentSpec, AppName};
use hob_sessions::ConversationSetup;
use hob_sessions::session::SessionLimits;

use super::registry::Values;
use super::source::Row;
use crate::home::Home;

/// All settings.
#[derive(Debug)]
pub struct Resolved {
    pub home: Home,
    pub socket: PathBuf,
    pub passphrase: Option<String>,
    pub admin_token: Option<String>,
    /// The settings of the registry.
    pub values: Values,
    /// The limits among `values`, as the sessions take them.
    pub sessions: SessionLimits,
    pub default_agent: AgentName,
    pub agents: BTreeMap<AgentName, AgentSpec>,
    pub claude: ClaudeSettings,
    /// Every setting with its value and source; secrets are hidden.
    pub rows: Vec<Row>,
    /// Keys of `config.toml` that no setting has. They are ignored, so that one file can serve two
    /// versions.
    pub warnings: Vec<String>,
}

/// The settings of `/v1` that depend on agents and apps.
#[derive(Debug)]
pub struct ClaudeSettings {
    pub agent: AgentName,
    pub apps: BTreeMap<AppName, ConversationSetup>,
}
