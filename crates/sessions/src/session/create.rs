//! Creating a session: who may have one.

use std::sync::Arc;

use hob_domain::session::{
    Created, EventKind, NewEvent, Session, SessionId, SessionSetup, TurnUsage,
};
use hob_domain::{AppName, StoreError, Timestamp};
use serde_json::json;

use super::actor::AgentStart;
use super::error::SessionError;
use super::events::audit_event;
use super::handle::OpenSession;
use super::limits::{check_setup_size, too_many_sessions};
use super::local_sessions::LocalSessions;
use super::options::NewSession;
use super::placement::Placement;
use super::session_folder::{chosen_folder, make_folder};
use hob_agents::mcp_servers::{self, McpServer};

/// Creates sessions within the limits.
pub(super) struct SessionCreator {
    local: Arc<LocalSessions>,
    placement: Arc<dyn Placement>,
}

impl SessionCreator {
    pub fn new(local: Arc<LocalSessions>, placement: Arc<dyn Placement>) -> SessionCreator {
        SessionCreator { local, placement }
    }

    /// Creates a session and starts its agent, so that it is warm when the first turn comes.
    pub async fn create(
        &self,
        app: &AppName,
        mut request: NewSession,
    ) -> Result<Session, SessionError> {
        let options = &self.local.context.options;
        if options.runtime.stopping.is_cancelled() {
            return Err(SessionError::Stopping);
        }
        let mut servers =
            mcp_servers::parse(&request.mcp_servers).map_err(SessionError::Invalid)?;
        if !request.client_tools.is_empty() {
            let server = McpServer::of_client(std::mem::take(&mut request.client_tools));
            if servers.iter().any(|other| other.name == server.name) {
                let text = format!(
                    "mcp_servers: the name {:?} is reserved for the session's `tools`; choose another",
                    server.name
                );
                return Err(SessionError::Invalid(text));
            }
            servers.push(server);
        }
        check_setup_size(&request, &json!(servers))?;
        let id = new_id()?;
        let chosen = chosen_folder(options, app, &request.agent, request.cwd.as_deref())?;
        let max = options.limits.app_sessions;
        // An app at its limit must not end an idle agent of another app. The ledger counts again
        // when it stores the session.
        if max > 0 {
            let open = self.placement.open_count(app).await?;
            if open >= max {
                return Err(too_many_sessions(open));
            }
        }
        let permit = options.runtime.live.acquire(app.as_str()).await;
        let permit =
            permit.ok_or(SessionError::PoolFull { live: options.runtime.live.in_use() })?;
        let cwd = match &chosen {
            Some(cwd) => cwd.clone(),
            None => make_folder(&options.workspaces.join(id.as_str()))?,
        };
        let setup = SessionSetup {
            agent: request.agent,
            meta: request.meta,
            cwd: cwd.display().to_string(),
            model: request.model,
            system: request.system,
            permissions: request.permissions,
            mcp_servers: json!(servers),
        };
        let session = new_session(id, app, setup);
        let stored = self.placement.create(&session, create_event(&session), max).await;
        if !matches!(stored, Ok(Created::Made(_))) && chosen.is_none() {
            self.local.context.remove_workspace(&session.id);
        }
        let lease = match stored? {
            Created::Made(lease) => lease,
            Created::AppFull(_) => return Err(too_many_sessions(max)),
            Created::Full(live) => return Err(SessionError::PoolFull { live }),
        };
        let open = OpenSession { session: &session, lease, permit, queue: Vec::new() };
        self.local.open(open, AgentStart::Eager);
        let agent = &session.setup.agent;
        tracing::info!(%app, session = %session.id, %agent, "session created");
        Ok(session)
    }
}

fn new_session(id: SessionId, app: &AppName, setup: SessionSetup) -> Session {
    Session {
        id,
        app: app.clone(),
        setup,
        created_at: now_in_microseconds(),
        closed_at: None,
        turn_count: 0,
        last_turn_at: None,
        busy: false,
        agent_session: None,
        usage: TurnUsage::default(),
        last_event: 1,
    }
}

fn create_event(session: &Session) -> NewEvent {
    let setup = &session.setup;
    let body = json!({"agent": setup.agent.as_str(), "meta": setup.meta,
        "permissions": setup.permissions});
    audit_event(EventKind::Create, None, body)
}

/// Returns the current time in the ledger's precision.
fn now_in_microseconds() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

fn new_id() -> Result<SessionId, SessionError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| StoreError::Failed(format!("cannot get random bytes: {error}")))?;
    Ok(SessionId::from_random(bytes))
}
