//! Sessions as the vendors' APIs see them: a session of Hob with a description.

use std::collections::HashMap;

use hob_domain::session::{
    EventKind, EventRange, IdempotencyKey, Session, SessionId, SessionState,
};
use hob_domain::{AppName, DocumentKind, Timestamp};
use hob_sessions::session::{NewSession, TurnSubmission};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::agents::{AgentTools, AgentVersion};
use super::memory_stores::attached::{self, AttachedStore};
use super::prompt::Prompt;
use super::repeats::{RequestKey, SentInterrupt};
use crate::agent_catalog::CatalogEntry;
use crate::error::ApiError;
use crate::extract::session_id::session_id;
use crate::routes::v1::models;
use crate::state::Gateway;

/// In how many of the last events a question to the caller is looked for.
const RECENT_EVENTS: usize = 200;
/// How many of the last interrupts of a session can be repeated.
const MAX_SENT_INTERRUPTS: usize = 20;

/// What the vendors' APIs know of a session.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Description {
    pub title: Option<String>,
    pub metadata: Map<String, Value>,
    pub agent_id: String,
    /// The version of the agent that the session was created with.
    pub agent: Option<AgentVersion>,
    pub environment_id: Option<String>,
    /// The environment as OpenAI's API shows it.
    pub environment: Option<Value>,
    /// The folder that the caller chose.
    #[serde(default)]
    pub cwd: Option<String>,
    pub archived_at: Option<Timestamp>,
    #[serde(default)]
    pub memory_stores: Vec<AttachedStore>,
    /// The caller deleted the session. Its log stays until `hard_ttl_secs`.
    #[serde(default)]
    pub is_deleted: bool,
    /// The request that created the session, if the caller may repeat it.
    #[serde(default)]
    pub created_by: Option<RequestKey>,
    /// The last interrupts that the caller may repeat.
    #[serde(default)]
    pub interrupts: Vec<SentInterrupt>,
    /// The artifacts that the caller deleted. Their files stay.
    #[serde(default)]
    pub deleted_artifacts: Vec<String>,
}

/// A session with its description.
pub(super) struct DescribedSession {
    pub session: Session,
    pub description: Description,
}

impl DescribedSession {
    /// Returns the agent's version. A session of `/sessions` has one that is made from its setup.
    pub fn agent(&self) -> AgentVersion {
        let setup = &self.session.setup;
        self.description.agent.clone().unwrap_or_else(|| AgentVersion {
            version: 1,
            at: self.session.created_at,
            name: Some(setup.agent.to_string()),
            description: None,
            model: setup.model.clone().unwrap_or_else(|| setup.agent.to_string()),
            system: setup.system.clone(),
            metadata: Map::new(),
            extra: Map::new(),
            tools: AgentTools::of_setup(setup),
        })
    }

    /// Returns the agent's id. A session of `/sessions` has the agent's name.
    pub fn agent_id(&self) -> String {
        match self.description.agent_id.as_str() {
            "" => self.session.setup.agent.to_string(),
            id => id.to_owned(),
        }
    }

    pub fn updated_at(&self) -> Timestamp {
        let session = &self.session;
        let times = [session.last_turn_at, session.closed_at, self.description.archived_at];
        times.into_iter().flatten().fold(session.created_at, Timestamp::max)
    }
}

/// Creates a session with a description.
pub(super) async fn create(
    gateway: &Gateway,
    app: &AppName,
    description: Description,
) -> Result<DescribedSession, ApiError> {
    let Some(version) = description.agent.clone() else {
        return Err(ApiError::Internal("the stored session has no agent".to_owned()));
    };
    let (agent, model) = models::resolve_model(gateway, &version.model);
    let title = description.title.as_ref().map(|title| ("title".to_owned(), json!(title)));
    let memory = attached::system(&description.memory_stores);
    if memory.is_some() && version.tools.mcp_servers.iter().any(|server| server.name == "memory") {
        let text = "resources: the tools of memory stores need the name of the agent's MCP server \"memory\"; give that another name";
        return Err(ApiError::bad_request(text));
    }
    let mut servers = version.tools.session_servers();
    servers.extend(memory.is_some().then(|| json!("memory")));
    let systems = [version.system.clone().filter(|system| !system.is_empty()), memory];
    let systems: Vec<String> = systems.into_iter().flatten().collect();
    let system = (!systems.is_empty()).then(|| systems.join("\n\n"));
    let asked = NewSession {
        agent,
        meta: Value::Object(description.metadata.clone().into_iter().chain(title).collect()),
        cwd: description.cwd.clone(),
        model,
        system,
        permissions: version.tools.permissions.into(),
        mcp_servers: Value::Array(servers),
        client_tools: version.tools.client.clone(),
    };
    let session = gateway.sessions.create(app, asked).await?;
    let mut described = DescribedSession { session, description };
    if let Some(agent) = &mut described.description.agent {
        agent.tools.forget_headers();
    }
    let saved = save(gateway, app, &described).await;
    or_close(gateway, app, &described.session.id, saved).await?;
    Ok(described)
}

/// Returns a result. On an error, closes the new session, whose id the caller does not get.
pub(super) async fn or_close<T>(
    gateway: &Gateway,
    app: &AppName,
    id: &SessionId,
    result: Result<T, ApiError>,
) -> Result<T, ApiError> {
    if result.is_err()
        && let Err(error) = gateway.sessions.close(app, id).await
    {
        tracing::error!(%error, session = %id, "failed to close a session");
    }
    result
}

/// Notes that a request with this key has interrupted a session, so that the caller can repeat the request.
pub(super) async fn note_interrupt(
    gateway: &Gateway,
    app: &AppName,
    id: &SessionId,
    key: Option<&IdempotencyKey>,
    event_id: Option<String>,
) -> Result<(), ApiError> {
    let Some(key) = key else { return Ok(()) };
    let sent = SentInterrupt { request: RequestKey::of(key), event_id };
    change(gateway, app, id.as_str(), |description| {
        description.interrupts.push(sent);
        let surplus = description.interrupts.len().saturating_sub(MAX_SENT_INTERRUPTS);
        description.interrupts.drain(..surplus);
        Ok(())
    })
    .await?;
    Ok(())
}

/// Stores the description of a session.
async fn save(
    gateway: &Gateway,
    app: &AppName,
    described: &DescribedSession,
) -> Result<(), ApiError> {
    let entry = CatalogEntry {
        id: described.session.id.to_string(),
        created_at: described.session.created_at,
        body: json!(described.description),
    };
    gateway.catalog.save(app, DocumentKind::Session, &entry).await
}

/// Returns a session of an app.
pub(super) async fn find(
    gateway: &Gateway,
    app: &AppName,
    id: &str,
) -> Result<DescribedSession, ApiError> {
    let session = gateway.sessions.get(app, &session_id(id)?).await?;
    let entry = gateway.catalog.find(app, DocumentKind::Session, id).await?;
    let description = entry.map(description).unwrap_or_default();
    match description.is_deleted {
        true => Err(ApiError::NotFound("no such session".to_owned())),
        false => Ok(DescribedSession { session, description }),
    }
}

/// Returns the sessions of an app, oldest first.
pub(super) async fn list(
    gateway: &Gateway,
    app: &AppName,
) -> Result<Vec<DescribedSession>, ApiError> {
    let entries = gateway.catalog.list(app, DocumentKind::Session).await?;
    let entries = entries.into_iter().map(|entry| (entry.id.clone(), description(entry)));
    let mut descriptions: HashMap<String, Description> = entries.collect();
    let sessions = gateway.sessions.list(app, |_| true).await?.into_iter().map(|session| {
        let description = descriptions.remove(session.id.as_str()).unwrap_or_default();
        DescribedSession { session, description }
    });
    Ok(sessions.filter(|described| !described.description.is_deleted).collect())
}

fn description(entry: CatalogEntry) -> Description {
    serde_json::from_value(entry.body).unwrap_or_default()
}

/// Changes the description of a session.
pub(super) async fn change(
    gateway: &Gateway,
    app: &AppName,
    id: &str,
    change: impl FnOnce(&mut Description) -> Result<(), ApiError>,
) -> Result<DescribedSession, ApiError> {
    let mut described = find(gateway, app, id).await?;
    let mut change = Some(change);
    let apply = |body: &mut Value| {
        let mut description: Description = serde_json::from_value(body.take()).unwrap_or_default();
        if description.is_deleted {
            return Err(ApiError::NotFound("no such session".to_owned()));
        }
        if let Some(change) = change.take() {
            change(&mut description)?;
        }
        *body = json!(description);
        Ok(())
    };
    match gateway.catalog.change(app, DocumentKind::Session, id, apply).await? {
        Some(entry) => described.description = description(entry),
        // A session of `/sessions` has no description yet.
        None => {
            if let Some(change) = change.take() {
                change(&mut described.description)?;
            }
            save(gateway, app, &described).await?;
        }
    }
    Ok(described)
}

/// Closes a session and hides it.
pub(super) async fn delete(gateway: &Gateway, app: &AppName, id: &str) -> Result<(), ApiError> {
    let described = find(gateway, app, id).await?;
    gateway.sessions.close(app, &described.session.id).await?;
    change(gateway, app, id, |description| {
        description.is_deleted = true;
        Ok(())
    })
    .await?;
    Ok(())
}

/// Queues a turn and returns its number.
pub(super) async fn submit(
    gateway: &Gateway,
    app: &AppName,
    id: &SessionId,
    prompt: Prompt,
    idempotency: Option<IdempotencyKey>,
) -> Result<u32, ApiError> {
    let Prompt { text, files } = prompt;
    let ask = TurnSubmission { prompt: text, files, idempotency };
    gateway.submit(app, id, ask, None).await
}

/// What a session does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activity {
    Idle,
    Running,
    /// The running turn waits for the caller.
    Waiting,
    Closed,
}

/// Returns what a session does now.
pub(super) async fn activity(
    gateway: &Gateway,
    app: &AppName,
    session: &Session,
) -> Result<Activity, ApiError> {
    match session.state() {
        SessionState::Closed => return Ok(Activity::Closed),
        SessionState::Idle => return Ok(Activity::Idle),
        SessionState::Running => {}
    }
    let range = EventRange::Before { before: u64::MAX >> 1, limit: RECENT_EVENTS };
    let mut asked: Vec<Value> = Vec::new();
    for stored in gateway.sessions.events(app, &session.id, range).await? {
        let key = match stored.event.kind {
            EventKind::Permission => "request_id",
            EventKind::ToolCall => "call_id",
            EventKind::Turn => {
                asked.clear();
                continue;
            }
            _ => continue,
        };
        let body: Value = serde_json::from_str(&stored.event.body).unwrap_or_default();
        match body["status"] == "asked" {
            true => asked.push(body[key].clone()),
            false => asked.retain(|id| *id != body[key]),
        }
    }
    Ok(if asked.is_empty() { Activity::Running } else { Activity::Waiting })
}
