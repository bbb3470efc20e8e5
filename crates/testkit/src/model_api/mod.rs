//! A scripted model API: the endpoints of Anthropic, OpenAI and Google without a model, so that real agents run offline.
//!
//! The newest user message that is not a tool result steers it with the words of [`crate::script`];
//! each tool call goes on to the next of its messages. Without words it echoes: `echo: <text>`. A key that begins
//! with `sk-bad` is refused with 401, a model whose name holds `nonexist` with 404.

mod event_stream;
mod gemini_api;
mod responses_api;

use std::collections::HashMap;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use self::event_stream::{pause, stream_events};
use crate::script::{self, Step};

/// A running model API. Dropping it stops it.
pub struct ModelApi {
    url: String,
    state: Arc<Seen>,
    /// Dropping this sender ends the thread.
    _stop: oneshot::Sender<()>,
}

#[derive(Default)]
struct Seen {
    requests: Mutex<Vec<Value>>,
    tries: Mutex<HashMap<String, usize>>,
    /// Prompts and the words that answer them, for prompts that a person reads.
    answers: Mutex<HashMap<String, String>>,
}

impl ModelApi {
    /// Starts the API on a free port, on a thread of its own.
    pub fn start() -> ModelApi {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a listener");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let state = Arc::new(Seen::default());
        let router = Router::new().fallback(answer).with_state(state.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                tokio::select! {
                    result = axum::serve(listener, router).into_future() => result.expect("it serves"),
                    _ = stopped => {}
                }
            });
        });
        ModelApi { url, state, _stop: stop }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns every request with tools, as sent: the agent's own turns, not its side calls.
    pub fn requests(&self) -> Vec<Value> {
        self.state.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers a prompt, which has no words in it, with these words.
    pub fn answer_to(&self, prompt: &str, words: &str) {
        let mut answers = self.state.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.insert(prompt.to_owned(), words.to_owned());
    }

    /// Returns the variables that point the real `claude` here and switch its telemetry off.
    pub fn claude_environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("ANTHROPIC_BASE_URL", self.url.clone()),
            ("ANTHROPIC_API_KEY", "sk-ant-scripted-0123456789-0123456789".to_owned()),
            ("DISABLE_TELEMETRY", "1".to_owned()),
            ("DISABLE_AUTOUPDATER", "1".to_owned()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
            ("IS_SANDBOX", "1".to_owned()),
        ]
    }

    /// Returns the variables that point the real `opencode` here and keep it from other servers.
    pub fn opencode_environment(&self) -> Vec<(&'static str, String)> {
        let model = json!({"name": "Scripted", "tool_call": true,
            "limit": {"context": 200_000, "output": 8000}, "cost": {"input": 1, "output": 2}});
        let options = json!({"baseURL": format!("{}/v1", self.url), "apiKey": "sk-scripted"});
        let config = json!({"model": "anthropic/scripted", "small_model": "anthropic/scripted",
            "autoupdate": false, "share": "disabled", "enabled_providers": ["anthropic"],
            "provider": {"anthropic": {"options": options, "models": {"scripted": model}}}});
        vec![
            ("OPENCODE_CONFIG_CONTENT", config.to_string()),
            ("OPENCODE_DISABLE_AUTOUPDATE", "1".to_owned()),
            ("OPENCODE_DISABLE_MODELS_FETCH", "1".to_owned()),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1".to_owned()),
            ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1".to_owned()),
        ]
    }
}

async fn answer(State(seen): State<Arc<Seen>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let bytes = axum::body::to_bytes(body, 256 << 20).await.unwrap_or_default();
    if path.ends_with("/count_tokens") {
        return Json(json!({"input_tokens": 10})).into_response();
    }
    if path.ends_with(":countTokens") {
        return Json(json!({"totalTokens": 10})).into_response();
    }
    let Some(endpoint) = Endpoint::at(&path) else { return Json(json!({})).into_response() };
    let Ok(mut request) = serde_json::from_slice::<Value>(&bytes) else {
        return error(400, "the body is not JSON");
    };
    // Google's address names the model.
    if let Some((_, named)) = path.rsplit_once("/models/") {
        request["model"] = json!(named.split(':').next());
    }
    let main = request["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    if main {
        let mut requests = seen.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.push(request.clone());
    }
    if key(&parts.headers).contains("sk-bad") {
        return error(401, "invalid x-api-key");
    }
    let model = request["model"].as_str().unwrap_or_default().to_owned();
    if model.contains("nonexist") {
        return error(404, &format!("model: {model}"));
    }
    let (prompt, played) = match endpoint {
        Endpoint::Messages => prompt(&request),
        Endpoint::Responses => responses_api::prompt(&request),
        Endpoint::Gemini { .. } => gemini_api::prompt(&request),
    };
    let answer = {
        let answers = seen.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(prompt.trim()).filter(|_| main).cloned()
    };
    let prompt = answer.unwrap_or(prompt);
    let steps = script::with_answer(script::parse(&prompt), &prompt);
    let messages = script::messages(&steps);
    let done = vec![Step::Say("done".to_owned())];
    let message = if main { messages.get(played).unwrap_or(&done) } else { &messages[0] };
    for step in message {
        if let Step::Error { status, message } = step {
            // `[[error 529 2x later fine]]` fails twice and then goes on.
            let times = message.split_once("x ").and_then(|(times, _)| times.parse().ok());
            let mut tries = seen.tries.lock().unwrap_or_else(PoisonError::into_inner);
            let tried = tries.entry(prompt.clone()).or_default();
            *tried += 1;
            if times.is_none_or(|times: usize| *tried <= times) {
                return error(*status, message);
            }
        }
    }
    let reason = if message.iter().any(|step| matches!(step, Step::Tool { .. })) {
        "tool_use".to_owned()
    } else {
        script::stop_reason(message)
    };
    match endpoint {
        Endpoint::Messages if request["stream"] == true => stream(model, message.clone(), reason),
        Endpoint::Messages => whole(model, message, &reason).await,
        Endpoint::Responses => responses_api::stream(model, message.clone()),
        Endpoint::Gemini { is_stream: true } => gemini_api::stream(message.clone()),
        Endpoint::Gemini { is_stream: false } => gemini_api::whole(message).await,
    }
}

/// The endpoint of a request.
#[derive(Clone, Copy)]
enum Endpoint {
    /// Anthropic's.
    Messages,
    /// OpenAI's, always as a stream.
    Responses,
    /// Google's.
    Gemini { is_stream: bool },
}

impl Endpoint {
    fn at(path: &str) -> Option<Endpoint> {
        [
            ("/v1/messages", Endpoint::Messages),
            ("/v1/responses", Endpoint::Responses),
            (":streamGenerateContent", Endpoint::Gemini { is_stream: true }),
            (":generateContent", Endpoint::Gemini { is_stream: false }),
        ]
        .into_iter()
        .find_map(|(end, endpoint)| path.ends_with(end).then_some(endpoint))
    }
}

fn key(headers: &HeaderMap) -> String {
    let header = headers.get("x-api-key").or(headers.get("authorization"));
    header.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

fn error(status: u16, message: &str) -> Response {
    let kind = match status {
        400 | 413 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    let body = json!({"type": "error", "error": {"type": kind, "message": message}});
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, Json(body)).into_response()
}

/// Returns the newest user text that is not a tool result, and how many assistant messages follow it.
fn prompt(request: &Value) -> (String, usize) {
    let mut played = 0;
    for message in request["messages"].as_array().into_iter().flatten().rev() {
        if message["role"] == "assistant" {
            played += 1;
            continue;
        }
        if message["role"] != "user" {
            continue;
        }
        let text = match &message["content"] {
            Value::String(text) => text.clone(),
            Value::Array(blocks) => {
                // A text after the results of tools is a new prompt: the turn before it was interrupted.
                let results = blocks.iter().rposition(|block| block["type"] == "tool_result");
                let own = &blocks[results.map_or(0, |last| last + 1)..];
                let texts: Vec<&str> = own.iter().filter_map(|b| b["text"].as_str()).collect();
                texts.join("\n")
            }
            _ => continue,
        };
        let text = newest(&without_reminders(&text));
        if !text.trim().is_empty() {
            return (text, played);
        }
    }
    (String::new(), 0)
}

/// Returns the last prompt in a text: an interrupted prompt is sent again together with the next one.
fn newest(text: &str) -> String {
    let after = text.rsplit_once("[Request interrupted by user").map(|(_, after)| after);
    let after = after.and_then(|after| after.split_once(']')).map(|(_, after)| after);
    after.unwrap_or(text).trim_start_matches('\n').to_owned()
}

/// Returns the text without what the CLI adds to it.
pub fn without_reminders(text: &str) -> String {
    const OPEN: &str = "<system-reminder>";
    const CLOSE: &str = "</system-reminder>";
    let mut kept = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(OPEN) {
        kept.push_str(&rest[..start]);
        let Some(end) = rest[start..].find(CLOSE) else { return kept };
        rest = &rest[start + end + CLOSE.len()..];
    }
    kept.push_str(rest);
    kept.trim_start_matches('\n').to_owned()
}

/// Returns the content block of a step, if the step has one.
fn block(step: &Step) -> Option<Value> {
    Some(match step {
        Step::Say(text) => json!({"type": "text", "text": text}),
        Step::Think(text) => json!({"type": "thinking", "thinking": text, "signature": "c2ln"}),
        Step::Tool { name, input, .. } => json!({"type": "tool_use",
            "id": format!("toolu_{}", Uuid::new_v4().simple()), "name": name, "input": input}),
        _ => return None,
    })
}

fn envelope(model: &str) -> Value {
    json!({"id": format!("msg_{}", Uuid::new_v4().simple()), "type": "message", "role": "assistant",
        "model": model, "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 10, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0, "output_tokens": 1}})
}

async fn whole(model: String, steps: &[Step], reason: &str) -> Response {
    for step in steps {
        pause(step).await;
    }
    let mut message = envelope(&model);
    message["content"] = steps.iter().filter_map(block).collect();
    message["stop_reason"] = json!(reason);
    message["usage"]["output_tokens"] = json!(5);
    Json(message).into_response()
}

/// Streams the message as server-sent events, in small pieces.
fn stream(model: String, steps: Vec<Step>, reason: String) -> Response {
    let (sender, receiver) = mpsc::unbounded_channel::<Value>();
    tokio::task::spawn(async move {
        let send = |event: Value| sender.send(event).is_ok();
        send(json!({"type": "message_start", "message": envelope(&model)}));
        let mut index = 0;
        for step in &steps {
            pause(step).await;
            let Some(block) = block(step) else { continue };
            let (start, pieces) = pieces(&block);
            send(json!({"type": "content_block_start", "index": index, "content_block": start}));
            for delta in pieces {
                if !send(json!({"type": "content_block_delta", "index": index, "delta": delta})) {
                    return;
                }
            }
            send(json!({"type": "content_block_stop", "index": index}));
            index += 1;
        }
        let delta = json!({"stop_reason": reason, "stop_sequence": null});
        send(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}}));
        send(json!({"type": "message_stop"}));
    });
    stream_events(receiver)
}

/// Returns the start of a block and the pieces that complete it.
fn pieces(block: &Value) -> (Value, Vec<Value>) {
    let mut start = block.clone();
    let cut = |text: &str, kind: &str, field: &str| -> Vec<Value> {
        let letters: Vec<char> = text.chars().collect();
        letters
            .chunks(1000)
            .map(|piece| json!({"type": kind, field: piece.iter().collect::<String>()}))
            .collect()
    };
    let pieces = match block["type"].as_str() {
        Some("text") => {
            start["text"] = json!("");
            cut(block["text"].as_str().unwrap_or_default(), "text_delta", "text")
        }
        Some("thinking") => {
            start["thinking"] = json!("");
            start["signature"] = json!("");
            let text = block["thinking"].as_str().unwrap_or_default();
            let mut pieces = cut(text, "thinking_delta", "thinking");
            pieces.push(json!({"type": "signature_delta", "signature": block["signature"]}));
            pieces
        }
        _ => {
            start["input"] = json!({});
            cut(&block["input"].to_string(), "input_json_delta", "partial_json")
        }
    };
    (start, pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_api_finds_the_prompt_before_tool_results_and_reminders() {
        let request = json!({"messages": [
            {"role": "user", "content": "first"},
            {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
            {"role": "user", "content": [
                {"type": "text", "text": "<system-reminder>noise</system-reminder>\n"},
                {"type": "text", "text": "second"}]},
            {"role": "assistant", "content": [{"type": "tool_use"}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]},
        ]});
        assert_eq!(prompt(&request), ("second".to_owned(), 1));
    }

    /// Agents send everything since the model's last message as one message.
    #[test]
    fn model_api_ends_an_interrupted_turn() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let result = json!({"type": "tool_result", "tool_use_id": "x"});
        for blocks in [
            vec![text("[[hang]]\n"), text("[Request interrupted by user]\n"), text("next")],
            vec![result.clone(), text("[Request interrupted by user for tool use]"), text("next")],
            vec![result, text("next")],
        ] {
            let request = json!({"messages": [
                {"role": "user", "content": "first"},
                {"role": "assistant", "content": [{"type": "tool_use"}]},
                {"role": "user", "content": blocks}]});
            assert_eq!(prompt(&request), ("next".to_owned(), 0));
        }
    }
}
