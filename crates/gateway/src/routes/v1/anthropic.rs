//! `POST /v1/messages`: Anthropic's messages API.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::http::HeaderValue;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Json, Response};
use hob_agents::claude::TurnResult;
use hob_domain::App;
use hob_sessions::Conversation;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use uuid::Uuid;

use super::attachments::{merged, prompt};
use super::content;
use super::dialect::{Dialect, Problem, SESSION_HEADER};
use super::ignored::{self, IgnoredFields, UnknownFields};
use super::models;
use super::parts::{ClientCall, Part};
use super::reply::{KEEP_ALIVE, Reply, Whole, Wording, in_words};
use super::system_prompt::{self, conversation};
use super::{structured, tools};
use crate::error::ApiError;
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// The header that the SDKs report as a request's id.
pub(super) const REQUEST_ID_HEADER: &str = "request-id";
/// Fields that would change what the answer is, and that Hob cannot honour.
const REFUSED: [&str; 2] = ["mcp_servers", "container"];

/// A conversation in Anthropic's shape. Fields that are not here are accepted without
/// effect, except `mcp_servers` and `container`, which are refused.
#[derive(Deserialize, ToSchema)]
#[schema(example = json!({"model": "claude", "max_tokens": 1024,
    "messages": [{"role": "user", "content": "Say hello."}]}))]
pub(crate) struct MessagesBody {
    /// A model name of Claude Code; `claude` is its default.
    model: Option<String>,
    /// The whole conversation. The last message must be the user's.
    #[schema(value_type = Vec<Object>, min_items = 1)]
    messages: Vec<Value>,
    /// Added to Claude Code's system prompt: a text, or text blocks.
    #[schema(value_type = Value)]
    system: Option<Value>,
    /// Accepted without effect.
    #[schema(minimum = 1)]
    max_tokens: Option<u64>,
    stream: Option<bool>,
    /// The client's own tools, in addition to those of Claude Code. An answer that calls one ends with `tool_use`, and the
    /// next request with the result continues the turn.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
    /// `auto`, `any`, `tool` or `none`.
    #[schema(value_type = Option<Object>)]
    tool_choice: Option<Value>,
    /// Its `format` may be a `json_schema`. An answer without the form is asked for once more, and is then an error.
    #[schema(value_type = Option<Object>)]
    output_config: Option<Value>,
    /// The older name of `output_config.format`.
    #[schema(value_type = Option<Object>)]
    output_format: Option<Value>,
    /// Refused: the server holds no conversations.
    #[schema(value_type = Option<Object>)]
    thread: Option<Value>,
    #[serde(flatten)]
    #[schema(ignore)]
    unknown: UnknownFields,
}

/// Anthropic's Messages API on Claude Code.
///
/// Stateless for the client: Hob finds the live process by the history. The answer contains all texts
/// of the turn, without Claude Code's own tool use. A client that disconnects ends its turn.
#[utoipa::path(post, path = "/v1/messages", tag = "v1", operation_id = "create_message", request_body = MessagesBody,
    security(("token" = [])), responses(
    (status = 200, description = "The message, or a stream of events. The header `x-hob-session` says whether the process was `warm`, `seeded` or `fresh`. The header `x-hob-ignored` lists the fields that had no effect.",
        content((schemas::MessageObject = "application/json"), (Object = "text/event-stream"))),
    (status = 400, description = "Invalid request (`invalid_request_error`).", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token (`authentication_error`).", body = schemas::VendorError),
    (status = 404, description = "Unknown model (`not_found_error`).", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 413, description = "The body is too large (`request_too_large`).", body = schemas::VendorError),
    (status = 429, description = "The app has used up its quota, or the model's rate limit is reached (`rate_limit_error`).", body = schemas::VendorError),
    (status = 500, description = "Internal error (`api_error`).", body = schemas::VendorError),
    (status = 504, description = "The turn timed out (`timeout_error`).", body = schemas::VendorError),
    (status = 529, description = "`sessions.max_live` is reached; see Retry-After (`overloaded_error`).", body = schemas::VendorError),
))]
pub(crate) async fn messages(
    State(gateway): State<Arc<Gateway>>,
    caller: Result<Caller, ApiError>,
    request: Request,
) -> Response {
    let mut response = match answer(gateway, caller, request).await {
        Ok(response) => response,
        Err(problem) => {
            tracing::info!(code = problem.code(), "a message request failed");
            Dialect::Anthropic.respond(problem)
        }
    };
    response.headers_mut().insert(REQUEST_ID_HEADER, request_id());
    response
}

/// Returns the id of a request.
pub(super) fn request_id() -> HeaderValue {
    let id = format!("req_{}", Uuid::new_v4().simple());
    HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("req_unknown"))
}

async fn answer(
    gateway: Arc<Gateway>,
    caller: Result<Caller, ApiError>,
    request: Request,
) -> Result<Response, Problem> {
    let Caller(app) = caller?;
    // Authenticate before reading the body.
    let JsonBody(body) = JsonBody::<MessagesBody>::from_request(request, &gateway).await?;
    let is_streamed = body.stream.unwrap_or_default();
    let (asked, named, without_effect) = read(&gateway, &app, body).await?;
    let reply = Reply::to(&gateway, &app, asked).await?;
    let origin = reply.origin().as_str();
    let mut response = match is_streamed {
        true => {
            let reply = reply.begun().await?;
            let model = reply.model.clone().unwrap_or(named);
            stream(reply, message_id(), model).into_response()
        }
        false => Json(message(reply.whole().await?, named)).into_response(),
    };
    response.headers_mut().insert(SESSION_HEADER, HeaderValue::from_static(origin));
    without_effect.note(&mut response);
    Ok(response)
}

/// Reads a request: what the agent is asked, the model's name, and the fields without effect.
pub(super) async fn read(
    gateway: &Arc<Gateway>,
    app: &App,
    body: MessagesBody,
) -> Result<(Conversation, String, IgnoredFields), Problem> {
    let model = body.model.clone();
    let (mut asked, without_effect) = body.conversation()?;
    asked.model = models::asked(gateway, model.as_deref())?;
    asked.prompt = prompt(gateway, &app.name, &asked.messages).await?;
    Ok((asked, model.unwrap_or_else(|| models::DEFAULT.to_owned()), without_effect))
}

impl MessagesBody {
    /// Returns the conversation, without its attachments and its model, and the fields without effect.
    pub(super) fn conversation(self) -> Result<(Conversation, IgnoredFields), Problem> {
        if self.max_tokens == Some(0) {
            return Err(ApiError::bad_request("max_tokens: must be at least 1").into());
        }
        if self.thread.is_some() {
            return Err(Problem::no_threads());
        }
        ignored::refuse(&self.unknown, &REFUSED)?;
        let mut without_effect = IgnoredFields::new(&self.unknown);
        without_effect.add("max_tokens", self.max_tokens.map(Value::from).as_ref());
        without_effect.add_within("output_config", self.output_config.as_ref(), "format");
        without_effect.add_tools(self.tools.as_deref());
        without_effect.add_messages("messages", &self.messages);
        let tools = tools::anthropic(self.tools.as_deref(), self.tool_choice.as_ref())?;
        let form = structured::anthropic(self.output_config.as_ref(), self.output_format.as_ref())?;
        let system = system_text(self.system.as_ref())?;
        let messages = self.messages.into_iter().map(as_user).collect();
        let messages = merged(content::readable(messages)?);
        Ok((conversation(messages, system, tools, form), without_effect))
    }
}

/// Renders a complete reply.
pub(super) fn message(whole: Whole, named: String) -> Value {
    let texts = whole.texts().into_iter().map(|text| json!({"type": "text", "text": text}));
    let texts: Vec<Value> = texts.collect();
    let calls = whole.calls.into_iter().map(tool_use);
    let content: Vec<Value> = texts.into_iter().chain(calls).collect();
    json!({"id": message_id(), "type": "message", "role": "assistant",
        "model": whole.model.unwrap_or(named), "content": content,
        "stop_reason": stop_reason(&whole.result), "stop_sequence": null,
        "usage": usage(&whole.result)})
}

fn message_id() -> String {
    format!("msg_{}", Uuid::new_v4().simple())
}

/// Returns a message whose role is `system`, as Claude Code sends them between the others, as one of the user. The
/// tags around its texts are those by which Claude Code itself marks what the user did not write.
pub(super) fn as_user(mut message: Value) -> Value {
    if message["role"] != "system" {
        return message;
    }
    let marked = |text: &str| format!("<system-reminder>\n{text}\n</system-reminder>");
    message["role"] = "user".into();
    match &mut message["content"] {
        Value::String(text) => *text = marked(text),
        Value::Array(blocks) => {
            for block in blocks {
                if let Some(text) = block["text"].as_str() {
                    block["text"] = marked(text).into();
                }
            }
        }
        _ => {}
    }
    message
}

/// Reads a text or a list of text blocks.
pub(super) fn system_text(system: Option<&Value>) -> Result<Option<String>, Problem> {
    let wrong = || ApiError::bad_request("system: must be a string or a list of text blocks");
    let text = match system {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            let texts: Option<Vec<&str>> = blocks
                .iter()
                .map(|block| block["text"].as_str().filter(|_| block["type"] == "text"))
                .collect();
            texts.ok_or_else(wrong)?.join("\n\n")
        }
        Some(_) => return Err(wrong().into()),
    };
    system_prompt::checked(text)
}

fn tool_use(call: ClientCall) -> Value {
    // The agent calls the tool itself, and not from code that the API would run.
    let caller = json!({"type": "direct"});
    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.input, "caller": caller})
}

fn stop_reason(result: &TurnResult) -> &str {
    match result.stop_reason.as_str() {
        known @ ("max_tokens" | "stop_sequence" | "refusal" | "pause_turn" | "tool_use") => known,
        _ => "end_turn",
    }
}

fn usage(result: &TurnResult) -> Value {
    let usage = &result.usage;
    json!({"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens})
}

/// Renders a reply as events of a message stream.
struct Words {
    /// The index of the open block, or of the next one.
    index: usize,
}

fn stream(
    reply: Reply,
    id: String,
    model: String,
) -> Sse<impl futures_util::Stream<Item = Result<Event, Infallible>>> {
    let start = json!({"type": "message_start", "message": {
        "id": id, "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 0, "output_tokens": 0}}});
    let ping = event(&json!({"type": "ping"}));
    let events = in_words(reply, Words { index: 0 }, [event(&start), ping.clone()].into());
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE).event(ping))
}

/// Returns an event named after its type.
fn event(value: &Value) -> Event {
    let name = value["type"].as_str().unwrap_or_default();
    Event::default().event(name).data(value.to_string())
}

impl Wording for Words {
    fn part(&mut self, part: Part, events: &mut VecDeque<Event>) {
        let index = self.index;
        match part {
            Part::Begin => events.push_back(event(&json!({"type": "content_block_start",
                "index": index, "content_block": {"type": "text", "text": ""}}))),
            Part::Text(text) => events.push_back(event(&json!({"type": "content_block_delta",
                "index": index, "delta": {"type": "text_delta", "text": text}}))),
            Part::End | Part::CallEnd => {
                self.index += 1;
                events.push_back(event(&json!({"type": "content_block_stop", "index": index})));
            }
            Part::Thought(_) => {}
            Part::CallBegin { id, name } => {
                let start = tool_use(ClientCall { id, name, input: json!({}) });
                events.push_back(event(&json!({"type": "content_block_start", "index": index,
                    "content_block": start})));
            }
            Part::CallPiece(json) => {
                let delta = json!({"type": "input_json_delta", "partial_json": json});
                events.push_back(event(&json!({"type": "content_block_delta", "index": index,
                    "delta": delta})));
            }
            Part::Call(call) => {
                for part in call.in_parts() {
                    self.part(part, events);
                }
            }
            Part::Over(result) => {
                let delta = json!({"stop_reason": stop_reason(&result), "stop_sequence": null});
                let usage = usage(&result);
                events.extend([
                    event(&json!({"type": "message_delta", "delta": delta, "usage": usage})),
                    event(&json!({"type": "message_stop"})),
                ]);
            }
        }
    }

    fn problem(&mut self, problem: &Problem, events: &mut VecDeque<Event>) {
        events.push_back(event(&Dialect::Anthropic.body(problem)));
    }
}
