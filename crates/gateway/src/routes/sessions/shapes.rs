//! Wire types of sessions, turns and events.

use hob_agents::SandboxLayers;
use hob_domain::Timestamp;
use hob_domain::session::{
    EventKind, Session, SessionEvent, SessionState, SessionTurn, TurnState, TurnUsage,
};
use hob_sessions::session::{TurnMessages, text_of};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::error::failure_code;
use crate::state::Gateway;

/// A request to create a session.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"agent": "demo", "meta": {"purpose": "docs"}, "permissions": "deny"}))]
pub(crate) struct CreateBody {
    /// The agent's name.
    pub agent: String,
    /// Any data of the app.
    #[schema(value_type = Object)]
    pub meta: Option<Map<String, Value>>,
    /// The working folder; it must lie in `sessions.roots`. Default: the session's own
    /// folder.
    pub cwd: Option<String>,
    /// A model name of the agent.
    pub model: Option<String>,
    /// Added to the agent's system prompt.
    pub system: Option<String>,
    /// How Hob answers the agent's permission requests.
    pub permissions: Option<PermissionsWord>,
    /// MCP servers for the agent: a table of `name: {command, args, env}` or `name: {url, headers}`, or
    /// a list of such objects with `name` inside. The value `memory` stands for Hob's own memory.
    #[schema(value_type = Object)]
    pub mcp_servers: Option<Value>,
    /// Tools that the app runs itself: `{name, description, input_schema}`. A call is a `tool_call` event; its result goes
    /// to `/sessions/{id}/tool_results/{call_id}`.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
}

/// `deny` rejects at once and the turn continues; `ask` asks the caller; `allow` accepts.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PermissionsWord {
    Deny,
    Ask,
    Allow,
}

/// Usage of turns.
#[derive(Serialize, ToSchema)]
pub(crate) struct UsageView {
    input_tokens: u64,
    output_tokens: u64,
    cached_read_tokens: u64,
    cached_write_tokens: u64,
    /// In US dollars, as the agent reports it. 0 if it reports none: Claude Code in a terminal reports only tokens.
    cost_usd: f64,
}

impl From<TurnUsage> for UsageView {
    fn from(usage: TurnUsage) -> UsageView {
        UsageView {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cached_read_tokens: usage.cached_read_tokens,
            cached_write_tokens: usage.cached_write_tokens,
            cost_usd: usage.cost_usd,
        }
    }
}

/// A session.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({"session_id": "0d5c…", "app": "my-app", "agent": "demo",
    "meta": {"purpose": "docs"}, "cwd": "…/workspaces/0d5c…", "model": null, "permissions": "deny",
    "created_at": "2026-11-15T09:00:00Z", "closed_at": null, "turn_count": 1,
    "last_turn_at": "2026-11-15T09:00:03Z", "state": "idle", "waiting": false, "last_event_id": 5,
    "usage": {"input_tokens": 10, "output_tokens": 5, "cached_read_tokens": 0,
        "cached_write_tokens": 0, "cost_usd": 0.0}}))]
pub(crate) struct SessionView {
    pub session_id: String,
    pub app: String,
    pub agent: String,
    #[schema(value_type = Object)]
    pub meta: Value,
    pub cwd: String,
    pub model: Option<String>,
    pub permissions: &'static str,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub closed_at: Option<Timestamp>,
    pub turn_count: u32,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_turn_at: Option<Timestamp>,
    /// `idle`, `running` or `closed`.
    #[schema(value_type = String)]
    pub state: SessionState,
    /// Whether the agent waits for an answer to a permission request or a form, as the node that answers knows it.
    pub waiting: bool,
    /// The number of the session's last event. Follow from here.
    pub last_event_id: u64,
    pub usage: UsageView,
}

impl SessionView {
    pub fn new(gateway: &Gateway, session: Session) -> SessionView {
        let (state, waiting) = (session.state(), gateway.sessions.is_waiting(&session.id));
        SessionView {
            session_id: session.id.to_string(),
            app: session.app.as_str().to_owned(),
            agent: session.setup.agent.to_string(),
            meta: session.setup.meta,
            cwd: session.setup.cwd,
            model: session.setup.model,
            permissions: session.setup.permissions.as_str(),
            created_at: session.created_at,
            closed_at: session.closed_at,
            turn_count: session.turn_count,
            last_turn_at: session.last_turn_at,
            state,
            waiting,
            last_event_id: session.last_event,
            usage: session.usage.into(),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(crate) struct SessionAnswer {
    /// Always `true`.
    pub ok: bool,
    #[serde(flatten)]
    pub session: SessionView,
    /// The sandbox of the session's agent on this node; `null` if the agent is no longer in the settings.
    pub sandbox: Option<SandboxView>,
}

impl SessionAnswer {
    pub fn new(gateway: &Gateway, session: Session) -> SessionAnswer {
        let agent = gateway.agents.get(&session.setup.agent);
        let sandbox = agent.map(|agent| gateway.runtime.sandbox.layers(agent).into());
        SessionAnswer { ok: true, session: SessionView::new(gateway, session), sandbox }
    }
}

/// The sandbox of an agent.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({"mode": "workspace", "layers": ["namespaces", "landlock", "limits"],
    "landlock_version": 7, "memory_bytes": 12884901888u64, "disk_bytes": 68719476736u64}))]
pub(crate) struct SandboxView {
    /// `workspace`, `strict` or `off`.
    mode: &'static str,
    /// The parts of the sandbox that are active: `namespaces`, `landlock`, `limits`, and `cgroups` if control groups limit the
    /// agent's memory and processes.
    layers: Vec<&'static str>,
    /// The version of Landlock, if it is among the layers.
    landlock_version: Option<u32>,
    /// The most memory that the agent may use, in bytes.
    memory_bytes: Option<u64>,
    /// The most disk space that its files may take, in bytes.
    disk_bytes: Option<u64>,
}

impl From<SandboxLayers> for SandboxView {
    fn from(active: SandboxLayers) -> SandboxView {
        let SandboxLayers { mode, landlock, memory_bytes, disk_bytes, .. } = active;
        let layers = [
            ("namespaces", active.namespaces),
            ("landlock", landlock.is_some()),
            ("limits", active.limits),
            ("cgroups", active.control_groups),
        ];
        let layers = layers.into_iter().filter(|(_, is_active)| *is_active);
        let layers = layers.map(|(name, _)| name).collect();
        SandboxView { mode, layers, landlock_version: landlock, memory_bytes, disk_bytes }
    }
}

/// A page of sessions, or all of them.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub(crate) struct SessionList {
    /// Always `true`.
    ok: bool,
    /// How many sessions this answer has.
    count: usize,
    sessions: Vec<SessionView>,
    /// Present if `limit` left sessions out: the `after` of the next page.
    next: Option<String>,
}

/// A request for a turn.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"prompt": "say hello"}))]
pub(crate) struct TurnBody {
    /// The prompt.
    #[schema(min_length = 1)]
    pub prompt: String,
    /// Ids of uploaded files.
    pub files: Option<Vec<String>>,
}

/// The answer of a turn.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "session_id": "0d5c…", "turn_index": 1, "state": "finished",
    "stop_reason": "end_turn", "text": "hello", "duration_ms": 412, "events": [
        {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "…", "update": {
            "sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "hello"}}}},
        {"jsonrpc": "2.0", "id": "…", "result": {"stopReason": "end_turn"}}],
    "usage": {"input_tokens": 10, "output_tokens": 5, "cached_read_tokens": 0,
        "cached_write_tokens": 0, "cost_usd": 0.0}}))]
pub(crate) struct TurnAnswer {
    /// Whether the turn finished or was cancelled.
    pub ok: bool,
    pub session_id: String,
    pub turn_index: u32,
    /// `queued`, `running`, `finished`, `cancelled`, `died`, `timed_out`, `interrupted`,
    /// `resume_failed`, `failed` or `not_installed`.
    #[schema(value_type = String)]
    pub state: TurnState,
    /// Why the agent stopped; `null` if it gave no reason.
    pub stop_reason: Option<String>,
    /// The agent's whole text.
    pub text: String,
    pub duration_ms: u64,
    /// The agent's messages, unchanged and in order; the last one is the prompt's result.
    #[schema(value_type = Vec<Object>)]
    pub events: Vec<Box<RawValue>>,
    /// Whether there are more messages than `events` contains, which are at most 8 MiB. They are in the session's events.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub more_events: bool,
    pub usage: UsageView,
    /// The error as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The error's stable code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
}

impl TurnAnswer {
    pub fn new(session: String, turn: SessionTurn, messages: TurnMessages) -> TurnAnswer {
        let TurnMessages { messages, is_cut, .. } = messages;
        let (begun, ended) = (turn.started_at.unwrap_or(turn.queued_at), turn.ended_at);
        let until = ended.unwrap_or_else(Timestamp::now);
        let duration = until.duration_since(begun).as_millis();
        let code = failure_code(turn.state);
        // A turn interrupted by Hob's own end has no stored text; take it from its messages.
        let text = match turn.text.is_empty() {
            true => text_of(&messages),
            false => turn.text,
        };
        TurnAnswer {
            ok: code.is_none(),
            session_id: session,
            turn_index: turn.index,
            state: turn.state,
            stop_reason: turn.stop_reason,
            text,
            duration_ms: u64::try_from(duration).unwrap_or_default(),
            events: messages.into_iter().filter_map(|m| RawValue::from_string(m).ok()).collect(),
            more_events: is_cut,
            usage: turn.usage.into(),
            error: turn.error,
            code,
        }
    }
}

/// An accepted turn.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "session_id": "0d5c…", "turn_index": 1, "state": "queued"}))]
pub(crate) struct TurnTaken {
    /// Always `true`.
    pub ok: bool,
    pub session_id: String,
    pub turn_index: u32,
    #[schema(value_type = String)]
    pub state: TurnState,
}

/// The event log of a session.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "more": false, "last_event": 2, "events": [
    {"seq": 1, "at": "2026-11-15T09:00:00Z", "event": "create", "turn_index": null, "agent": "demo"},
    {"seq": 2, "at": "2026-11-15T09:00:03Z", "event": "message", "turn_index": 1, "message": {}}]}))]
pub(crate) struct EventList {
    /// Always `true`.
    pub ok: bool,
    /// Each has `seq`, `at`, `event` and `turn_index`; a `message` has the agent's message.
    #[schema(value_type = Vec<Object>)]
    pub events: Vec<EventView>,
    /// Whether later events exist.
    pub more: bool,
    /// The number of the session's last event.
    pub last_event: u64,
}

/// An event of the log.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum EventView {
    /// The agent's message, byte for byte.
    Message {
        seq: u64,
        at: String,
        event: String,
        turn_index: Option<u32>,
        message: Option<Box<RawValue>>,
    },
    Audit(Value),
}

impl From<&SessionEvent> for EventView {
    fn from(stored: &SessionEvent) -> EventView {
        let event = &stored.event;
        if event.kind == EventKind::Message {
            return EventView::Message {
                seq: stored.seq,
                at: stored.at.to_string(),
                event: event.kind.to_string(),
                turn_index: event.turn,
                message: RawValue::from_string(event.body.clone()).ok(),
            };
        }
        let mut view = json!({"seq": stored.seq, "at": stored.at.to_string(), "event": event.kind,
            "turn_index": event.turn});
        let body: Value = serde_json::from_str(&event.body).unwrap_or_default();
        if let (Some(view), Value::Object(body)) = (view.as_object_mut(), body) {
            for (key, value) in body {
                view.entry(key).or_insert(value);
            }
        }
        EventView::Audit(view)
    }
}
