//! Steps of a session as events and items of OpenAI's API.

use std::sync::Arc;

use hob_domain::AppName;
use hob_domain::session::{SessionId, SessionTurn, TurnState};
use serde_json::{Value, json};

use super::objects::{self, WaitingCall, turn_id};
use crate::routes::v1::agent_sessions::prompt::is_image;
use crate::routes::v1::agent_sessions::sessions::{self, Activity};
use crate::routes::v1::agent_sessions::steps::{Speech, Step, StepKind};
use crate::routes::v1::agent_sessions::tool_call::ToolCall;
use crate::state::Gateway;

/// Renders the steps of a session, in order.
pub(super) struct EventRenderer {
    gateway: Arc<Gateway>,
    app: AppName,
    id: SessionId,
    /// The number of the last step's event, and how many events its steps have become.
    last: (u64, u32),
    /// The number of the next item of the turn's output.
    next_output: u32,
    /// Items that were added and are not done, with their places in the output.
    open: Vec<(u64, u32)>,
    waiting: Vec<WaitingCall>,
}

impl EventRenderer {
    pub fn new(gateway: Arc<Gateway>, app: AppName, id: SessionId) -> EventRenderer {
        let (open, waiting) = (Vec::new(), Vec::new());
        EventRenderer { gateway, app, id, last: (0, 0), next_output: 0, open, waiting }
    }

    /// Returns the calls of functions that wait for their results.
    pub fn waiting(&self) -> &[WaitingCall] {
        &self.waiting
    }

    /// Returns the events of a step.
    pub async fn render(&mut self, step: &Step) -> Vec<Value> {
        let mut events = self.events(step).await;
        let turn = turn_id(&self.id, step.turn);
        if self.last.0 != step.seq {
            self.last = (step.seq, 0);
        }
        for (index, event) in events.iter_mut().enumerate() {
            // An event has one id in every stream. A turn may start before its first event is stored.
            let id = match step.kind {
                StepKind::TurnStarted => format!("event_{}_turn{}_{index}", self.id, step.turn),
                _ => {
                    self.last.1 += 1;
                    format!("event_{}_{}_{}", self.id, step.seq, self.last.1)
                }
            };
            event["event_id"] = json!(id);
            if event.get("session").is_none() {
                event["session_id"] = json!(self.id.as_str());
                event["turn_id"] = json!(turn);
            }
        }
        events
    }

    async fn events(&mut self, step: &Step) -> Vec<Value> {
        match &step.kind {
            StepKind::TurnStarted => self.turn_started(step).await,
            StepKind::Delta { first, speech, text } => self.delta(step, *first, *speech, text),
            StepKind::Said { first, speech, text } => {
                let mut events = self.begin_text(step, *first, *speech);
                events.extend(self.end_text(step, *first, *speech, text));
                events
            }
            StepKind::ToolUsed { call, .. } => {
                let item = tool_item(&self.id, step.turn, call, None);
                vec![self.added(call.first, item)]
            }
            StepKind::ToolEnded { call, output, is_error } => {
                let item = tool_item(&self.id, step.turn, call, Some((output, *is_error)));
                vec![self.done(call.first, item)]
            }
            StepKind::PermissionAnswered { .. } | StepKind::Interrupted => Vec::new(),
            StepKind::ClientToolUsed { first, call, name, input } => {
                let (call, name, input) = (call.clone(), name.clone(), input.clone());
                let waiting = WaitingCall { call, name, input, turn: step.turn };
                let item = call_item(&self.id, *first, &waiting, "in_progress");
                self.waiting.push(waiting);
                let mut events = vec![self.added(*first, item)];
                events
                    .extend(self.session("agent.session.requires_action", Activity::Waiting).await);
                events
            }
            StepKind::ClientToolEnded { first, call, content, is_error } => {
                let place = self.waiting.iter().position(|waiting| waiting.call == *call);
                let waiting = place.map(|place| self.waiting.remove(place));
                let mut events = Vec::new();
                if let Some(waiting) = waiting {
                    events.push(
                        self.done(*first, call_item(&self.id, *first, &waiting, "completed")),
                    );
                }
                let output = output_item(&self.id, step, call, content, *is_error);
                events.push(json!({"type": "agent.session.turn.item.added", "item": output,
                    "output_index": null}));
                events.extend(self.session("agent.session.in_progress", Activity::Running).await);
                events
            }
            StepKind::TurnEnded { state } => self.turn_ended(step, *state).await,
            StepKind::Closed => self.session("agent.session.idle", Activity::Closed).await,
        }
    }

    async fn turn_started(&mut self, step: &Step) -> Vec<Value> {
        (self.next_output, self.open) = (0, Vec::new());
        self.waiting.clear();
        let Some(turn) = self.turn(step.turn).await else { return Vec::new() };
        let object = self.turn_object(&turn).await;
        let mut running = object.clone();
        (running["status"], running["completed_at"]) = (json!("in_progress"), json!(null));
        let item = user_item(&self.id, &turn);
        let mut events = self.session("agent.session.in_progress", Activity::Running).await;
        events.insert(0, json!({"type": "agent.session.turn.created", "turn": running}));
        events.push(json!({"type": "agent.session.turn.in_progress", "turn": running}));
        events.push(json!({"type": "agent.session.turn.item.added", "item": item,
            "output_index": null}));
        events
    }

    async fn turn_ended(&mut self, step: &Step, state: TurnState) -> Vec<Value> {
        self.waiting.clear();
        let Some(turn) = self.turn(step.turn).await else { return Vec::new() };
        let kind = match state {
            TurnState::Finished => "agent.session.turn.completed",
            TurnState::Cancelled => "agent.session.turn.cancelled",
            _ => "agent.session.turn.failed",
        };
        let object = self.turn_object(&turn).await;
        let usage = objects::usage(&turn.usage);
        let mut events = vec![json!({"type": kind, "turn": object, "usage": usage})];
        events.extend(self.session("agent.session.idle", Activity::Idle).await);
        events
    }

    async fn turn(&self, turn: u32) -> Option<SessionTurn> {
        self.gateway.sessions.turn(&self.app, &self.id, turn).await.ok()
    }

    async fn turn_object(&self, turn: &SessionTurn) -> Value {
        let described = sessions::find(&self.gateway, &self.app, self.id.as_str()).await;
        let agent = described.map(|described| described.agent_id()).unwrap_or_default();
        objects::turn(&agent, &self.id, turn)
    }

    /// Returns an event that shows the session.
    async fn session(&self, kind: &str, activity: Activity) -> Vec<Value> {
        let described = sessions::find(&self.gateway, &self.app, self.id.as_str()).await;
        let Ok(described) = described else { return Vec::new() };
        let session = objects::session(&described, activity, &self.waiting);
        vec![json!({"type": kind, "session": session})]
    }

    fn added(&mut self, first: u64, item: Value) -> Value {
        let index = self.next_output;
        self.next_output += 1;
        self.open.push((first, index));
        json!({"type": "agent.session.turn.item.added", "item": item, "output_index": index})
    }

    fn done(&mut self, first: u64, item: Value) -> Value {
        let index = self.output_index(first);
        self.open.retain(|(open, _)| *open != first);
        json!({"type": "agent.session.turn.item.done", "item": item, "output_index": index})
    }

    fn output_index(&self, first: u64) -> u32 {
        let open = self.open.iter().find(|(open, _)| *open == first);
        open.map_or(self.next_output, |(_, index)| *index)
    }

    /// Announces a text, unless that was done.
    fn begin_text(&mut self, step: &Step, first: u64, speech: Speech) -> Vec<Value> {
        if self.open.iter().any(|(open, _)| *open == first) {
            return Vec::new();
        }
        let item = text_item(&self.id, step.turn, first, speech, None);
        let added = self.added(first, item);
        let part = match speech {
            Speech::Answer => json!({"type": "agent.session.turn.content_part.added",
                "content_index": 0, "part": {"type": "output_text", "text": ""}}),
            Speech::Thinking => json!({"type": "agent.session.turn.reasoning_summary_part.added",
                "summary_index": 0, "part": {"type": "summary_text", "text": ""}}),
        };
        vec![added, self.of_item(first, part)]
    }

    fn of_item(&self, first: u64, mut event: Value) -> Value {
        event["item_id"] = json!(item_id(&self.id, first));
        event["output_index"] = json!(self.output_index(first));
        event
    }

    fn delta(&mut self, step: &Step, first: u64, speech: Speech, text: &str) -> Vec<Value> {
        let mut events = self.begin_text(step, first, speech);
        let delta = match speech {
            Speech::Answer => json!({"type": "agent.session.turn.output_text.delta",
                "content_index": 0, "delta": text}),
            Speech::Thinking => json!({"type": "agent.session.turn.reasoning_summary_text.delta",
                "summary_index": 0, "delta": text}),
        };
        events.push(self.of_item(first, delta));
        events
    }

    fn end_text(&mut self, step: &Step, first: u64, speech: Speech, text: &str) -> Vec<Value> {
        let (said, part) = match speech {
            Speech::Answer => (
                json!({"type": "agent.session.turn.output_text.done", "content_index": 0, "text": text}),
                json!({"type": "agent.session.turn.content_part.done", "content_index": 0,
                    "part": {"type": "output_text", "text": text}}),
            ),
            Speech::Thinking => (
                json!({"type": "agent.session.turn.reasoning_summary_text.done", "summary_index": 0,
                    "text": text}),
                json!({"type": "agent.session.turn.reasoning_summary_part.done", "summary_index": 0,
                    "status": null, "part": {"type": "summary_text", "text": text}}),
            ),
        };
        let mut events = vec![self.of_item(first, said), self.of_item(first, part)];
        let item = text_item(&self.id, step.turn, first, speech, Some(text));
        events.push(self.done(first, item));
        events
    }
}

/// Returns the items of a session that its steps make, each in its last state.
pub(super) fn items(id: &SessionId, steps: &[Step], turns: &[SessionTurn]) -> Vec<Value> {
    let mut items: Vec<Value> = Vec::new();
    let mut put = |item: Value| match items.iter_mut().find(|old| old["id"] == item["id"]) {
        Some(old) => *old = item,
        None => items.push(item),
    };
    let mut waiting: Vec<WaitingCall> = Vec::new();
    for step in steps {
        match &step.kind {
            StepKind::TurnStarted => {
                if let Some(turn) = turns.iter().find(|turn| turn.index == step.turn) {
                    put(user_item(id, turn));
                }
            }
            StepKind::Said { first, speech, text } => {
                put(text_item(id, step.turn, *first, *speech, Some(text)));
            }
            StepKind::ToolUsed { call, .. } => put(tool_item(id, step.turn, call, None)),
            StepKind::ToolEnded { call, output, is_error } => {
                put(tool_item(id, step.turn, call, Some((output, *is_error))));
            }
            StepKind::ClientToolUsed { first, call, name, input } => {
                let (call, name, input) = (call.clone(), name.clone(), input.clone());
                let one = WaitingCall { call, name, input, turn: step.turn };
                put(call_item(id, *first, &one, "in_progress"));
                waiting.push(one);
            }
            StepKind::ClientToolEnded { first, call, content, is_error } => {
                if let Some(one) = waiting.iter().find(|one| one.call == *call) {
                    put(call_item(id, *first, one, "completed"));
                }
                put(output_item(id, step, call, content, *is_error));
            }
            _ => {}
        }
    }
    items
}

fn item_id(id: &SessionId, first: u64) -> String {
    format!("item_{id}_{first}")
}

fn user_item(id: &SessionId, turn: &SessionTurn) -> Value {
    let image =
        |path: &String| json!({"type": "input_image", "image_url": format!("file://{path}")});
    let images = turn.files.iter().filter(|path| is_image(path));
    let mut content: Vec<Value> = images.map(image).collect();
    if !turn.prompt.is_empty() || content.is_empty() {
        content.push(json!({"type": "input_text", "text": turn.prompt}));
    }
    json!({"id": format!("item_{id}_turn{}", turn.index), "type": "message", "role": "user",
        "content": content, "phase": null,
        "status": "completed", "turn_id": turn_id(id, turn.index)})
}

/// Renders a text of the agent; without the text if it has only begun.
fn text_item(id: &SessionId, turn: u32, first: u64, speech: Speech, text: Option<&str>) -> Value {
    let status = if text.is_some() { "completed" } else { "in_progress" };
    let (item, turn) = (item_id(id, first), turn_id(id, turn));
    match speech {
        Speech::Answer => {
            let content: Vec<Value> =
                text.iter().map(|text| json!({"type": "output_text", "text": text})).collect();
            json!({"id": item, "type": "message", "role": "assistant", "content": content,
                "phase": null, "status": status, "turn_id": turn})
        }
        Speech::Thinking => {
            let summary: Vec<Value> =
                text.iter().map(|text| json!({"type": "summary_text", "text": text})).collect();
            json!({"id": item, "type": "reasoning", "summary": summary, "status": status,
                "turn_id": turn})
        }
    }
}

/// Renders a call of one of the agent's own tools, with its output and whether it failed.
fn tool_item(id: &SessionId, turn: u32, call: &ToolCall, ended: Option<(&String, bool)>) -> Value {
    let status = match ended {
        None => "in_progress",
        Some((_, false)) => "completed",
        Some((_, true)) => "failed",
    };
    let output = ended.map(|(output, _)| output);
    let (item, turn) = (item_id(id, call.first), turn_id(id, turn));
    match call.input["command"].as_str() {
        Some(command) => json!({"id": item, "type": "command_execution", "command": command,
            "cwd": null, "duration_ms": null, "exit_code": null, "output": output,
            "status": status, "turn_id": turn}),
        None => {
            let error = ended.filter(|(_, is_error)| *is_error).map(|(output, _)| output);
            json!({"id": item, "type": "mcp_call", "server_label": "agent", "name": call.name,
                "arguments": call.input.to_string(), "error": error, "output": output,
                "status": status, "turn_id": turn})
        }
    }
}

fn call_item(id: &SessionId, first: u64, waiting: &WaitingCall, status: &str) -> Value {
    json!({"id": item_id(id, first), "type": "function_call", "call_id": waiting.call,
        "name": waiting.name, "arguments": waiting.input.to_string(), "status": status,
        "turn_id": turn_id(id, waiting.turn)})
}

/// Renders a content block of a function's output.
fn output_part(block: &Value) -> Value {
    let source = &block["source"];
    match (block["text"].as_str(), source["media_type"].as_str(), source["data"].as_str()) {
        (Some(text), _, _) => json!({"type": "input_text", "text": text}),
        (None, Some(media), Some(data)) if block["type"] == "image" => {
            json!({"type": "input_image", "image_url": format!("data:{media};base64,{data}")})
        }
        _ => json!({"type": "input_text", "text": block.to_string()}),
    }
}

fn output_item(id: &SessionId, step: &Step, call: &str, content: &Value, is_error: bool) -> Value {
    let shown = match content {
        Value::Array(blocks) if !is_error => Value::Array(blocks.iter().map(output_part).collect()),
        Value::String(text) => json!(text),
        other => json!(other.to_string()),
    };
    let (output, error) = if is_error { (None, Some(shown)) } else { (Some(shown), None) };
    json!({"id": item_id(id, step.seq), "type": "function_call_output", "call_id": call,
        "output": output, "error": error, "status": if is_error { "failed" } else { "completed" },
        "turn_id": turn_id(id, step.turn)})
}
