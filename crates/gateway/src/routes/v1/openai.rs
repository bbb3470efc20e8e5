//! `POST /v1/chat/completions`: OpenAI's chat completions.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::http::HeaderValue;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Json, Response};
use hob_agents::claude::TurnResult;
use hob_domain::Timestamp;
use hob_sessions::Conversation;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use uuid::Uuid;

use super::attachments::{merged, prompt};
use super::content::{self, data_url, with_title};
use super::dialect::{Dialect, Problem, SESSION_HEADER};
use super::ignored::{self, IgnoredFields, UnknownFields};
use super::models;
use super::parts::{ClientCall, Part};
use super::reply::{KEEP_ALIVE, Reply, Wording, in_words};
use super::system_prompt::{self, conversation};
use super::{structured, tools};
use crate::error::ApiError;
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// Fields that would change what the answer is, and that Hob cannot honour.
const REFUSED: [&str; 2] = ["audio", "web_search_options"];

/// A conversation in OpenAI's shape. Fields that are not here are accepted without
/// effect, except `audio` and `web_search_options`, which are refused.
#[derive(Deserialize, ToSchema)]
#[schema(example = json!({"model": "claude", "messages": [{"role": "user", "content": "Say hello."}]}))]
pub(crate) struct ChatBody {
    /// A model name of Claude Code; `claude` is its default.
    model: Option<String>,
    /// The whole conversation. The last message must be the user's. `system` and `developer`
    /// messages are added to Claude Code's system prompt.
    #[schema(value_type = Vec<Object>, min_items = 1)]
    messages: Vec<Value>,
    stream: Option<bool>,
    /// `include_usage` adds a last chunk with the usage.
    #[schema(value_type = Option<Object>)]
    stream_options: Option<StreamOptions>,
    /// Must be 1.
    #[schema(minimum = 1, maximum = 1)]
    n: Option<u64>,
    /// Must be `text` alone.
    modalities: Option<Vec<String>>,
    /// The client's own functions, in addition to the tools of Claude Code. An answer that calls one ends with
    /// `tool_calls`, and the next request with the result continues the turn.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
    /// `auto`, `none`, `required` or a function.
    #[schema(value_type = Option<Value>)]
    tool_choice: Option<Value>,
    /// With `false`, an answer has at most one call.
    parallel_tool_calls: Option<bool>,
    /// Must be empty. Use `tools`.
    #[schema(value_type = Option<Vec<Object>>, max_items = 0)]
    functions: Option<Vec<Value>>,
    /// `text`, `json_object` or `json_schema`. An answer without the form is asked for once more, and is then an error.
    #[schema(value_type = Option<Object>)]
    response_format: Option<Value>,
    #[serde(flatten)]
    #[schema(ignore)]
    unknown: UnknownFields,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
    #[serde(flatten)]
    unknown: UnknownFields,
}

/// OpenAI's Chat Completions on Claude Code.
///
/// Stateless for the client: Hob finds the live process by the history. The answer contains all texts
/// of the turn. A client that disconnects ends its turn.
#[utoipa::path(post, path = "/v1/chat/completions", tag = "v1", operation_id = "create_chat_completion", request_body = ChatBody,
    security(("token" = [])), responses(
    (status = 200, description = "The completion, or a stream of chunks. The header `x-hob-session` says whether the process was `warm`, `seeded` or `fresh`. The header `x-hob-ignored` lists the fields that had no effect.",
        content((schemas::CompletionObject = "application/json"), (Object = "text/event-stream"))),
    (status = 400, description = "Invalid request (`invalid_request_error`).", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token (`invalid_api_key`).", body = schemas::VendorError),
    (status = 404, description = "Unknown model.", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 413, description = "The body is too large.", body = schemas::VendorError),
    (status = 429, description = "The app has used up its quota, or the model's rate limit is reached (`rate_limit_exceeded`).", body = schemas::VendorError),
    (status = 500, description = "Internal error (`server_error`).", body = schemas::VendorError),
    (status = 503, description = "`sessions.max_live` is reached; see Retry-After.", body = schemas::VendorError),
    (status = 504, description = "The turn timed out.", body = schemas::VendorError),
))]
pub(crate) async fn chat(
    State(gateway): State<Arc<Gateway>>,
    caller: Result<Caller, ApiError>,
    request: Request,
) -> Response {
    answer(gateway, caller, request).await.unwrap_or_else(|problem| {
        tracing::info!(code = problem.code(), "a completion request failed");
        Dialect::OpenAi.respond(problem)
    })
}

async fn answer(
    gateway: Arc<Gateway>,
    caller: Result<Caller, ApiError>,
    request: Request,
) -> Result<Response, Problem> {
    let Caller(app) = caller?;
    // Authenticate before reading the body.
    let JsonBody(body) = JsonBody::<ChatBody>::from_request(request, &gateway).await?;
    let (mut asked, without_effect) = body.conversation()?;
    asked.model = models::asked(&gateway, body.model.as_deref())?;
    asked.prompt = prompt(&gateway, &app.name, &asked.messages).await?;
    let reply = Reply::to(&gateway, &app, asked).await?;
    let origin = reply.origin().as_str();
    let mut head = Head {
        id: format!("chatcmpl-{}", Uuid::new_v4().simple()),
        created: Timestamp::now().as_second(),
        model: body.model.unwrap_or_else(|| models::DEFAULT.to_owned()),
    };
    let mut response = match body.stream.unwrap_or_default() {
        true => {
            let reply = reply.begun().await?;
            head.model = reply.model.clone().unwrap_or(head.model);
            let wanted = body.stream_options.and_then(|options| options.include_usage);
            stream(reply, head, wanted.unwrap_or_default()).into_response()
        }
        false => {
            let whole = reply.whole().await?;
            let texts = whole.texts();
            let mut message = json!({"role": "assistant", "content": texts.join("\n\n"),
                "refusal": null});
            if !whole.calls.is_empty() {
                if texts.is_empty() {
                    message["content"] = Value::Null;
                }
                message["tool_calls"] = whole.calls.iter().map(tool_call).collect();
            }
            Json(json!({
                "id": head.id, "object": "chat.completion", "created": head.created,
                "model": whole.model.unwrap_or(head.model),
                "choices": [{"index": 0, "message": message, "logprobs": null,
                    "finish_reason": finish_reason(&whole.result)}],
                "usage": usage(&whole.result),
            }))
            .into_response()
        }
    };
    response.headers_mut().insert(SESSION_HEADER, HeaderValue::from_static(origin));
    without_effect.note(&mut response);
    Ok(response)
}

impl ChatBody {
    /// Returns the conversation, without its attachments and its model, and the fields without effect.
    pub(super) fn conversation(&self) -> Result<(Conversation, IgnoredFields), Problem> {
        if self.n.is_some_and(|n| n != 1) {
            return Err(ApiError::bad_request("n: must be 1").into());
        }
        if self.modalities.iter().flatten().any(|kind| kind != "text") {
            return Err(ApiError::bad_request("modalities: only text is supported").into());
        }
        tools::no_functions(self.functions.as_deref())?;
        ignored::refuse(&self.unknown, &REFUSED)?;
        let mut without_effect = IgnoredFields::new(&self.unknown);
        without_effect.add_tools(self.tools.as_deref());
        without_effect.add_messages("messages", &self.messages);
        if let Some(options) = &self.stream_options {
            for (name, value) in &options.unknown {
                without_effect.add(&format!("stream_options.{name}"), Some(value));
            }
        }
        let (tools, choice) = (self.tools.as_deref(), self.tool_choice.as_ref());
        let tools = tools::openai(tools, choice, self.parallel_tool_calls)?;
        let mut systems = Vec::new();
        let messages = anthropic_messages(&self.messages, &mut systems)?;
        let form = structured::openai(self.response_format.as_ref())?;
        let system = system_prompt::checked(systems.join("\n\n"))?;
        let messages = merged(content::readable(messages)?);
        Ok((conversation(messages, system, tools, form), without_effect))
    }
}

/// Converts messages to Anthropic's shape; `system` and `developer` texts go to `systems`.
fn anthropic_messages(
    messages: &[Value],
    systems: &mut Vec<String>,
) -> Result<Vec<Value>, Problem> {
    let mut out = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let place = format!("messages[{index}]");
        let wrong = |text: &str| Problem::from(ApiError::bad_request(format!("{place}.{text}")));
        match message["role"].as_str() {
            Some("system" | "developer") => {
                let blocks = blocks(&message["content"], &place)?;
                let texts: Option<Vec<&str>> =
                    blocks.iter().map(|block| block["text"].as_str()).collect();
                let texts = texts.ok_or_else(|| wrong("content: it must be text"))?;
                systems.push(texts.join("\n\n"));
            }
            Some("user") => {
                let blocks = blocks(&message["content"], &place)?;
                out.push(json!({"role": "user", "content": blocks}));
            }
            Some("assistant") => {
                let mut said = match &message["content"] {
                    Value::Null => Vec::new(),
                    content => blocks(content, &place)?,
                };
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    let function = &call["function"];
                    let arguments = function["arguments"].as_str().unwrap_or("{}");
                    let input: Value = serde_json::from_str(arguments).unwrap_or(json!({}));
                    said.push(json!({"type": "tool_use", "id": call["id"],
                        "name": function["name"], "input": input}));
                }
                out.push(json!({"role": "assistant", "content": said}));
            }
            Some("tool") => {
                let content = match &message["content"] {
                    parts @ Value::Array(_) => Value::Array(blocks(parts, &place)?),
                    text => text.clone(),
                };
                let result = json!({"type": "tool_result", "tool_use_id": message["tool_call_id"],
                    "content": content});
                out.push(json!({"role": "user", "content": [result]}));
            }
            _ => return Err(wrong("role: it must be system, developer, user, assistant or tool")),
        }
    }
    Ok(out)
}

/// Converts content to Anthropic's blocks.
fn blocks(content: &Value, place: &str) -> Result<Vec<Value>, Problem> {
    let text = |text: &Value| json!({"type": "text", "text": text});
    let parts = match content {
        Value::String(_) => return Ok(vec![text(content)]),
        Value::Array(parts) => parts,
        _ => {
            let problem = format!("{place}.content: must be a string or a list of parts");
            return Err(ApiError::bad_request(problem).into());
        }
    };
    let part = |(index, part): (usize, &Value)| {
        let wrong = |what: &str| {
            Problem::from(ApiError::bad_request(format!("{place}.content[{index}]: {what}")))
        };
        let inside = |field: &str| format!("{place}.content[{index}].{field}");
        match part["type"].as_str() {
            Some("text") if part["text"].is_string() => Ok(text(&part["text"])),
            Some("refusal") if part["refusal"].is_string() => Ok(text(&part["refusal"])),
            Some("image_url") => {
                data_url(&part["image_url"]["url"], "image", &inside("image_url.url"))
            }
            Some("file") => {
                let file = &part["file"];
                let block = data_url(&file["file_data"], "document", &inside("file.file_data"));
                block.map(|block| with_title(block, &file["filename"]))
            }
            _ => Err(wrong("it is not a part that can be passed on; send text, images or files")),
        }
    };
    parts.iter().enumerate().map(part).collect()
}

fn tool_call(call: &ClientCall) -> Value {
    json!({"id": call.id, "type": "function",
        "function": {"name": call.name, "arguments": call.input.to_string()}})
}

fn finish_reason(result: &TurnResult) -> &'static str {
    match result.stop_reason.as_str() {
        "max_tokens" => "length",
        "refusal" => "content_filter",
        "tool_use" => "tool_calls",
        _ => "stop",
    }
}

fn usage(result: &TurnResult) -> Value {
    let usage = &result.usage;
    let input = usage.all_input_tokens();
    json!({"prompt_tokens": input, "completion_tokens": usage.output_tokens,
        "total_tokens": input.saturating_add(usage.output_tokens),
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_input_tokens}})
}

/// The fields that every chunk of a completion repeats.
struct Head {
    id: String,
    created: i64,
    model: String,
}

/// Renders a reply as chunks of a completion.
struct Words {
    head: Head,
    with_usage: bool,
    /// Whether a text has been sent: the next one begins a new paragraph.
    said: bool,
    /// The number of calls that have been sent.
    calls: usize,
}

fn stream(
    reply: Reply,
    head: Head,
    with_usage: bool,
) -> Sse<impl futures_util::Stream<Item = Result<Event, Infallible>>> {
    let words = Words { head, with_usage, said: false, calls: 0 };
    let start = json!({"role": "assistant", "content": "", "refusal": null});
    let first = [words.piece(start, Value::Null)].into();
    let events = in_words(reply, words, first);
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

impl Wording for Words {
    fn part(&mut self, part: Part, events: &mut VecDeque<Event>) {
        match part {
            Part::Begin if self.said => {
                events.push_back(self.piece(json!({"content": "\n\n"}), Value::Null));
            }
            Part::Begin | Part::End | Part::Thought(_) => {}
            Part::Text(text) => {
                self.said = true;
                events.push_back(self.piece(json!({"content": text}), Value::Null));
            }
            Part::CallBegin { id, name } => {
                let start = json!({"index": self.calls, "id": id, "type": "function",
                    "function": {"name": name, "arguments": ""}});
                events.push_back(self.piece(json!({"tool_calls": [start]}), Value::Null));
            }
            Part::CallPiece(json) => {
                let piece = json!({"index": self.calls, "function": {"arguments": json}});
                events.push_back(self.piece(json!({"tool_calls": [piece]}), Value::Null));
            }
            Part::CallEnd => self.calls += 1,
            Part::Call(call) => {
                for part in call.in_parts() {
                    self.part(part, events);
                }
            }
            Part::Over(result) => {
                events.push_back(self.piece(json!({}), json!(finish_reason(&result))));
                if self.with_usage {
                    let mut last = self.chunk(json!([]));
                    last["usage"] = usage(&result);
                    events.push_back(Event::default().data(last.to_string()));
                }
                events.push_back(Event::default().data("[DONE]"));
            }
        }
    }

    fn problem(&mut self, problem: &Problem, events: &mut VecDeque<Event>) {
        events.push_back(Event::default().data(Dialect::OpenAi.body(problem).to_string()));
    }
}

impl Words {
    fn piece(&self, delta: Value, finish_reason: Value) -> Event {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null,
            "finish_reason": finish_reason});
        Event::default().data(self.chunk(json!([choice])).to_string())
    }

    fn chunk(&self, choices: Value) -> Value {
        let head = &self.head;
        json!({"id": head.id, "object": "chat.completion.chunk", "created": head.created,
            "model": head.model, "choices": choices})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_become_anthropics() {
        let messages = [
            json!({"role": "system", "content": "be kind"}),
            json!({"role": "user", "content": [{"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]}),
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c",
                "function": {"name": "f", "arguments": "{\"x\":1}"}}]}),
            json!({"role": "tool", "tool_call_id": "c", "content": "out"}),
            json!({"role": "developer", "content": [{"type": "text", "text": "be brief"}]}),
        ];
        let mut systems = Vec::new();
        let out = anthropic_messages(&messages, &mut systems).unwrap();
        assert_eq!(systems, ["be kind", "be brief"]);
        assert_eq!(out[0]["content"][1]["source"]["media_type"], "image/png");
        assert_eq!(out[1]["content"][0]["input"]["x"], 1);
        assert_eq!(out[2]["content"][0]["tool_use_id"], "c");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |message: Value, word: &str| {
            let problem = anthropic_messages(&[message], &mut Vec::new()).unwrap_err();
            let text = Dialect::OpenAi.body(&problem).to_string();
            assert!(text.contains(word), "{text}");
        };
        check(json!({"role": "wizard", "content": "x"}), "messages[0].role");
        check(json!({"role": "user", "content": 1}), "messages[0].content");
        check(json!({"role": "user", "content": [{"type": "input_audio"}]}), "content[0]");
        let far = json!([{"type": "image_url", "image_url": {"url": "http://x"}}]);
        check(json!({"role": "user", "content": far}), "data:");
    }
}
