//! Claude Code's stream-json: the records it writes, as events, and the messages it reads.
//!
//! The program says nothing before the first prompt, so it is ready as soon as it runs. With partial
//! messages a text arrives as deltas first and then as a whole block. A turn ends with a `result`.

use hob_domain::Block;
use serde_json::{Value, json};

use super::event::Usage;

/// The program's name of the error that the model has used up its output tokens, also after it was asked to go on.
const OUTPUT_LIMIT: &str = "max_output_tokens";

/// A record of the program that matters to a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    /// A part of a block that follows whole.
    Delta {
        kind: DeltaKind,
        text: String,
    },
    /// A tool call begins, which follows whole.
    CallBegin {
        id: String,
        name: String,
    },
    /// A part of the arguments of the call that began last, as JSON.
    CallPiece {
        json: String,
    },
    /// Blocks of an assistant's message. Records of one message share its id.
    Assistant(StreamMessage),
    /// The message is whole.
    MessageEnd,
    /// The results of tool calls.
    ToolResults(Vec<Block>),
    PermissionRequest(ToolPermissionRequest),
    /// The end of the turn.
    Result(StreamResult),
}

/// The kind of block that a delta is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaKind {
    Text,
    Thinking,
}

/// A part of a message of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamMessage {
    pub id: String,
    pub model: String,
    pub stop_reason: Option<String>,
    pub blocks: Vec<Block>,
    pub usage: Usage,
}

/// A `can_use_tool` request, sent if `--permission-prompt-tool stdio` is given.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolPermissionRequest {
    pub id: String,
    pub tool: String,
    pub tool_use_id: Value,
    pub input: Value,
}

/// The `result` record. Fields that the record lacks are `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamResult {
    pub is_error: bool,
    pub subtype: Option<String>,
    pub stop_reason: Option<String>,
    /// The error in words, if the record has any.
    pub error: Option<String>,
    pub api_error_status: Option<u16>,
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub cache_creation_input_tokens: Option<u64>,
    pub cache_read_input_tokens: Option<u64>,
    /// The cost of the whole process so far.
    pub total_cost_usd: Option<f64>,
}

/// Parses a record. Returns `None` for records that do not matter to a turn, and for the messages of
/// sub-agents: those speak to the agent, not to its caller.
pub fn parse(record: &Value) -> Option<StreamEvent> {
    let of_sub_agent = !record["parent_tool_use_id"].is_null();
    match record["type"].as_str()? {
        "stream_event" if !of_sub_agent => delta(record),
        // These are the program's words, not the model's. The result says it, too.
        "assistant" if record["error"] == OUTPUT_LIMIT => None,
        "assistant" if !of_sub_agent => {
            let message = &record["message"];
            Some(StreamEvent::Assistant(StreamMessage {
                id: text(&message["id"]).unwrap_or_default(),
                model: text(&message["model"]).unwrap_or_default(),
                stop_reason: text(&message["stop_reason"]),
                blocks: blocks(message).collect(),
                usage: usage(&message["usage"]),
            }))
        }
        "user" if !of_sub_agent => {
            let is_result = |block: &Block| matches!(block, Block::ToolResult { .. });
            Some(StreamEvent::ToolResults(blocks(&record["message"]).filter(is_result).collect()))
        }
        "control_request" if record["request"]["subtype"] == "can_use_tool" => {
            let request = &record["request"];
            Some(StreamEvent::PermissionRequest(ToolPermissionRequest {
                id: text(&record["request_id"]).unwrap_or_default(),
                tool: text(&request["tool_name"]).unwrap_or_default(),
                tool_use_id: request["tool_use_id"].clone(),
                input: request["input"].clone(),
            }))
        }
        "result" => Some(StreamEvent::Result(result(record))),
        _ => None,
    }
}

/// Returns whether a record belongs to a turn, the messages of sub-agents included.
pub fn belongs_to_turn(record: &Value) -> bool {
    matches!(record["type"].as_str(), Some("assistant" | "user" | "stream_event" | "result"))
}

/// Returns a prompt.
pub fn user_message(text: &str) -> Value {
    json!({"type": "user", "message": {"role": "user", "content": text}})
}

/// Returns a `result` that ends the turn with an error, for a program that did not write its own.
pub fn failed_result(error: &str) -> Value {
    json!({"type": "result", "subtype": "error_during_execution", "is_error": true, "result": error})
}

/// Returns a request to interrupt the turn. The turn still ends with a `result`.
pub fn interrupt_request(id: &str) -> Value {
    control_request(id, &json!({"subtype": "interrupt"}))
}

fn control_request(id: &str, request: &Value) -> Value {
    json!({"type": "control_request", "request_id": id, "request": request})
}

/// Returns a request for what the program offers. It is answered before the first prompt.
pub fn initialize_request(id: &str) -> Value {
    control_request(id, &json!({"subtype": "initialize"}))
}

/// Returns a request to change the permission mode.
pub fn mode_request(id: &str, mode: &str) -> Value {
    control_request(id, &json!({"subtype": "set_permission_mode", "mode": mode}))
}

/// Returns a request to change the model.
pub fn model_request(id: &str, model: &str) -> Value {
    control_request(id, &json!({"subtype": "set_model", "model": model}))
}

/// The program's answer to a control request.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlAnswer {
    /// The id of the request.
    pub id: String,
    /// The answer, or the error in words.
    pub result: Result<Value, String>,
}

/// Reads a record that answers a control request.
pub fn control_answer(record: &Value) -> Option<ControlAnswer> {
    let response = &record["response"];
    if record["type"] != "control_response" {
        return None;
    }
    let result = match response["subtype"].as_str() {
        Some("success") => Ok(response["response"].clone()),
        _ => Err(text(&response["error"]).unwrap_or_else(|| "the agent refused".to_owned())),
    };
    Some(ControlAnswer { id: text(&response["request_id"])?, result })
}

/// Returns an answer that allows a tool call with this input.
pub fn allow_response(request: &str, input: &Value) -> Value {
    control_response(request, &json!({"behavior": "allow", "updatedInput": input}))
}

/// Returns an answer that denies a tool call. The model reads the message.
pub fn deny_response(request: &str, message: &str) -> Value {
    control_response(request, &json!({"behavior": "deny", "message": message}))
}

fn control_response(request: &str, response: &Value) -> Value {
    json!({"type": "control_response",
        "response": {"subtype": "success", "request_id": request, "response": response}})
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn blocks(message: &Value) -> impl Iterator<Item = Block> {
    message["content"].as_array().into_iter().flatten().filter_map(Block::parse)
}

fn usage(value: &Value) -> Usage {
    let tokens = |name: &str| value[name].as_u64().unwrap_or_default();
    Usage {
        input_tokens: tokens("input_tokens"),
        output_tokens: tokens("output_tokens"),
        cache_creation_input_tokens: tokens("cache_creation_input_tokens"),
        cache_read_input_tokens: tokens("cache_read_input_tokens"),
    }
}

fn delta(record: &Value) -> Option<StreamEvent> {
    let event = &record["event"];
    let block = &event["content_block"];
    match event["type"].as_str() {
        Some("message_stop") => return Some(StreamEvent::MessageEnd),
        Some("content_block_start") if block["type"] == "tool_use" => {
            let (id, name) = (text(&block["id"])?, text(&block["name"])?);
            return Some(StreamEvent::CallBegin { id, name });
        }
        _ => {}
    }
    let delta = &event["delta"];
    let (kind, part) = match delta["type"].as_str()? {
        "text_delta" => (DeltaKind::Text, &delta["text"]),
        "thinking_delta" => (DeltaKind::Thinking, &delta["thinking"]),
        "input_json_delta" => {
            return Some(StreamEvent::CallPiece { json: text(&delta["partial_json"])? });
        }
        _ => return None,
    };
    Some(StreamEvent::Delta { kind, text: text(part)? })
}

fn result(record: &Value) -> StreamResult {
    let tokens = |name: &str| record["usage"][name].as_u64();
    let message = record["result"].as_str().filter(|text| !text.is_empty());
    let error = message.or(record["errors"][0].as_str());
    let status = record["api_error_status"].as_u64();
    // What the model wrote up to the limit is an answer.
    let is_cut = record["api_error"] == OUTPUT_LIMIT;
    let stop_reason = text(&record["stop_reason"]);
    StreamResult {
        is_error: record["is_error"] == true && !is_cut,
        subtype: text(&record["subtype"]),
        stop_reason: if is_cut { Some("max_tokens".to_owned()) } else { stop_reason },
        error: error.filter(|_| !is_cut).map(str::to_owned),
        api_error_status: status.and_then(|status| u16::try_from(status).ok()),
        input_tokens: tokens("input_tokens"),
        output_tokens: tokens("output_tokens"),
        cache_creation_input_tokens: tokens("cache_creation_input_tokens"),
        cache_read_input_tokens: tokens("cache_read_input_tokens"),
        total_cost_usd: record["total_cost_usd"].as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_sub_agents_are_ignored() {
        for kind in ["stream_event", "assistant", "user"] {
            let record = json!({"type": kind, "parent_tool_use_id": "toolu_1",
                "event": {"delta": {"type": "text_delta", "text": "x"}},
                "message": {"content": [{"type": "text", "text": "x"}]}});
            assert_eq!(parse(&record), None);
            assert!(belongs_to_turn(&record));
        }
    }

    #[test]
    fn deltas_carry_text_and_thoughts() {
        let delta =
            |delta: Value| parse(&json!({"type": "stream_event", "event": {"delta": delta}}));
        let expect = |kind, text: &str| Some(StreamEvent::Delta { kind, text: text.to_owned() });
        assert_eq!(
            delta(json!({"type": "text_delta", "text": "he"})),
            expect(DeltaKind::Text, "he")
        );
        assert_eq!(
            delta(json!({"type": "thinking_delta", "thinking": "hm"})),
            expect(DeltaKind::Thinking, "hm")
        );
        assert_eq!(delta(json!({"type": "signature_delta", "signature": "x"})), None);
    }

    #[test]
    fn calls_come_in_pieces() {
        let event = |event: Value| parse(&json!({"type": "stream_event", "event": event}));
        let begin = |block: Value| {
            event(json!({"type": "content_block_start", "index": 1, "content_block": block}))
        };
        let call = json!({"type": "tool_use", "id": "t", "name": "Bash", "input": {}});
        let (id, name) = ("t".to_owned(), "Bash".to_owned());
        assert_eq!(begin(call), Some(StreamEvent::CallBegin { id, name }));
        assert_eq!(begin(json!({"type": "text", "text": ""})), None);
        let delta = json!({"type": "input_json_delta", "partial_json": "{\"a"});
        let piece = event(json!({"type": "content_block_delta", "index": 1, "delta": delta}));
        assert_eq!(piece, Some(StreamEvent::CallPiece { json: "{\"a".to_owned() }));
    }

    #[test]
    fn user_records_yield_tool_results_only() {
        let record = json!({"type": "user", "message": {"content": [
            {"type": "tool_result", "tool_use_id": "t", "content": "out"},
            {"type": "text", "text": "x"}]}});
        let Some(StreamEvent::ToolResults(blocks)) = parse(&record) else { panic!() };
        assert!(matches!(&blocks[..], [Block::ToolResult { .. }]));
    }

    #[test]
    fn answer_that_reaches_the_output_limit_is_no_error() {
        let words = "API Error: Claude's response exceeded the 128000 output token maximum.";
        let said = json!({"type": "assistant", "error": "max_output_tokens",
            "message": {"model": "<synthetic>", "stop_reason": "stop_sequence",
                "content": [{"type": "text", "text": words}]}});
        assert_eq!(parse(&said), None);
        let record = json!({"type": "result", "subtype": "success", "is_error": true,
            "api_error_status": null, "api_error": "max_output_tokens", "result": words,
            "stop_reason": "stop_sequence", "usage": {"output_tokens": 20}});
        let Some(StreamEvent::Result(result)) = parse(&record) else { panic!() };
        assert_eq!((result.is_error, result.error), (false, None));
        assert_eq!(result.stop_reason.as_deref(), Some("max_tokens"));
        assert_eq!(result.output_tokens, Some(20));
    }

    #[test]
    fn missing_fields_of_a_result_are_none() {
        let record = json!({"type": "result", "is_error": true, "result": "", "errors": ["why"],
            "usage": {"output_tokens": 7}});
        let Some(StreamEvent::Result(result)) = parse(&record) else { panic!() };
        assert_eq!(result.error.as_deref(), Some("why"));
        assert_eq!((result.input_tokens, result.output_tokens), (None, Some(7)));
        assert_eq!((result.total_cost_usd, result.subtype), (None, None));
    }
}
