//! `/v1/agents/sessions/{id}/events`: what happens in a session, and what the caller sends.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use hob_domain::AppName;
use serde::Deserialize;
use serde_json::{Value, json};

use super::objects;
use super::render::EventRenderer;
use crate::error::ApiError;
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::routes::v1::agent_sessions::feed::StepFeed;
use crate::routes::v1::agent_sessions::prompt;
pub(super) use crate::routes::v1::agent_sessions::prompt::Prompt;
use crate::routes::v1::agent_sessions::respond::{self, Called};
use crate::routes::v1::agent_sessions::sessions::{self, Activity, DescribedSession};
use crate::routes::v1::agent_sessions::steps::StepKind;
use crate::routes::v1::dialect::{Dialect, Problem};
use crate::state::Gateway;

/// The most events of one request.
const MAX_EVENTS: usize = 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendBody {
    events: Vec<Value>,
}

/// An event that the caller sends.
enum Sent {
    Messages(Vec<Prompt>),
    Cancel,
    ToolResult { call: String, content: Value, is_error: bool },
}

/// Sends events to a session: messages, cancels and results of the caller's functions.
///
/// A message to a running turn waits for its end.
#[utoipa::path(post, path = "/v1/agents/sessions/{id}/events", tag = "v1", operation_id = "send_openai_session_events",
    security(("token" = [])), params(("id" = String, Path, description = "The session.")), request_body = Object, responses(
    (status = 204, description = "The events have been taken."),
    (status = 400, description = "Invalid request, or the session has ended.", body = Object),
    (status = 401, description = "Missing or wrong token.", body = Object),
    (status = 404, description = "No such session of this app, or nothing waits for this result.", body = Object),
    (status = 408, description = "The body did not arrive in time.", body = Object),
    (status = 413, description = "The body is too large.", body = Object),
    (status = 429, description = "The queue is full, or the app's limit is reached; see Retry-After.", body = Object),
    (status = 500, description = "Internal error; see Hob's log.", body = Object),
    (status = 503, description = "Hob is stopping.", body = Object),
))]
pub(crate) async fn send(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
    request: Request,
) -> Response {
    let sent = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        let session = sessions::find(&gateway, &app.name, &id).await?.session;
        let JsonBody(body) = JsonBody::<SendBody>::from_request(request, &gateway).await?;
        if session.closed_at.is_some() {
            return Err(ApiError::Gone.into());
        }
        if body.events.is_empty() || body.events.len() > MAX_EVENTS {
            return Err(Problem::invalid(format!("events: must have 1 to {MAX_EVENTS} events")));
        }
        // All events are checked before the first one has an effect.
        let mut events = Vec::with_capacity(body.events.len());
        for (index, event) in body.events.iter().enumerate() {
            events.push(read(&gateway, &app.name, index, event).await?);
        }
        let (app, id) = (&app.name, &session.id);
        for event in events {
            match event {
                Sent::Messages(prompts) => {
                    for Prompt { text, files } in prompts {
                        sessions::submit(&gateway, app, id, text, files).await?;
                    }
                }
                Sent::Cancel => {
                    gateway.sessions.cancel(app, id).await?;
                }
                Sent::ToolResult { call, content, is_error } => {
                    let sessions = &gateway.sessions;
                    let returned =
                        sessions.return_tool_result(app, id, &call, content, is_error).await;
                    returned?;
                }
            }
        }
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    sent.await.unwrap_or_else(|problem: Problem| Dialect::OpenAi.respond(problem))
}

async fn read(
    gateway: &Gateway,
    app: &AppName,
    index: usize,
    event: &Value,
) -> Result<Sent, Problem> {
    let place = format!("events[{index}]");
    let wrong = |text: String| Problem::invalid(format!("{place}{text}"));
    match event["type"].as_str() {
        Some("agent.session.input.message") => {
            let place = format!("{place}.input");
            Ok(Sent::Messages(prompts(gateway, app, &event["input"], &place).await?))
        }
        Some("agent.session.input.cancel") => Ok(Sent::Cancel),
        Some("agent.session.input.tool_result") => {
            let Some(call) = event["call_id"].as_str() else {
                return Err(wrong(".call_id: must be a string".to_owned()));
            };
            let is_error = event["success"] == false;
            let content = if is_error { &event["error"] } else { &event["output"] };
            let content = match content {
                Value::Null => json!(""),
                Value::String(text) => json!(text),
                Value::Array(parts) => Value::Array(parts.iter().map(output_block).collect()),
                _ => return Err(wrong(".output: must be a string or a list of parts".to_owned())),
            };
            Ok(Sent::ToolResult { call: call.to_owned(), content, is_error })
        }
        Some(other) => Err(wrong(format!(".type: Hob does not support {other:?}"))),
        None => Err(wrong(".type: must be a string".to_owned())),
    }
}

fn output_block(part: &Value) -> Value {
    match part["text"].as_str() {
        Some(text) => json!({"type": "text", "text": text}),
        None => json!({"type": "text", "text": part.to_string()}),
    }
}

/// Reads an input: a text, or messages.
pub(super) async fn prompts(
    gateway: &Gateway,
    app: &AppName,
    input: &Value,
    place: &str,
) -> Result<Vec<Prompt>, Problem> {
    if input.is_string() {
        return Ok(vec![prompt::read(gateway, app, input, place).await?]);
    }
    let Some(messages) = input.as_array().filter(|messages| !messages.is_empty()) else {
        return Err(Problem::invalid(format!("{place}: must be a string or a list of messages")));
    };
    let mut prompts = Vec::with_capacity(messages.len());
    for (index, message) in messages.iter().enumerate() {
        let place = format!("{place}[{index}]");
        if message["role"] != "user" {
            return Err(Problem::invalid(format!("{place}.role: must be user")));
        }
        let parts = message["content"].as_array().cloned();
        let content = match parts {
            Some(parts) => Value::Array(parts.iter().map(input_block).collect()),
            None => message["content"].clone(),
        };
        prompts.push(prompt::read(gateway, app, &content, &format!("{place}.content")).await?);
    }
    Ok(prompts)
}

/// Translates a part of a message into Anthropic's format.
fn input_block(part: &Value) -> Value {
    match part["type"].as_str() {
        Some("input_text") => json!({"type": "text", "text": part["text"]}),
        Some("input_image") => {
            let url = part["image_url"].as_str().unwrap_or_default();
            let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
            match data {
                Some((media, data)) => json!({"type": "image",
                    "source": {"type": "base64", "media_type": media, "data": data}}),
                None => json!({"type": "image", "source": {"type": "url", "url": url}}),
            }
        }
        _ => part.clone(),
    }
}

/// Streams the events of a session from now on.
#[utoipa::path(get, path = "/v1/agents/sessions/{id}/events", tag = "v1", operation_id = "stream_openai_session_events",
    security(("token" = [])), params(("id" = String, Path, description = "The session.")), responses(
    (status = 200, description = "The events, as they happen.", content((String = "text/event-stream"))),
    (status = 401, description = "Missing or wrong token.", body = Object),
    (status = 404, description = "No such session of this app.", body = Object),
    (status = 500, description = "Internal error; see Hob's log.", body = Object),
))]
pub(crate) async fn follow(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
) -> Response {
    let opened = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        let session = sessions::find(&gateway, &app.name, &id).await?.session;
        let feed = StepFeed::open(gateway.clone(), &app.name, &session).await?;
        Ok((feed, EventRenderer::new(gateway.clone(), app.name, session.id)))
    };
    match opened.await {
        Ok((feed, renderer)) => respond::stream(events(feed, renderer, Until::SessionEnds)),
        Err(problem) => Dialect::OpenAi.respond(problem),
    }
}

/// When a stream ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    SessionEnds,
    TurnEnds,
}

fn events(
    feed: StepFeed,
    renderer: EventRenderer,
    until: Until,
) -> impl Stream<Item = Value> + Send + 'static {
    let steps = stream::unfold(Some((feed, renderer)), move |opened| async move {
        let (mut feed, mut renderer) = opened?;
        let step = feed.next().await?;
        let events = renderer.render(&step).await;
        let is_last = until == Until::TurnEnds && matches!(step.kind, StepKind::TurnEnded { .. });
        Some((stream::iter(events), (!is_last).then_some((feed, renderer))))
    });
    steps.flatten()
}

/// Streams the events of a new session until its first turn is over and the session is idle.
pub(super) async fn opened(
    gateway: &Arc<Gateway>,
    app: &AppName,
    described: &DescribedSession,
) -> Result<Response, Problem> {
    let session = &described.session;
    let feed = StepFeed::open(gateway.clone(), app, session).await?;
    let renderer = EventRenderer::new(gateway.clone(), app.clone(), session.id.clone());
    let created = json!({"type": "agent.session.created",
        "event_id": format!("event_{}_created", session.id),
        "session": objects::session(described, Activity::Idle, &[])});
    let turn = events(feed, renderer, Until::TurnEnds);
    Ok(respond::stream(stream::iter([created]).chain(turn)))
}
