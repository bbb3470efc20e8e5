//! What handlers share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hob_domain::{AgentName, AgentSpec, AppName, AppStore, AuditStore, Timestamp, TokenHash};
use hob_mcp::Tools;
use hob_sessions::session::Sessions;
use hob_sessions::{Completions, FileRoom, Runner};
use hob_terminal::Terminals;
use tokio_util::sync::CancellationToken;

use crate::counters::Requests;
use crate::doctor::Doctor;
use crate::error::ApiError;
use crate::sign_in::SignIn;

/// Everything the handlers need, handed over by the composition root.
pub struct Gateway {
    pub version: &'static str,
    pub started_at: Timestamp,
    pub apps: Arc<dyn AppStore>,
    pub audit: Arc<dyn AuditStore>,
    pub tools: Tools,
    pub runner: Runner,
    pub sessions: Sessions,
    pub terminals: Terminals,
    /// Claude Code behind `/v1`.
    pub completions: Completions,
    pub files: FileRoom,
    pub agents: BTreeMap<AgentName, AgentSpec>,
    pub default_agent: AgentName,
    /// The hash of the token that opens `/admin`.
    pub admin: TokenHash,
    /// Looks at the home and the machine.
    pub doctor: Arc<dyn Doctor>,
    /// Who is signed in to the console.
    pub sign_in: SignIn,
    /// Names beside `localhost` under which the console may be asked for.
    pub hosts: Vec<String>,
    pub limits: GatewayLimits,
    pub requests: Requests,
    /// Cancelled when no new work may begin: streams without an end are ended.
    pub stopping: CancellationToken,
    /// Cancelled when running work ends: those who wait for a turn are told.
    pub ending: CancellationToken,
}

impl Gateway {
    /// An agent by the name a caller wrote.
    pub(crate) fn agent(&self, name: &str) -> Result<(AgentName, &AgentSpec), ApiError> {
        let known = AgentName::new(name).and_then(|name| {
            let spec = self.agents.get(&name)?;
            Some((name, spec))
        });
        known.ok_or_else(|| {
            let known: Vec<&str> = self.agents.keys().map(AgentName::as_str).collect();
            ApiError::BadRequest {
                code: "unknown_agent",
                message: format!(
                    "agent: there is no agent {name:?}; known are {}",
                    known.join(", ")
                ),
            }
        })
    }

    /// Where an app's uploaded files lie, by their names.
    pub(crate) async fn file_paths(
        &self,
        app: &AppName,
        files: &[String],
    ) -> Result<Vec<String>, ApiError> {
        let mut paths = Vec::with_capacity(files.len());
        for id in files {
            let path = self.files.fetch(app, id).await?;
            let path = path.ok_or_else(|| ApiError::BadRequest {
                code: "unknown_file",
                message: format!("files: there is no uploaded file {id:?}"),
            })?;
            paths.push(path.display().to_string());
        }
        Ok(paths)
    }
}

/// Bounds on what a caller may ask.
#[derive(Debug, Clone)]
pub struct GatewayLimits {
    pub max_body_bytes: usize,
    /// What a run gets that does not say how long it may take, and the most it may ask for.
    pub run_timeout: Duration,
}
