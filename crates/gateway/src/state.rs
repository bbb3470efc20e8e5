//! What handlers share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hob_domain::{AgentName, AgentSpec, AppStore, TokenHash};
use hob_mcp::Tools;
use hob_sessions::{FileRoom, Runner};

/// Everything the handlers need, handed over by the composition root.
pub struct Gateway {
    pub version: &'static str,
    pub apps: Arc<dyn AppStore>,
    pub tools: Tools,
    pub runner: Runner,
    pub files: FileRoom,
    pub agents: BTreeMap<AgentName, AgentSpec>,
    pub default_agent: AgentName,
    /// The hash of the token that opens `/admin`.
    pub admin: TokenHash,
    pub limits: GatewayLimits,
}

/// Bounds on what a caller may ask.
#[derive(Debug, Clone)]
pub struct GatewayLimits {
    pub max_body_bytes: usize,
    /// What a run gets that does not say how long it may take, and the most it may ask for.
    pub run_timeout: Duration,
}
