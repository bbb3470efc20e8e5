//! Streams of answers that call the client's tools: the arguments come as the agent writes them.

use hob_testkit::server::Answer;
use serde_json::{Value, json};

use crate::api::*;

const CLAUDE_STREAM: &str = "[apps.tests]\ndriver = \"claude-stream\"\n";

/// The prompt for which the scripted agent calls the tool twice in one message.
const PROMPT: &str = r#"[[say Adding.]] [[tool mcp__app__add {"a": 7, "why": "because it is odd"}]] [[also mcp__app__add {"a": 8}]] [[say Last: {result}]]"#;

fn first_input() -> Value {
    json!({"a": 7, "why": "because it is odd"})
}

fn body(messages: &[Value], more: Value) -> Value {
    let tool = json!({"name": "add", "description": "Adds numbers.",
        "input_schema": {"type": "object", "properties": {"a": {"type": "number"}}}});
    let mut body =
        json!({"model": "claude", "max_tokens": 100, "messages": messages, "tools": [tool]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Returns the events of a stream.
fn events(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let data = answer.text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

fn assert_in_pieces(pieces: &[&str]) {
    assert!(pieces.len() > 2, "{pieces:?}");
    let input: Value = serde_json::from_str(&pieces.concat()).unwrap();
    assert_eq!(input, first_input());
}

#[test]
fn arguments_of_a_tool_use_are_streamed_in_pieces() {
    let api = api(CLAUDE_STREAM);
    let mut messages = vec![json!({"role": "user", "content": PROMPT})];
    let answer = api.post("/v1/messages", &body(&messages, json!({"stream": true})));
    let events = events(&answer);
    let of_call: Vec<&Value> = events.iter().filter(|event| event["index"] == 1).collect();
    let pieces: Vec<&str> =
        of_call.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
    assert_in_pieces(&pieces);
    assert_eq!(of_call[0]["content_block"]["name"], "add", "without the agent's prefix");
    assert_eq!(of_call[of_call.len() - 1]["type"], "content_block_stop");
    let begun = events.iter().filter(|event| event["content_block"]["type"] == "tool_use");
    let ids: Vec<&Value> = begun.map(|event| &event["content_block"]["id"]).collect();
    assert_eq!(ids.len(), 2, "{events:?}");
    // The results find the turn, also if the client writes numbers in its own way.
    messages.push(json!({"role": "assistant", "content": [
        {"type": "text", "text": "Adding."},
        {"type": "tool_use", "id": ids[0], "name": "add", "input": first_input()},
        {"type": "tool_use", "id": ids[1], "name": "add", "input": {"a": 8.0}}]}));
    messages.push(json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": ids[0], "content": "14"},
        {"type": "tool_result", "tool_use_id": ids[1], "content": "16"}]}));
    let answer = api.post("/v1/messages", &body(&messages, json!({})));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.headers["x-hob-session"], "warm");
    assert_eq!(answer.json()["content"][0]["text"], "Last: 16");
}

#[test]
fn arguments_of_functions_are_streamed_in_pieces() {
    let api = api(CLAUDE_STREAM);
    let function = json!({"name": "add", "parameters": {"type": "object"}});
    let asked = json!({"model": "claude", "stream": true,
        "messages": [{"role": "user", "content": PROMPT}],
        "tools": [{"type": "function", "function": function}]});
    let chunks = events(&api.post("/v1/chat/completions", &asked));
    let calls = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0]);
    let first = calls.filter(|call| call["index"] == 0);
    let pieces = first.filter_map(|call| call["function"]["arguments"].as_str());
    // The first chunk of a call has its name and no arguments.
    assert_in_pieces(&pieces.filter(|piece| !piece.is_empty()).collect::<Vec<_>>());

    let mut function = function;
    function["type"] = json!("function");
    let asked = json!({"model": "claude", "stream": true, "input": PROMPT, "tools": [function]});
    let events = events(&api.post("/v1/responses", &asked));
    let deltas = events.iter().filter(|event| {
        event["type"] == "response.function_call_arguments.delta" && event["output_index"] == 1
    });
    let pieces: Vec<&str> = deltas.filter_map(|event| event["delta"].as_str()).collect();
    assert_in_pieces(&pieces);
    let last = &events[events.len() - 1];
    assert_eq!(last["type"], "response.completed");
    let output = &last["response"]["output"];
    assert_eq!(output[1]["arguments"], pieces.concat());
    assert_eq!(output[2]["arguments"], "{\"a\":8}", "{last}");
}

/// Hob holds back the second call, which the client must not see begin.
#[test]
fn one_call_at_a_time_comes_in_one_piece() {
    let api = api(CLAUDE_STREAM);
    let choice = json!({"type": "auto", "disable_parallel_tool_use": true});
    let messages = [json!({"role": "user", "content": PROMPT})];
    let asked = body(&messages, json!({"stream": true, "tool_choice": choice}));
    let events = events(&api.post("/v1/messages", &asked));
    let begun = events.iter().filter(|event| event["content_block"]["type"] == "tool_use");
    assert_eq!(begun.count(), 1, "{events:?}");
    let pieces = events.iter().filter_map(|event| event["delta"]["partial_json"].as_str());
    assert_eq!(pieces.count(), 1, "{events:?}");
}
