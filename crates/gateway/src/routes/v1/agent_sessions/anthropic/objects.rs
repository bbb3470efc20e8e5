//! Agents and sessions as Anthropic's API shows them.

use serde_json::{Value, json};

use crate::agent_catalog::CatalogEntry;
use crate::routes::v1::agent_sessions::agents::{AgentDocument, AgentVersion};
use crate::routes::v1::agent_sessions::memory_stores::attached::AttachedStore;
use crate::routes::v1::agent_sessions::respond::time;
use crate::routes::v1::agent_sessions::sessions::{Activity, DescribedSession};
use crate::routes::v1::agent_sessions::tool_shapes;

/// Renders a version of an agent.
pub(super) fn agent(
    entry: &CatalogEntry,
    document: &AgentDocument,
    version: &AgentVersion,
) -> Value {
    let mut agent = snapshot(&entry.id, version);
    agent["archived_at"] = json!(document.archived_at.map(time));
    agent["created_at"] = json!(time(entry.created_at));
    agent["updated_at"] = json!(time(version.at));
    agent["metadata"] = json!(version.metadata);
    agent
}

/// Renders an agent as a session has it.
fn snapshot(id: &str, version: &AgentVersion) -> Value {
    let mut model = json!({"id": version.model});
    for key in ["effort", "speed", "inference_geo"] {
        if let Some(value) = version.extra.get(key) {
            model[key] = value.clone();
        }
    }
    json!({"id": id, "type": "agent", "version": version.version, "model": model,
        "name": version.name.as_deref().unwrap_or(id), "description": version.description,
        "system": version.system, "tools": tool_shapes::anthropic(&version.tools),
        "mcp_servers": tool_shapes::anthropic_servers(&version.tools),
        "skills": [], "multiagent": null, "execution_identity": {"type": "service_account"}})
}

/// Renders a session.
pub(super) fn session(described: &DescribedSession, activity: Activity) -> Value {
    let (session, description) = (&described.session, &described.description);
    let usage = &session.usage;
    let resources: Vec<Value> =
        description.memory_stores.iter().map(AttachedStore::render).collect();
    let status = match activity {
        Activity::Idle | Activity::Waiting => "idle",
        Activity::Running => "running",
        Activity::Closed => "terminated",
    };
    json!({"id": session.id.as_str(), "type": "session", "status": status,
        "agent": snapshot(&described.agent_id(), &described.agent()),
        "environment_id": description.environment_id.as_deref().unwrap_or("env_hob"),
        "title": description.title, "metadata": description.metadata,
        "created_at": time(session.created_at), "updated_at": time(described.updated_at()),
        "archived_at": description.archived_at.map(time), "budget": null,
        "outcome_evaluations": [], "resources": resources, "vault_ids": [],
        "stats": {}, "usage": {"input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cache_read_input_tokens": usage.cached_read_tokens,
            "cache_creation": {"ephemeral_5m_input_tokens": usage.cached_write_tokens,
                "ephemeral_1h_input_tokens": 0}}})
}
