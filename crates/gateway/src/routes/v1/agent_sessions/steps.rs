//! The steps of a session, folded from its event log: what the vendors' session APIs tell.

use std::collections::HashSet;

use hob_agents::client_tools::names_tool;
use hob_domain::Timestamp;
use hob_domain::session::{EventKind, SessionEvent, TurnState};
use serde_json::{Value, json};

use super::tool_call::{ToolCall, output, tool_call};
use crate::acp_questions::RequestedCalls;

/// A step of a session. Its identity is the number of the event that it begins with.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    /// The number of the event that completed the step.
    pub seq: u64,
    pub at: Timestamp,
    /// The turn; 0 before the first one.
    pub turn: u32,
    pub kind: StepKind,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum StepKind {
    TurnStarted,
    /// A part of a text, as it is written. `Said` follows with the whole.
    Delta {
        first: u64,
        speech: Speech,
        text: String,
    },
    Said {
        first: u64,
        speech: Speech,
        text: String,
    },
    ToolUsed {
        call: ToolCall,
        /// The permission request that waits for an answer.
        request: Option<String>,
    },
    ToolEnded {
        call: ToolCall,
        output: String,
        is_error: bool,
    },
    PermissionAnswered {
        /// The event number of the tool call.
        call: u64,
        is_allowed: bool,
        /// What the caller told the agent with a denial.
        message: Option<String>,
    },
    /// The agent called one of the caller's own tools.
    ClientToolUsed {
        first: u64,
        call: String,
        name: String,
        input: Value,
    },
    ClientToolEnded {
        first: u64,
        call: String,
        content: Value,
        is_error: bool,
    },
    /// A caller cancelled the turn.
    Interrupted,
    TurnEnded {
        state: TurnState,
    },
    Closed,
}

/// How an agent says a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speech {
    Answer,
    Thinking,
}

/// A text that is being said.
struct OpenText {
    first: u64,
    speech: Speech,
    text: String,
}

/// A permission request that was put to the caller.
struct OpenRequest {
    id: String,
    call: u64,
    /// The options that allow the call.
    allowing: Vec<String>,
}

/// Folds events into steps. Events come in order, from the beginning of a turn.
#[derive(Default)]
pub(super) struct StepFold {
    turn: u32,
    is_running: bool,
    text: Option<OpenText>,
    /// Calls that were announced and wait for their permission, their result or the next step.
    announced: Vec<ToolCall>,
    /// Calls that were told and have no result yet.
    told: Vec<ToolCall>,
    requested: RequestedCalls,
    requests: Vec<OpenRequest>,
    /// Calls of the caller's tools without a result, with the numbers of their events.
    client_calls: Vec<(String, u64)>,
    /// All calls of the caller's tools in this turn, by the agent's ids.
    client_ids: HashSet<String>,
    /// Names of the caller's tools that were called and not announced by the agent yet.
    unannounced: Vec<String>,
}

impl StepFold {
    /// Begins a turn that has no event yet.
    pub fn start_turn(&mut self, turn: u32, seq: u64, at: Timestamp) -> Option<Step> {
        if turn <= self.turn {
            return None;
        }
        *self = StepFold { turn, is_running: true, ..StepFold::default() };
        Some(Step { seq, at, turn, kind: StepKind::TurnStarted })
    }

    /// Returns the steps that an event completes.
    pub fn push(&mut self, stored: &SessionEvent) -> Vec<Step> {
        let mut kinds = Vec::new();
        if let Some(turn) = stored.event.turn
            && turn > self.turn
        {
            self.end_text(&mut kinds);
            *self = StepFold { turn, is_running: true, ..StepFold::default() };
            kinds.push(StepKind::TurnStarted);
        }
        let body = || serde_json::from_str::<Value>(&stored.event.body).unwrap_or_default();
        match &stored.event.kind {
            EventKind::Message => self.message(stored.seq, &body(), &mut kinds),
            EventKind::Permission => self.permission(stored.seq, &body(), &mut kinds),
            EventKind::Turn if self.is_running => {
                self.end_text(&mut kinds);
                self.tell_announced(&mut kinds);
                self.is_running = false;
                let state = turn_state(&body()["state"]);
                kinds.push(StepKind::TurnEnded { state });
            }
            EventKind::ToolCall => self.client_tool(stored.seq, &body(), &mut kinds),
            EventKind::Cancel => kinds.push(StepKind::Interrupted),
            kind if kind.is_close() => kinds.push(StepKind::Closed),
            _ => {}
        }
        let step = |kind| Step { seq: stored.seq, at: stored.at, turn: self.turn, kind };
        kinds.into_iter().map(step).collect()
    }

    fn message(&mut self, seq: u64, message: &Value, kinds: &mut Vec<StepKind>) {
        if message["method"] == "session/request_permission" {
            self.requested.note(message);
            return;
        }
        if message["method"] != "session/update" {
            return;
        }
        let update = &message["params"]["update"];
        let text = || update["content"]["text"].as_str().unwrap_or_default();
        match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => self.say(seq, Speech::Answer, text(), kinds),
            Some("agent_thought_chunk") => self.say(seq, Speech::Thinking, text(), kinds),
            Some("tool_call") => {
                self.end_text(kinds);
                let call = tool_call(seq, update);
                // The caller's own tools have events of their own.
                let named = |name: &String| names_tool(&call.title, name);
                if let Some(place) = self.unannounced.iter().position(named) {
                    self.unannounced.remove(place);
                    self.client_ids.insert(call.id.clone());
                }
                if !self.client_ids.contains(&call.id) {
                    self.announced.push(call);
                    self.end_call(update, kinds);
                }
            }
            Some("tool_call_update") => self.end_call(update, kinds),
            _ => {}
        }
    }

    fn say(&mut self, seq: u64, speech: Speech, text: &str, kinds: &mut Vec<StepKind>) {
        if text.is_empty() {
            return;
        }
        self.tell_announced(kinds);
        if self.text.as_ref().is_some_and(|open| open.speech != speech) {
            self.end_text(kinds);
        }
        let empty = || OpenText { first: seq, speech, text: String::new() };
        let open = self.text.get_or_insert_with(empty);
        open.text.push_str(text);
        kinds.push(StepKind::Delta { first: open.first, speech, text: text.to_owned() });
    }

    fn end_text(&mut self, kinds: &mut Vec<StepKind>) {
        if let Some(OpenText { first, speech, text }) = self.text.take() {
            kinds.push(StepKind::Said { first, speech, text });
        }
    }

    /// Tells the calls that need no permission.
    fn tell_announced(&mut self, kinds: &mut Vec<StepKind>) {
        for call in std::mem::take(&mut self.announced) {
            self.tell(call, None, kinds);
        }
    }

    fn tell(&mut self, call: ToolCall, request: Option<String>, kinds: &mut Vec<StepKind>) {
        self.told.push(call.clone());
        kinds.push(StepKind::ToolUsed { call, request });
    }

    /// Ends a call whose update says so.
    fn end_call(&mut self, update: &Value, kinds: &mut Vec<StepKind>) {
        let id = update["toolCallId"].as_str().unwrap_or_default();
        if let Some(call) = self.announced.iter_mut().find(|call| call.id == id)
            && update["rawInput"].is_object()
        {
            call.input = update["rawInput"].clone();
        }
        let is_error = match update["status"].as_str() {
            Some("completed") => false,
            Some("failed") => true,
            _ => return,
        };
        self.end_text(kinds);
        if let Some(place) = self.announced.iter().position(|call| call.id == id) {
            let call = self.announced.remove(place);
            self.tell(call, None, kinds);
        }
        if let Some(place) = self.told.iter().position(|call| call.id == id) {
            let call = self.told.remove(place);
            kinds.push(StepKind::ToolEnded { call, output: output(update), is_error });
        }
    }

    fn client_tool(&mut self, seq: u64, body: &Value, kinds: &mut Vec<StepKind>) {
        let call = body["call_id"].as_str().unwrap_or_default().to_owned();
        if body["status"] == "answered" {
            if let Some(place) = self.client_calls.iter().position(|(open, _)| *open == call) {
                let (call, first) = self.client_calls.remove(place);
                let (content, is_error) = (body["content"].clone(), body["is_error"] == true);
                kinds.push(StepKind::ClientToolEnded { first, call, content, is_error });
            }
            return;
        }
        self.end_text(kinds);
        let name = body["name"].as_str().unwrap_or_default().to_owned();
        // Only Claude Code says which of its calls this one is.
        let is_same = |announced: &ToolCall| announced.id == call;
        let is_named = |announced: &ToolCall| names_tool(&announced.title, &name);
        let announced = self.announced.iter();
        let place = announced.clone().position(is_same).or(announced.clone().position(is_named));
        match place {
            Some(place) => drop(self.client_ids.insert(self.announced.remove(place).id)),
            None => self.unannounced.push(name.clone()),
        }
        self.tell_announced(kinds);
        self.client_calls.push((call.clone(), seq));
        self.client_ids.insert(call.clone());
        let input = body["input"].clone();
        kinds.push(StepKind::ClientToolUsed { first: seq, call, name, input });
    }

    fn permission(&mut self, seq: u64, body: &Value, kinds: &mut Vec<StepKind>) {
        let request = body["request_id"].as_str().unwrap_or_default();
        if body["status"] == "answered" {
            self.requested.forget(request);
            let Some(place) = self.requests.iter().position(|open| open.id == request) else {
                return;
            };
            let OpenRequest { call, allowing, .. } = self.requests.remove(place);
            let option = body["option"].as_str();
            let is_allowed = option.is_some_and(|option| allowing.iter().any(|one| one == option));
            let message = body["message"].as_str().map(str::to_owned);
            kinds.push(StepKind::PermissionAnswered { call, is_allowed, message });
            return;
        }
        self.end_text(kinds);
        let wire = Value::Object(self.requested.take(request));
        let id = wire["toolCallId"].as_str();
        let title = body["title"].as_str().unwrap_or_default();
        let matches = |call: &ToolCall| match id {
            Some(id) => call.id == id,
            // A form belongs to no call.
            None if body["form"].is_object() => false,
            None => title.split(':').next() == Some(call.name.as_str()),
        };
        let call = match self.announced.iter().position(matches) {
            Some(place) => self.announced.remove(place),
            // The agent asks before it announces the call.
            None => {
                let mut update = wire;
                if !update["title"].is_string() {
                    update["title"] = json!(title);
                }
                tool_call(seq, &update)
            }
        };
        let options = body["options"].as_array().into_iter().flatten();
        let is_allowing =
            |option: &&Value| option["kind"].as_str().is_some_and(|kind| kind.starts_with("allow"));
        let allowing = options
            .filter(is_allowing)
            .filter_map(|option| option["option"].as_str().map(str::to_owned))
            .collect();
        self.requests.push(OpenRequest { id: request.to_owned(), call: call.first, allowing });
        self.tell(call, Some(request.to_owned()), kinds);
    }
}

fn turn_state(word: &Value) -> TurnState {
    let word = word.as_str().unwrap_or_default();
    let matches = |state: &&TurnState| json!(state) == word;
    TurnState::ALL.iter().find(matches).copied().unwrap_or(TurnState::Failed)
}

#[cfg(test)]
mod tests {
    use hob_domain::session::NewEvent;

    use super::*;

    fn event(seq: u64, kind: EventKind, turn: u32, body: Value) -> SessionEvent {
        let event = NewEvent { kind, turn: Some(turn), body: body.to_string() };
        SessionEvent { seq, at: Timestamp::UNIX_EPOCH, event }
    }

    fn update(seq: u64, update: Value) -> SessionEvent {
        let body = json!({"method": "session/update", "params": {"update": update}});
        event(seq, EventKind::Message, 1, body)
    }

    fn chunk(seq: u64, text: &str) -> SessionEvent {
        let content = json!({"type": "text", "text": text});
        update(seq, json!({"sessionUpdate": "agent_message_chunk", "content": content}))
    }

    /// Describes steps in a few words each.
    fn told(events: &[SessionEvent]) -> Vec<String> {
        let mut fold = StepFold::default();
        let steps = events.iter().flat_map(|event| fold.push(event));
        let word = |step: Step| match step.kind {
            StepKind::TurnStarted => format!("start {}", step.turn),
            StepKind::Delta { .. } => "delta".to_owned(),
            StepKind::Said { first, text, .. } => format!("said {first} {text}"),
            StepKind::ToolUsed { call, request } => {
                format!("use {} {} {}", call.first, call.name, request.unwrap_or_default())
            }
            StepKind::ToolEnded { call, output, is_error } => {
                format!("end {} {output} {is_error}", call.first)
            }
            StepKind::PermissionAnswered { call, is_allowed, .. } => {
                format!("answered {call} {is_allowed}")
            }
            StepKind::ClientToolUsed { call, name, .. } => format!("client {call} {name}"),
            StepKind::ClientToolEnded { call, content, .. } => format!("result {call} {content}"),
            StepKind::Interrupted => "interrupted".to_owned(),
            StepKind::TurnEnded { state } => format!("over {state:?}"),
            StepKind::Closed => "closed".to_owned(),
        };
        steps.map(word).filter(|word| word != "delta").collect()
    }

    #[test]
    fn chunks_become_one_message() {
        let end = json!({"turn_index": 1, "state": "finished"});
        let events = [
            event(1, EventKind::Create, 0, json!({})),
            chunk(2, "a"),
            chunk(3, "b"),
            event(4, EventKind::Turn, 1, end),
            event(5, EventKind::Close, 0, json!({})),
        ];
        assert_eq!(told(&events), ["start 1", "said 2 ab", "over Finished", "closed"]);
    }

    #[test]
    fn call_without_permission_is_told_with_its_result() {
        let done = json!([{"type": "content", "content": {"type": "text", "text": "ok"}}]);
        let events = [
            update(1, json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Bash"})),
            update(
                2,
                json!({"sessionUpdate": "tool_call_update", "toolCallId": "t",
                    "status": "completed", "content": done}),
            ),
            chunk(3, "done"),
        ];
        assert_eq!(told(&events), ["start 1", "use 1 Bash ", "end 1 ok false"]);
    }

    #[test]
    fn permission_request_names_its_call() {
        let wire = json!({"method": "session/request_permission", "id": 7,
            "params": {"toolCall": {"toolCallId": "b"}}});
        let asked = json!({"request_id": "7", "status": "asked", "title": "Bash: ls",
            "options": [{"option": "yes", "kind": "allow_once"}]});
        let answered = json!({"request_id": "7", "status": "answered", "option": "yes"});
        let call = |seq, id: &str| {
            update(seq, json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": "Bash"}))
        };
        let events = [
            call(1, "a"),
            call(2, "b"),
            event(3, EventKind::Message, 1, wire),
            event(4, EventKind::Permission, 1, asked),
            event(5, EventKind::Permission, 1, answered),
            event(6, EventKind::Turn, 1, json!({"state": "died"})),
        ];
        let expect = ["start 1", "use 2 Bash 7", "answered 2 true", "use 1 Bash ", "over Died"];
        assert_eq!(told(&events), expect);
    }

    #[test]
    fn callers_tool_is_told_once() {
        let asked = json!({"call_id": "c", "status": "asked", "name": "add", "input": {}});
        let answered = json!({"call_id": "c", "status": "answered", "content": "3"});
        let own =
            json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "mcp__app__add"});
        let events = [
            update(1, own),
            event(2, EventKind::ToolCall, 1, asked),
            event(3, EventKind::ToolCall, 1, answered),
        ];
        assert_eq!(told(&events), ["start 1", "client c add", "result c \"3\""]);
    }

    #[test]
    fn permission_before_the_announcement_is_a_call_of_its_own() {
        let asked = json!({"request_id": "p1", "status": "asked", "title": "Write: a.txt"});
        let refused = json!({"request_id": "p1", "status": "answered", "option": "reject_once"});
        let events = [
            event(1, EventKind::Permission, 1, asked),
            event(2, EventKind::Permission, 1, refused),
        ];
        assert_eq!(told(&events), ["start 1", "use 1 Write p1", "answered 1 false"]);
    }
}
