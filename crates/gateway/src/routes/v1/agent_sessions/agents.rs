//! Agents of the vendors' APIs: a name for a model, a system prompt and tools, in versions.

use hob_agents::client_tools::ClientTool;
use hob_agents::mcp_servers::{self, McpTransport};
use hob_domain::session::{Permissions, SessionSetup};
use hob_domain::{AppName, DocumentKind, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::agent_catalog::CatalogEntry;
use crate::error::ApiError;
use crate::state::Gateway;

/// The most versions of an agent that are kept.
const MAX_VERSIONS: usize = 20;

/// A stored agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct AgentDocument {
    /// The versions that are kept, oldest first. There is at least one.
    pub versions: Vec<AgentVersion>,
    pub archived_at: Option<Timestamp>,
}

/// A version of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct AgentVersion {
    pub version: u32,
    pub at: Timestamp,
    pub name: Option<String>,
    pub description: Option<String>,
    pub model: String,
    pub system: Option<String>,
    pub metadata: Map<String, Value>,
    /// What only one of the APIs knows, as its caller sent it.
    pub extra: Map<String, Value>,
    pub tools: AgentTools,
}

/// What an agent may use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct AgentTools {
    /// The tools as the API shows them.
    pub listed: Vec<Value>,
    /// The tools that the caller runs.
    pub client: Vec<ClientTool>,
    pub mcp_servers: Vec<McpServer>,
    pub permissions: ToolPermissions,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct McpServer {
    pub name: String,
    pub url: String,
    #[serde(default)]
    pub headers: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ToolPermissions {
    Allow,
    Ask,
    #[default]
    Deny,
}

impl From<ToolPermissions> for Permissions {
    fn from(permissions: ToolPermissions) -> Permissions {
        match permissions {
            ToolPermissions::Allow => Permissions::Allow,
            ToolPermissions::Ask => Permissions::Ask,
            ToolPermissions::Deny => Permissions::Deny,
        }
    }
}

impl AgentTools {
    /// Returns the tools of a session that Hob's own API created.
    pub fn of_setup(setup: &SessionSetup) -> AgentTools {
        let servers: Vec<mcp_servers::McpServer> =
            serde_json::from_value(setup.mcp_servers.clone()).unwrap_or_default();
        let client = mcp_servers::client_tools(&servers);
        let custom = |tool: &ClientTool| {
            json!({"type": "custom", "name": tool.name, "description": tool.description,
                "input_schema": tool.input_schema})
        };
        let listed = client.iter().map(custom).collect();
        let http = servers.into_iter().filter_map(|server| match server.transport {
            McpTransport::Http { url, .. } => {
                Some(McpServer { name: server.name, url, headers: Map::new() })
            }
            _ => None,
        });
        let permissions = match setup.permissions {
            Permissions::Allow => ToolPermissions::Allow,
            Permissions::Ask => ToolPermissions::Ask,
            Permissions::Deny => ToolPermissions::Deny,
        };
        AgentTools { listed, client, mcp_servers: http.collect(), permissions }
    }

    /// Removes the headers of MCP servers, which may hold credentials.
    pub fn forget_headers(&mut self) {
        self.mcp_servers.iter_mut().for_each(|server| server.headers.clear());
    }

    /// Takes the headers of equal servers over.
    pub fn keep_headers(&mut self, old: &AgentTools) {
        for server in &mut self.mcp_servers {
            let same = |other: &&McpServer| other.name == server.name && other.url == server.url;
            if let Some(other) = old.mcp_servers.iter().find(same) {
                server.headers = other.headers.clone();
            }
        }
    }

    /// Returns the MCP servers in the format of `/sessions`.
    pub fn session_servers(&self) -> Vec<Value> {
        let server = |server: &McpServer| {
            let headers = server.headers.iter();
            let headers: Vec<Value> =
                headers.map(|(name, value)| json!({"name": name, "value": value})).collect();
            json!({"type": "http", "name": server.name, "url": server.url, "headers": headers})
        };
        self.mcp_servers.iter().map(server).collect()
    }
}

impl AgentDocument {
    pub fn of(entry: &CatalogEntry) -> Result<AgentDocument, ApiError> {
        let document: AgentDocument = serde_json::from_value(entry.body.clone())
            .map_err(|_| ApiError::Internal("a stored agent is damaged".to_owned()))?;
        match document.versions.is_empty() {
            true => Err(ApiError::Internal("a stored agent has no version".to_owned())),
            false => Ok(document),
        }
    }

    pub fn newest(&self) -> &AgentVersion {
        &self.versions[self.versions.len() - 1]
    }

    /// Returns a version; the newest one without a number.
    pub fn version(&self, number: Option<u32>) -> Result<&AgentVersion, ApiError> {
        let Some(number) = number else { return Ok(self.newest()) };
        let found = self.versions.iter().find(|version| version.version == number);
        found.ok_or_else(|| ApiError::NotFound(format!("the agent has no version {number}")))
    }

    /// Adds a changed copy of the newest version, and drops the oldest one if there are too many. A copy without changes
    /// is no new version.
    pub fn add(&mut self, mut version: AgentVersion) {
        if version == *self.newest() {
            return;
        }
        version.version = self.newest().version + 1;
        version.at = Timestamp::now();
        // Credentials of old versions are not kept.
        self.versions.iter_mut().for_each(|old| old.tools.forget_headers());
        self.versions.push(version);
        if self.versions.len() > MAX_VERSIONS {
            self.versions.remove(0);
        }
    }
}

/// Stores a new agent.
pub(super) async fn create(
    gateway: &Gateway,
    app: &AppName,
    version: AgentVersion,
) -> Result<CatalogEntry, ApiError> {
    let document = AgentDocument { versions: vec![version], archived_at: None };
    gateway.catalog.create(app, DocumentKind::Agent, "agent", json!(document)).await
}

/// Returns an agent of an app.
pub(super) async fn find(
    gateway: &Gateway,
    app: &AppName,
    id: &str,
) -> Result<(CatalogEntry, AgentDocument), ApiError> {
    let entry = gateway.catalog.find(app, DocumentKind::Agent, id).await?;
    let entry = entry.ok_or_else(|| no_agent(id))?;
    let document = AgentDocument::of(&entry)?;
    Ok((entry, document))
}

/// Changes an agent of an app.
pub(super) async fn change(
    gateway: &Gateway,
    app: &AppName,
    id: &str,
    change: impl FnOnce(&mut AgentDocument) -> Result<(), ApiError>,
) -> Result<(CatalogEntry, AgentDocument), ApiError> {
    let mut changed = None;
    let apply = |body: &mut Value| {
        let entry = CatalogEntry {
            id: String::new(),
            created_at: Timestamp::UNIX_EPOCH,
            body: body.take(),
        };
        let mut document = AgentDocument::of(&entry)?;
        change(&mut document)?;
        *body = json!(document);
        changed = Some(document);
        Ok(())
    };
    let entry = gateway.catalog.change(app, DocumentKind::Agent, id, apply).await?;
    let missing = || no_agent(id);
    Ok((entry.ok_or_else(missing)?, changed.ok_or_else(missing)?))
}

fn no_agent(id: &str) -> ApiError {
    ApiError::NotFound(format!("no agent {id:?}"))
}
