//! Steps of a session as events of Anthropic's API.

use std::path::Path;
use std::sync::Arc;

use hob_domain::AppName;
use hob_domain::session::{SessionId, SessionTurn, TurnState};
use serde_json::{Value, json};

use crate::routes::v1::agent_sessions::prompt::is_image;
use crate::routes::v1::agent_sessions::respond::time;
use crate::routes::v1::agent_sessions::steps::{Speech, Step, StepKind};
use crate::state::Gateway;

/// Which texts are also sent while they are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Deltas {
    pub answer: bool,
    pub thinking: bool,
}

/// Renders the steps of a session, in order.
pub(super) struct EventRenderer {
    gateway: Arc<Gateway>,
    app: AppName,
    id: SessionId,
    deltas: Deltas,
    /// The text whose beginning was sent.
    begun: Option<u64>,
    /// The events that wait for the caller.
    waiting: Vec<String>,
}

impl EventRenderer {
    pub fn new(
        gateway: Arc<Gateway>,
        app: AppName,
        id: SessionId,
        deltas: Deltas,
    ) -> EventRenderer {
        EventRenderer { gateway, app, id, deltas, begun: None, waiting: Vec::new() }
    }

    /// Returns the events of a step.
    pub async fn render(&mut self, step: &Step) -> Vec<Value> {
        let at = time(step.at);
        let event = |id: String, kind: &str| json!({"id": id, "type": kind, "processed_at": at});
        match &step.kind {
            StepKind::TurnStarted => {
                self.waiting.clear();
                let turn = self.turn(step.turn).await;
                let (prompt, files) =
                    turn.map(|turn| (turn.prompt, turn.files)).unwrap_or_default();
                let message = user_message(&self.id, step.turn, &prompt, &files, Some(&at));
                let running = format!("{}_running", message_id(&self.id, step.turn));
                vec![message, event(running, "session.status_running")]
            }
            StepKind::Delta { first, speech, text } => self.delta(*first, *speech, text),
            StepKind::Said { first, speech, text } => {
                self.begun = None;
                let id = event_id(&self.id, *first);
                match speech {
                    Speech::Thinking => vec![event(id, "agent.thinking")],
                    Speech::Answer => {
                        let mut message = event(id, "agent.message");
                        message["content"] = json!([{"type": "text", "text": text}]);
                        vec![message]
                    }
                }
            }
            StepKind::ToolUsed { call, request } => {
                let id = event_id(&self.id, call.first);
                let mut used = event(id.clone(), "agent.tool_use");
                (used["name"], used["input"]) = (json!(call.name), call.input.clone());
                let word = if request.is_some() { "ask" } else { "allow" };
                used["evaluated_permission"] = json!(word);
                match request {
                    None => vec![used],
                    Some(_) => vec![used, self.wait(id, step.seq, &at)],
                }
            }
            StepKind::ToolEnded { call, output, is_error } => {
                let id = event_id(&self.id, call.first);
                let mut ended = event(result_id(&self.id, call.first), "agent.tool_result");
                ended["tool_use_id"] = json!(id);
                ended["content"] = json!([{"type": "text", "text": output}]);
                ended["is_error"] = json!(is_error);
                vec![ended]
            }
            StepKind::PermissionAnswered { call, is_allowed, message } => {
                let mut answer = event(answer_id(&self.id, *call), "user.tool_confirmation");
                let call = event_id(&self.id, *call);
                answer["tool_use_id"] = json!(call);
                answer["result"] = json!(if *is_allowed { "allow" } else { "deny" });
                if let Some(message) = message {
                    answer["deny_message"] = json!(message);
                }
                self.go_on(&call, answer, step.seq, &at)
            }
            StepKind::ClientToolUsed { first, name, input, .. } => {
                let id = event_id(&self.id, *first);
                let mut used = event(id.clone(), "agent.custom_tool_use");
                (used["name"], used["input"]) = (json!(name), input.clone());
                vec![used, self.wait(id, step.seq, &at)]
            }
            StepKind::ClientToolEnded { first, content, is_error, .. } => {
                let call = event_id(&self.id, *first);
                let mut ended = event(result_id(&self.id, *first), "user.custom_tool_result");
                ended["custom_tool_use_id"] = json!(call);
                ended["content"] = match content {
                    Value::String(text) => json!([{"type": "text", "text": text}]),
                    blocks => blocks.clone(),
                };
                ended["is_error"] = json!(is_error);
                self.go_on(&call, ended, step.seq, &at)
            }
            StepKind::Interrupted => vec![event(event_id(&self.id, step.seq), "user.interrupt")],
            StepKind::TurnEnded { state } => self.turn_ended(step, *state, &at).await,
            StepKind::Closed => {
                vec![event(event_id(&self.id, step.seq), "session.status_terminated")]
            }
        }
    }

    async fn turn(&self, turn: u32) -> Option<SessionTurn> {
        self.gateway.sessions.turn(&self.app, &self.id, turn).await.ok()
    }

    fn delta(&mut self, first: u64, speech: Speech, text: &str) -> Vec<Value> {
        let (is_wanted, kind) = match speech {
            Speech::Answer => (self.deltas.answer, "agent.message"),
            Speech::Thinking => (self.deltas.thinking, "agent.thinking"),
        };
        if !is_wanted {
            return Vec::new();
        }
        let id = event_id(&self.id, first);
        let mut events = Vec::new();
        if self.begun != Some(first) {
            self.begun = Some(first);
            events.push(json!({"type": "event_start", "event": {"id": id, "type": kind}}));
        }
        if speech == Speech::Answer {
            let content = json!({"type": "text", "text": text});
            events.push(json!({"type": "event_delta", "event_id": id,
                "delta": {"type": "content_delta", "index": 0, "content": content}}));
        }
        events
    }

    /// Returns the event that says what the session waits for.
    fn wait(&mut self, id: String, seq: u64, at: &str) -> Value {
        self.waiting.push(id);
        let reason = json!({"type": "requires_action", "event_ids": self.waiting});
        idle(&self.id, seq, reason, at)
    }

    /// Returns the caller's answer, and what follows from it.
    fn go_on(&mut self, call: &str, answer: Value, seq: u64, at: &str) -> Vec<Value> {
        self.waiting.retain(|id| id != call);
        let mut events = vec![answer];
        if self.waiting.is_empty() {
            let id = format!("{}_running", event_id(&self.id, seq));
            events.push(json!({"id": id, "type": "session.status_running", "processed_at": at}));
        }
        events
    }

    async fn turn_ended(&mut self, step: &Step, state: TurnState, at: &str) -> Vec<Value> {
        let turn = self.turn(step.turn).await;
        let stop_reason = turn.as_ref().and_then(|turn| turn.stop_reason.as_deref());
        match state {
            TurnState::Finished if stop_reason == Some("refusal") => {
                let mut ended = idle(&self.id, step.seq, json!({"type": "refusal"}), at);
                ended["stop_details"] =
                    json!({"type": "refusal", "category": null, "explanation": null});
                vec![ended]
            }
            TurnState::Finished | TurnState::Cancelled => {
                vec![idle(&self.id, step.seq, json!({"type": "end_turn"}), at)]
            }
            _ => {
                let message = turn.and_then(|turn| turn.error);
                let message = message.unwrap_or_else(|| "the turn failed".to_owned());
                let error = json!({"id": event_id(&self.id, step.seq), "type": "session.error",
                    "processed_at": at, "error": {"type": "unknown_error", "message": message,
                        "retry_status": {"type": "exhausted"}}});
                vec![error, idle(&self.id, step.seq, json!({"type": "retries_exhausted"}), at)]
            }
        }
    }
}

fn idle(id: &SessionId, seq: u64, reason: Value, at: &str) -> Value {
    json!({"id": format!("{}_idle", event_id(id, seq)), "type": "session.status_idle",
        "processed_at": at, "stop_reason": reason, "stop_details": null})
}

/// Returns the event of a user's message. It has no time while the message waits.
pub(super) fn user_message(
    id: &SessionId,
    turn: u32,
    text: &str,
    files: &[String],
    at: Option<&str>,
) -> Value {
    let mut content: Vec<Value> = files.iter().filter_map(|path| file_block(path)).collect();
    if !text.is_empty() || content.is_empty() {
        content.push(json!({"type": "text", "text": text}));
    }
    json!({"id": message_id(id, turn), "type": "user.message", "processed_at": at,
        "content": content})
}

/// Renders an uploaded file. The folder that it is in has its id as a name.
fn file_block(path: &str) -> Option<Value> {
    let id = Path::new(path).parent()?.file_name()?.to_str()?;
    let kind = if is_image(path) { "image" } else { "document" };
    Some(json!({"type": kind, "source": {"type": "file", "file_id": id}}))
}

fn message_id(id: &SessionId, turn: u32) -> String {
    format!("sevt_{id}_turn{turn}")
}

pub(super) fn event_id(id: &SessionId, seq: u64) -> String {
    format!("sevt_{id}_{seq}")
}

/// Returns the id of the result of a tool call. The call's own event has the number `call`.
pub(super) fn result_id(id: &SessionId, call: u64) -> String {
    format!("{}_result", event_id(id, call))
}

/// Returns the id of the answer to the permission request of a tool call.
pub(super) fn answer_id(id: &SessionId, call: u64) -> String {
    format!("{}_answer", event_id(id, call))
}

/// Returns the number of the ledger's event that an event's id names.
pub(super) fn seq_of(id: &SessionId, event: &str) -> Option<u64> {
    event.strip_prefix("sevt_")?.strip_prefix(id.as_str())?.strip_prefix('_')?.parse().ok()
}
