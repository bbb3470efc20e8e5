//! A response as a stream of events.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::response::sse::{Event, KeepAlive, Sse};
use serde_json::{Value, json};

use super::super::dialect::Problem;
use super::super::reply::{ClientCall, KEEP_ALIVE, Part, Reply, Wording, in_words};
use super::keeper::Keeper;
use super::object::{
    ResponseObject, function_call, message, reasoning, status_of, summary_part, text_part,
};

pub(super) fn stream(
    reply: Reply,
    response: ResponseObject,
    keeper: Keeper,
) -> Sse<impl futures_util::Stream<Item = Result<Event, Infallible>>> {
    let mut events =
        ResponseEvents { response, keeper, output: Vec::new(), open: None, sequence: 0 };
    let mut first = VecDeque::new();
    for kind in ["response.created", "response.in_progress"] {
        let event = json!({"response": events.response.value()});
        first.push_back(events.event(kind, event));
    }
    Sse::new(in_words(reply, events, first)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

/// Renders a reply as the events of a response.
struct ResponseEvents {
    response: ResponseObject,
    /// Stores the response.
    keeper: Keeper,
    /// The complete items.
    output: Vec<Value>,
    /// The message that is being written.
    open: Option<OpenMessage>,
    sequence: u64,
}

struct OpenMessage {
    id: String,
    text: String,
}

impl ResponseEvents {
    /// Returns the next event.
    fn event(&mut self, kind: &str, mut fields: Value) -> Event {
        fields["type"] = json!(kind);
        fields["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        Event::default().event(kind).data(fields.to_string())
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

    fn call(&mut self, call: &ClientCall, events: &mut VecDeque<Event>) {
        self.close("completed", events);
        let index = self.output.len();
        let id = self.response.item_id("fc", index);
        let item = function_call(&id, call, "in_progress");
        let added = json!({"output_index": index, "item": item});
        events.push_back(self.event("response.output_item.added", added));
        let arguments = call.input.to_string();
        let delta = json!({"item_id": id, "output_index": index, "delta": arguments});
        events.push_back(self.event("response.function_call_arguments.delta", delta));
        let done = json!({"item_id": id, "output_index": index, "name": call.name,
            "arguments": arguments});
        events.push_back(self.event("response.function_call_arguments.done", done));
        let item = function_call(&id, call, "completed");
        let done = json!({"output_index": index, "item": item});
        events.push_back(self.event("response.output_item.done", done));
        self.output.push(item);
    }
}

impl Wording for ResponseEvents {
    fn part(&mut self, part: Part, events: &mut VecDeque<Event>) {
        match part {
            // All texts of an answer are one message.
            Part::Begin if self.open.is_some() => self.text("\n\n".to_owned(), events),
            Part::Begin | Part::End => {}
            Part::Text(text) => self.text(text, events),
            // All texts of an answer are one message, so what the agent thinks in between is left out.
            Part::Thought(thought) if self.open.is_none() => self.thought(&thought, events),
            Part::Thought(_) => {}
            Part::Call(call) => self.call(&call, events),
            Part::Over(result) => {
                self.close(status_of(&result), events);
                let output = std::mem::take(&mut self.output);
                self.response.complete(output, &result);
                let kind = format!("response.{}", self.response.status());
                let response = json!({"response": self.response.value()});
                events.push_back(self.event(&kind, response));
            }
        }
    }

    async fn ended(&mut self) {
        self.keeper.keep(&self.response).await;
    }

    fn model(&mut self, model: &str) {
        self.response.set("model", json!(model));
    }

    fn problem(&mut self, problem: &Problem, events: &mut VecDeque<Event>) {
        self.close("incomplete", events);
        self.response.set("output", Value::Array(std::mem::take(&mut self.output)));
        self.response.fail(problem);
        let response = json!({"response": self.response.value()});
        events.push_back(self.event("response.failed", response));
    }
}
