//! A response as a stream of events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::{Event, KeepAlive, Sse};
use serde_json::{Value, json};

use super::super::dialect::Problem;
use super::super::parts::Part;
use super::super::reply::{KEEP_ALIVE, Reply, Wording, in_words, next_words};
use super::keeper::Keeper;
use super::object::{
    ResponseObject, TEXT_SEPARATOR, function_call, message, reasoning, status_of, summary_part,
    text_joint, text_part,
};
use crate::event_log::EventLog;

/// Streams a response while it is made.
pub(super) fn stream(
    reply: Reply,
    response: ResponseObject,
    keeper: Keeper,
) -> Sse<impl futures_util::Stream<Item = Result<Event, Infallible>>> {
    let mut events = ResponseEvents::new(response, Some(keeper), None);
    let first = ["response.created", "response.in_progress"].map(|kind| events.whole(kind));
    let events = in_words(reply, events, first.into());
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

/// Streams the events of a log from a number on.
pub(super) fn follow(
    log: Arc<EventLog>,
    first: usize,
) -> Sse<impl futures_util::Stream<Item = Result<Event, Infallible>>> {
    Sse::new(log.follow(first)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

/// Adds an event with the whole response to its log.
pub(super) fn log_whole(response: &ResponseObject, log: &Arc<EventLog>, kind: &str) {
    drop(ResponseEvents::new(response.clone(), None, Some(log.clone())).whole(kind));
}

/// Makes a response and adds its events to a log, except for the last one.
pub(super) async fn log_reply(
    mut reply: Reply,
    response: ResponseObject,
    log: Arc<EventLog>,
) -> ResponseObject {
    let mut events = ResponseEvents::new(response, None, Some(log));
    drop(events.whole("response.in_progress"));
    let mut rendered = VecDeque::new();
    while next_words(&mut reply, &mut events, &mut rendered).await.is_some() {
        rendered.clear();
    }
    events.response
}

/// Returns the events of a stored response that has ended. Each text is one piece.
pub(super) fn log_of_stored(body: Value) -> Arc<EventLog> {
    let log = Arc::new(EventLog::default());
    let whole = ResponseObject::stored(body.clone());
    let mut begun = whole.clone();
    for (name, value) in [
        ("status", json!("in_progress")),
        ("output", json!([])),
        ("error", Value::Null),
        ("incomplete_details", Value::Null),
        ("usage", Value::Null),
    ] {
        begun.set(name, value);
    }
    let mut events = ResponseEvents::new(begun, None, Some(log.clone()));
    drop(["response.created", "response.in_progress"].map(|kind| events.whole(kind)));
    let mut rendered = VecDeque::new();
    for item in body["output"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match item["type"].as_str() {
            Some("message") => {
                events.text(text(&item["content"][0]["text"]), &mut rendered);
                events.close(item["status"].as_str().unwrap_or("completed"), &mut rendered);
            }
            Some("reasoning") => events.thought(&text(&item["summary"][0]["text"]), &mut rendered),
            Some("function_call") => {
                events.begin_call(text(&item["call_id"]), text(&item["name"]), &mut rendered);
                events.call_piece(&text(&item["arguments"]), &mut rendered);
                events.end_call(&mut rendered);
            }
            _ => {}
        }
    }
    let kind = last_event(whole.status());
    events.response = whole;
    drop(events.whole(kind));
    log.end();
    log
}

/// Returns the kind of event that ends a stream. There is none for a cancelled response, so that its stream ends with
/// `response.failed`.
pub(super) fn last_event(status: &str) -> &'static str {
    match status {
        "completed" => "response.completed",
        "incomplete" => "response.incomplete",
        _ => "response.failed",
    }
}

/// Renders a reply as the events of a response.
struct ResponseEvents {
    response: ResponseObject,
    /// Stores the response.
    keeper: Option<Keeper>,
    /// Takes the events, too, except for the last one: the response is stored first.
    log: Option<Arc<EventLog>>,
    /// The complete items.
    output: Vec<Value>,
    /// The message that is being written.
    open: Option<OpenMessage>,
    /// The call that is being written.
    open_call: Option<OpenFunctionCall>,
    sequence: usize,
}

struct OpenMessage {
    id: String,
    text: String,
}

struct OpenFunctionCall {
    /// The id of the item.
    id: String,
    /// The id of the call.
    call: String,
    name: String,
    arguments: String,
}

impl ResponseEvents {
    /// Renders the events of a response that go on after those of its log.
    fn new(
        response: ResponseObject,
        keeper: Option<Keeper>,
        log: Option<Arc<EventLog>>,
    ) -> ResponseEvents {
        let sequence = log.as_ref().map_or(0, |log| log.len());
        let output = Vec::new();
        ResponseEvents { response, keeper, log, output, open: None, open_call: None, sequence }
    }

    /// Returns the data of the next event.
    fn data(&mut self, kind: &str, mut fields: Value) -> String {
        fields["type"] = json!(kind);
        fields["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        fields.to_string()
    }

    /// Returns the next event.
    fn event(&mut self, kind: &str, fields: Value) -> Event {
        let data = self.data(kind, fields);
        if let Some(log) = &self.log {
            log.push(kind, &data);
        }
        Event::default().event(kind).data(data)
    }

    /// Returns the last event, which has the whole response.
    fn last(&mut self) -> Event {
        let kind = last_event(self.response.status());
        let data = self.data(kind, json!({"response": self.response.value()}));
        Event::default().event(kind).data(data)
    }

    /// Returns an event with the response as it is now.
    fn whole(&mut self, kind: &str) -> Event {
        let fields = json!({"response": self.response.value()});
        self.event(kind, fields)
    }

    /// Adds a text to the message, which begins if there is none.
    fn text(&mut self, text: String, events: &mut VecDeque<Event>) {
        let index = self.output.len();
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                let id = self.response.item_id("msg", index);
                let item = message(&id, "", "in_progress");
                let added = json!({"output_index": index, "item": item});
                events.push_back(self.event("response.output_item.added", added));
                let part = json!({"item_id": id, "output_index": index, "content_index": 0,
                    "part": text_part("")});
                events.push_back(self.event("response.content_part.added", part));
                OpenMessage { id, text: String::new() }
            }
        };
        open.text.push_str(&text);
        let delta = json!({"item_id": open.id, "output_index": index, "content_index": 0,
            "delta": text, "logprobs": []});
        events.push_back(self.event("response.output_text.delta", delta));
        self.open = Some(open);
    }

    /// Ends the message, if there is one.
    fn close(&mut self, status: &str, events: &mut VecDeque<Event>) {
        let Some(OpenMessage { id, text }) = self.open.take() else { return };
        let index = self.output.len();
        let done = json!({"item_id": id, "output_index": index, "content_index": 0, "text": text,
            "logprobs": []});
        events.push_back(self.event("response.output_text.done", done));
        let part = json!({"item_id": id, "output_index": index, "content_index": 0,
            "part": text_part(&text)});
        events.push_back(self.event("response.content_part.done", part));
        let item = message(&id, &text, status);
        let done = json!({"output_index": index, "item": item});
        events.push_back(self.event("response.output_item.done", done));
        self.output.push(item);
    }

    fn thought(&mut self, thought: &str, events: &mut VecDeque<Event>) {
        let index = self.output.len();
        let id = self.response.item_id("rs", index);
        let place = json!({"item_id": id, "output_index": index, "summary_index": 0});
        let at = |name: &str, value: Value| {
            let mut fields = place.clone();
            fields[name] = value;
            fields
        };
        let item = reasoning(&id, thought, "completed");
        let begun = json!({"output_index": index, "item": reasoning(&id, "", "in_progress")});
        for (kind, fields) in [
            ("response.output_item.added", begun),
            ("response.reasoning_summary_part.added", at("part", summary_part(""))),
            ("response.reasoning_summary_text.delta", at("delta", json!(thought))),
            ("response.reasoning_summary_text.done", at("text", json!(thought))),
            ("response.reasoning_summary_part.done", at("part", summary_part(thought))),
            ("response.output_item.done", json!({"output_index": index, "item": item})),
        ] {
            events.push_back(self.event(kind, fields));
        }
        self.output.push(item);
    }

    fn begin_call(&mut self, call: String, name: String, events: &mut VecDeque<Event>) {
        self.close("completed", events);
        let index = self.output.len();
        let id = self.response.item_id("fc", index);
        let item = function_call(&id, &call, &name, "", "in_progress");
        let added = json!({"output_index": index, "item": item});
        events.push_back(self.event("response.output_item.added", added));
        self.open_call = Some(OpenFunctionCall { id, call, name, arguments: String::new() });
    }

    fn call_piece(&mut self, json: &str, events: &mut VecDeque<Event>) {
        let Some(open) = &mut self.open_call else { return };
        open.arguments.push_str(json);
        let delta = json!({"item_id": open.id, "output_index": self.output.len(), "delta": json});
        events.push_back(self.event("response.function_call_arguments.delta", delta));
    }

    fn end_call(&mut self, events: &mut VecDeque<Event>) {
        let Some(OpenFunctionCall { id, call, name, arguments }) = self.open_call.take() else {
            return;
        };
        let index = self.output.len();
        let done = json!({"item_id": id, "output_index": index, "name": name,
            "arguments": arguments});
        events.push_back(self.event("response.function_call_arguments.done", done));
        let item = function_call(&id, &call, &name, &arguments, "completed");
        let done = json!({"output_index": index, "item": item});
        events.push_back(self.event("response.output_item.done", done));
        self.output.push(item);
    }
}

impl Wording for ResponseEvents {
    fn part(&mut self, part: Part, events: &mut VecDeque<Event>) {
        match part {
            // Texts are one message until the agent thinks again.
            Part::Begin => {
                let joint = match &self.open {
                    Some(_) => TEXT_SEPARATOR,
                    None => text_joint(&self.output),
                };
                if !joint.is_empty() {
                    self.text(joint.to_owned(), events);
                }
            }
            Part::End => {}
            Part::Text(text) => self.text(text, events),
            Part::Thought(thought) => {
                self.close("completed", events);
                self.thought(&thought, events);
            }
            Part::CallBegin { id, name } => self.begin_call(id, name, events),
            Part::CallPiece(json) => self.call_piece(&json, events),
            Part::CallEnd => self.end_call(events),
            Part::Call(call) => {
                for part in call.in_parts() {
                    self.part(part, events);
                }
            }
            Part::Over(result) => {
                self.close(status_of(&result), events);
                let output = std::mem::take(&mut self.output);
                self.response.complete(output, &result);
                events.push_back(self.last());
            }
        }
    }

    async fn ended(&mut self) {
        if let Some(keeper) = &self.keeper {
            keeper.keep(&self.response).await;
        }
    }

    fn model(&mut self, model: &str) {
        self.response.set("model", json!(model));
    }

    fn problem(&mut self, problem: &Problem, events: &mut VecDeque<Event>) {
        self.close("incomplete", events);
        self.response.set("output", Value::Array(std::mem::take(&mut self.output)));
        self.response.fail(problem);
        events.push_back(self.last());
    }
}
