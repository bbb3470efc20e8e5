//! Agents, sessions and turns as OpenAI's API shows them.

use hob_domain::Timestamp;
use hob_domain::session::{SessionId, SessionTurn, TurnState, TurnUsage};
use serde_json::{Value, json};

use crate::agent_catalog::CatalogEntry;
use crate::routes::v1::agent_sessions::agents::{AgentDocument, AgentVersion};
use crate::routes::v1::agent_sessions::sessions::{Activity, DescribedSession};
use crate::routes::v1::agent_sessions::tool_shapes;

/// Renders an agent.
pub(super) fn agent(entry: &CatalogEntry, document: &AgentDocument) -> Value {
    let version = document.newest();
    let mut agent = snapshot(&entry.id, version);
    agent["object"] = json!("agent");
    agent["created_at"] = json!(entry.created_at.as_second());
    agent["updated_at"] = json!(version.at.as_second());
    agent["metadata"] = json!(version.metadata);
    agent
}

/// Renders an agent as a session has it.
fn snapshot(id: &str, version: &AgentVersion) -> Value {
    let extra = |key: &str, otherwise: Value| version.extra.get(key).cloned().unwrap_or(otherwise);
    json!({"id": id, "name": version.name, "model": version.model,
        "instructions": version.system, "tools": tool_shapes::openai(&version.tools),
        "multi_agent": {"enabled": false, "max_concurrent_subagents": null},
        "reasoning": extra("reasoning", json!({"effort": null, "summary": null})),
        "service_tier": "default",
        "text": {"format": {"type": "text"}, "verbosity": "medium"}})
}

/// A call of a function that waits for its result.
#[derive(Debug, Clone)]
pub(super) struct WaitingCall {
    pub call: String,
    pub name: String,
    pub input: Value,
    pub turn: u32,
}

/// Renders a session.
pub(super) fn session(
    described: &DescribedSession,
    activity: Activity,
    waiting: &[WaitingCall],
) -> Value {
    let (session, description) = (&described.session, &described.description);
    let id = session.id.as_str();
    let status = match activity {
        _ if !waiting.is_empty() => "requires_action",
        Activity::Idle | Activity::Closed => "idle",
        Activity::Running | Activity::Waiting => "in_progress",
    };
    let actions: Vec<Value> = waiting
        .iter()
        .map(|call| {
            json!({"type": "function_call", "call_id": call.call, "name": call.name,
                "arguments": call.input.to_string(), "turn_id": turn_id(&session.id, call.turn)})
        })
        .collect();
    json!({"id": id, "object": "agent.session", "status": status, "error": null,
        "agent": snapshot(&described.agent_id(), &described.agent()),
        "created_at": session.created_at.as_second(),
        "last_active_at": described.updated_at().as_second(),
        "environment": description.environment.clone().unwrap_or(json!({"type": "none"})),
        "metadata": description.metadata, "required_actions": actions,
        "usage": usage(&session.usage), "vault_ids": [], "review": "none"})
}

/// Renders a turn.
pub(super) fn turn(described_agent: &str, id: &SessionId, turn: &SessionTurn) -> Value {
    let error = turn_error(turn);
    json!({"id": turn_id(id, turn.index), "object": "agent.session.turn",
        "session_id": id.as_str(), "agent_id": described_agent, "subagent_id": null,
        "status": turn_status(turn.state), "error": error,
        "created_at": turn.queued_at.as_second(),
        "started_at": turn.started_at.map(Timestamp::as_second),
        "completed_at": turn.ended_at.map(Timestamp::as_second),
        "usage": usage(&turn.usage)})
}

fn turn_error(turn: &SessionTurn) -> Option<Value> {
    if turn_status(turn.state) != "failed" {
        return None;
    }
    let message = turn.error.as_deref().unwrap_or("the turn failed");
    Some(json!({"code": "server_error", "message": message}))
}

fn turn_status(state: TurnState) -> &'static str {
    match state {
        TurnState::Queued => "queued",
        TurnState::Running => "in_progress",
        TurnState::Finished => "completed",
        TurnState::Cancelled => "cancelled",
        _ => "failed",
    }
}

pub(super) fn usage(usage: &TurnUsage) -> Value {
    // OpenAI's input tokens include those that the cache has or stores.
    let total = usage.tokens();
    json!({"input_tokens": total.saturating_sub(usage.output_tokens),
        "output_tokens": usage.output_tokens, "total_tokens": total,
        "input_tokens_details": {"cached_tokens": usage.cached_read_tokens},
        "output_tokens_details": {"reasoning_tokens": 0}})
}

pub(super) fn turn_id(id: &SessionId, turn: u32) -> String {
    format!("turn_{id}_{turn}")
}

/// Returns the number of the turn that an id names.
pub(super) fn turn_number(id: &SessionId, text: &str) -> Option<u32> {
    text.strip_prefix("turn_")?.strip_prefix(id.as_str())?.strip_prefix('_')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_tokens_include_cached_ones() {
        let shown = usage(&TurnUsage {
            input_tokens: 10,
            output_tokens: 5,
            cached_read_tokens: 200,
            cached_write_tokens: 30,
            cost_usd: 0.0,
        });
        assert_eq!((&shown["input_tokens"], &shown["total_tokens"]), (&json!(240), &json!(245)));
        assert_eq!(shown["input_tokens_details"]["cached_tokens"], 200);
    }
}
