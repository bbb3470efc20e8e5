//! Responses and their items, in OpenAI's shape.

use hob_agents::claude::TurnResult;
use hob_domain::Timestamp;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::super::dialect::Problem;
use super::super::reply::{Said, Whole};

type DefaultValue = fn() -> Value;

/// What is between two texts of an answer.
pub(super) const TEXT_SEPARATOR: &str = "\n\n";

/// Fields of the request that the response repeats, each with its value where the request has none.
const REPEATED: [(&str, DefaultValue); 13] = [
    ("instructions", || Value::Null),
    ("max_output_tokens", || Value::Null),
    ("max_tool_calls", || Value::Null),
    ("metadata", || json!({})),
    ("parallel_tool_calls", || json!(true)),
    ("previous_response_id", || Value::Null),
    ("reasoning", || json!({"effort": null, "summary": null})),
    ("temperature", || json!(1.0)),
    ("text", || json!({"format": {"type": "text"}})),
    ("tool_choice", || json!("auto")),
    ("tools", || json!([])),
    ("top_p", || json!(1.0)),
    ("truncation", || json!("disabled")),
];

/// A response that grows.
#[derive(Debug, Clone)]
pub(super) struct ResponseObject {
    fields: Map<String, Value>,
}

impl ResponseObject {
    /// A response to a request that has just begun.
    pub fn new(request: &Value, model: &str) -> ResponseObject {
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
        set("id", json!(format!("resp_{}", Uuid::new_v4().simple())));
        set("object", json!("response"));
        set("created_at", json!(Timestamp::now().as_second()));
        set("status", json!("in_progress"));
        set("background", json!(false));
        set("error", Value::Null);
        set("incomplete_details", Value::Null);
        set("model", json!(model));
        set("output", json!([]));
        for (name, default) in REPEATED {
            let default = default();
            let given = request.get(name).filter(|value| is_alike(value, &default));
            set(name, given.cloned().unwrap_or(default));
        }
        set("service_tier", json!("default"));
        set("store", json!(request["store"] != false));
        set("usage", Value::Null);
        ResponseObject { fields }
    }

    /// A stored response.
    pub fn stored(body: Value) -> ResponseObject {
        ResponseObject { fields: body.as_object().cloned().unwrap_or_default() }
    }

    pub fn id(&self) -> &str {
        self.fields["id"].as_str().unwrap_or_default()
    }

    /// Returns the identifier of an item: it begins with that of the response.
    pub fn item_id(&self, prefix: &str, index: usize) -> String {
        let digits = self.id().strip_prefix("resp_").unwrap_or_default();
        format!("{prefix}_{digits}{index:04x}")
    }

    pub fn set(&mut self, name: &str, value: Value) {
        self.fields.insert(name.to_owned(), value);
    }

    pub fn value(&self) -> Value {
        Value::Object(self.fields.clone())
    }

    /// Ends the response with a whole answer.
    pub fn complete_with(&mut self, answer: Whole) {
        let Whole { said, calls, model, result } = answer;
        if let Some(model) = model {
            self.set("model", json!(model));
        }
        let mut output = Vec::new();
        let mut open: Option<String> = None;
        for block in said {
            match block {
                Said::Text(text) => {
                    let before = open.map_or_else(
                        || text_joint(&output).to_owned(),
                        |before| before + TEXT_SEPARATOR,
                    );
                    open = Some(before + &text);
                }
                Said::Thought(thought) => {
                    if let Some(text) = open.take() {
                        let id = self.item_id("msg", output.len());
                        output.push(message(&id, &text, "completed"));
                    }
                    output.push(reasoning(
                        &self.item_id("rs", output.len()),
                        &thought,
                        "completed",
                    ));
                }
            }
        }
        if let Some(text) = open {
            let id = self.item_id("msg", output.len());
            output.push(message(&id, &text, status_of(&result)));
        }
        for call in &calls {
            let (id, arguments) = (self.item_id("fc", output.len()), call.input.to_string());
            output.push(function_call(&id, &call.id, &call.name, &arguments, "completed"));
        }
        self.complete(output, &result);
    }

    /// Ends the response with its output.
    pub fn complete(&mut self, output: Vec<Value>, result: &TurnResult) {
        self.set("status", json!(status_of(result)));
        if let Some(reason) = incomplete_reason(result) {
            self.set("incomplete_details", json!({"reason": reason}));
        }
        self.set("completed_at", json!(Timestamp::now().as_second()));
        self.set("output", Value::Array(output));
        self.set("usage", usage(result));
    }

    /// Ends the response with an error.
    pub fn fail(&mut self, problem: &Problem) {
        let error = json!({"code": problem.response_code(), "message": problem.message()});
        self.set("status", json!("failed"));
        self.set("error", error);
    }

    pub fn status(&self) -> &str {
        self.fields["status"].as_str().unwrap_or_default()
    }
}

/// Returns whether a value can stand in place of a default: `null` may be any simple value.
fn is_alike(value: &Value, default: &Value) -> bool {
    match default {
        Value::Null => value.is_string() || value.is_number(),
        Value::Object(_) => value.is_object(),
        Value::Array(_) => value.is_array(),
        Value::Bool(_) => value.is_boolean(),
        Value::Number(_) => value.is_number(),
        // `tool_choice` is a word or an object.
        Value::String(_) => value.is_string() || value.is_object(),
    }
}

/// Returns what a new message begins with. Clients put the texts of all messages together as they are, so a message that
/// follows another one and a block of thinking begins with the separator between two texts.
pub(super) fn text_joint(output: &[Value]) -> &'static str {
    let is_of_type = |item: &Value, kind: &str| item["type"] == kind;
    let is_after_thinking = output.last().is_some_and(|item| is_of_type(item, "reasoning"));
    let has_message = output.iter().any(|item| is_of_type(item, "message"));
    if is_after_thinking && has_message { TEXT_SEPARATOR } else { "" }
}

/// A message of the agent.
pub(super) fn message(id: &str, text: &str, status: &str) -> Value {
    let content = match status {
        "in_progress" => json!([]),
        _ => json!([text_part(text)]),
    };
    json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content})
}

/// A block of thinking.
pub(super) fn reasoning(id: &str, thought: &str, status: &str) -> Value {
    let summary = match status {
        "in_progress" => json!([]),
        _ => json!([summary_part(thought)]),
    };
    json!({"id": id, "type": "reasoning", "status": status, "summary": summary})
}

pub(super) fn summary_part(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}

pub(super) fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// A call of one of the client's functions. `id` is the item's, `call` the call's; the arguments are JSON.
pub(super) fn function_call(
    id: &str,
    call: &str,
    name: &str,
    arguments: &str,
    status: &str,
) -> Value {
    json!({"id": id, "type": "function_call", "status": status, "call_id": call,
        "name": name, "arguments": arguments})
}

/// Returns the status of a response with this result, and of its message.
pub(super) fn status_of(result: &TurnResult) -> &'static str {
    if incomplete_reason(result).is_some() { "incomplete" } else { "completed" }
}

fn incomplete_reason(result: &TurnResult) -> Option<&'static str> {
    match result.stop_reason.as_str() {
        "max_tokens" => Some("max_output_tokens"),
        "refusal" => Some("content_filter"),
        _ => None,
    }
}

fn usage(result: &TurnResult) -> Value {
    let usage = &result.usage;
    let input = usage.all_input_tokens();
    json!({"input_tokens": input,
        "input_tokens_details": {"cached_tokens": usage.cache_read_input_tokens,
            "cache_write_tokens": usage.cache_creation_input_tokens},
        "output_tokens": usage.output_tokens, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input.saturating_add(usage.output_tokens)})
}
