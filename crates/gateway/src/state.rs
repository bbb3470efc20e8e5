//! The state that all handlers share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hob_agents::Runtime;
use hob_agents::app_permits::AppPermit;
use hob_domain::session::SessionId;
use hob_domain::{AgentName, AgentSpec, AppName, AppStore, AuditStore, Timestamp, TokenHash};
use hob_mcp::Tools;
use hob_memory::Engine;
use hob_sessions::session::{Sessions, TurnSubmission};
use hob_sessions::{Completions, Runner, UploadStore};

use crate::agent_catalog::AgentCatalog;
use crate::app_requests::{AppRequests, LONG_BODY_BYTES};
use crate::conversation_store::Conversations;
use crate::counters::Requests;
use crate::doctor::Doctor;
use crate::error::ApiError;
use crate::message_batches::MessageBatches;
use crate::readiness::Readiness;
use crate::response_store::Responses;
use crate::sign_in::SignIn;

/// Everything the handlers need. The composition root builds it.
pub struct Gateway {
    pub version: &'static str,
    pub started_at: Timestamp,
    pub apps: Arc<dyn AppStore>,
    pub audit: Arc<dyn AuditStore>,
    pub engine: Engine,
    pub tools: Tools,
    pub runner: Runner,
    pub sessions: Sessions,
    /// Handlers use its terminals, and its tokens: streams without an end are closed on `stopping`,
    /// requests that wait for a turn are answered on `ending`.
    pub runtime: Runtime,
    /// Claude Code behind `/v1`.
    pub completions: Completions,
    /// The stored responses of `/v1`.
    pub responses: Arc<Responses>,
    /// The conversations of `/v1`.
    pub conversations: Conversations,
    /// The batches of `/v1`.
    pub batches: Arc<MessageBatches>,
    /// What apps keep for the vendors' session APIs.
    pub catalog: AgentCatalog,
    pub files: UploadStore,
    pub agents: BTreeMap<AgentName, AgentSpec>,
    pub default_agent: AgentName,
    /// The hash of the token that opens `/admin`.
    pub admin: TokenHash,
    /// Runs the checks of `hob doctor`.
    pub doctor: Arc<dyn Doctor>,
    pub readiness: Readiness,
    /// Signs and checks the console's cookies.
    pub sign_in: SignIn,
    /// Host names, in addition to `localhost`, that the console answers under.
    pub hosts: Vec<String>,
    pub limits: GatewayLimits,
    pub requests: Requests,
    /// The open requests of each app.
    pub app_requests: AppRequests,
}

impl Gateway {
    /// Looks up an agent by the name in a request.
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
                    "agent: unknown agent {name:?}; known agents: {}",
                    known.join(", ")
                ),
            }
        })
    }

    /// Returns the paths of an app's uploaded files.
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
                message: format!("files: no uploaded file {id:?}"),
            })?;
            paths.push(path.display().to_string());
        }
        Ok(paths)
    }

    /// Queues a turn and returns its number. A long prompt counts until the turn is over, also without its client, instead of
    /// `body`, which is what the request counts for it.
    pub(crate) async fn submit(
        &self,
        app: &AppName,
        id: &SessionId,
        turn: TurnSubmission,
        body: Option<AppPermit>,
    ) -> Result<u32, ApiError> {
        drop(body);
        let counted = match turn.prompt.len() {
            ..=LONG_BODY_BYTES => None,
            bytes => self.app_requests.count_long(app, bytes.saturating_mul(TURN_WEIGHT))?,
        };
        let index = self.sessions.submit(app, id, turn).await?;
        if let Some(counted) = counted {
            let (sessions, stopping) = (self.sessions.clone(), self.runtime.stopping.clone());
            let (app, id) = (app.clone(), id.clone());
            self.runtime.tasks.spawn(async move {
                tokio::select! {
                    _ = sessions.turn_ended(&app, &id, index) => {}
                    () = stopping.cancelled() => {}
                }
                drop(counted);
            });
        }
        Ok(index)
    }
}

/// How many times a long prompt counts: a turn keeps more copies of it than a request of its body.
const TURN_WEIGHT: usize = 3;

/// Limits of requests.
#[derive(Debug, Clone)]
pub struct GatewayLimits {
    pub max_body_bytes: usize,
    /// Default and maximum timeout of a run.
    pub run_timeout: Duration,
}
