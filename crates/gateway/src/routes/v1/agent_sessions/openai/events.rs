//! `/v1/agents/sessions/{id}/events`: what happens in a session, and what the caller sends.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use hob_domain::AppName;
use hob_domain::session::{IdempotencyKey, SessionId};
use hob_sessions::session::SessionError;
use serde_json::{Value, json};

use super::objects;
use super::render::EventRenderer;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::idempotency::key_of_turn;
use crate::routes::v1::agent_sessions::feed::{FeedStart, StepFeed, all_steps};
use crate::routes::v1::agent_sessions::incoming::{Incoming, SessionEventsBody};
use crate::routes::v1::agent_sessions::prompt;
pub(super) use crate::routes::v1::agent_sessions::prompt::Prompt;
use crate::routes::v1::agent_sessions::repeats::{earlier_turn, has_result};
use crate::routes::v1::agent_sessions::respond::{self, Called};
use crate::routes::v1::agent_sessions::sessions::{self, Activity, DescribedSession};
use crate::routes::v1::agent_sessions::steps::StepKind;
use crate::routes::v1::content::data_url;
use crate::routes::v1::dialect::{Dialect, Problem};
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// An event that the caller sends. Messages that come one after another are one.
enum Sent {
    Message {
        prompt: Prompt,
        key: Option<IdempotencyKey>,
    },
    /// A message that an earlier request with the same key has sent.
    Repeated,
    Cancel,
    ToolResult {
        call: String,
        content: Value,
        is_error: bool,
    },
}

/// Sends events to a session: messages, cancels and results of the caller's functions.
///
/// A message to a running turn waits for its end. Messages that come one after another start one turn. A request with an
/// `Idempotency-Key` can be repeated: what it has sent is not sent again.
#[utoipa::path(post, path = "/v1/agents/sessions/{id}/events", tag = "v1", operation_id = "send_openai_session_events",
    security(("token" = [])), params(("id" = String, Path, description = "The session."),
        ("Idempotency-Key" = Option<String>, Header, description = "A repeated request with this key sends nothing again.")),
    request_body = SessionEventsBody, responses(
    (status = 204, description = "The events have been taken."),
    (status = 400, description = "Invalid request, or the session has ended.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such session of this app, or nothing waits for this result.", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 413, description = "The body is too large.", body = schemas::VendorError),
    (status = 429, description = "The queue is full, or the app's limit is reached; see Retry-After.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
    (status = 503, description = "Hob is stopping.", body = schemas::VendorError),
))]
pub(crate) async fn send(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
    request: Request,
) -> Response {
    let sent = async {
        let incoming = Incoming::receive(&gateway, &headers, caller, id, request).await?;
        let Incoming { app, id, events, key, is_repeat, .. } = incoming;
        let sender = Sender { gateway: &gateway, app: &app, id: &id, key, is_repeat };
        // All events are checked before the first one has an effect.
        for event in sender.read(&events).await? {
            sender.apply(event).await?;
        }
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    sent.await.unwrap_or_else(|problem: Problem| Dialect::OpenAi.respond(problem))
}

/// A request that sends events to a session.
struct Sender<'a> {
    gateway: &'a Arc<Gateway>,
    app: &'a AppName,
    id: &'a SessionId,
    key: Option<IdempotencyKey>,
    /// Whether an earlier request with the same key has sent its messages or its cancel.
    is_repeat: bool,
}

impl Sender<'_> {
    async fn read(&self, events: &[Value]) -> Result<Vec<Sent>, Problem> {
        let is_message = |event: &Value| event["type"] == "agent.session.input.message";
        let (mut sent, mut index, mut turns) = (Vec::new(), 0, 0);
        while let Some(event) = events.get(index) {
            let messages = events[index..].iter().take_while(|event| is_message(event)).count();
            if messages == 0 {
                sent.push(read_other(index, event)?);
                index += 1;
            } else {
                let key = self.key.as_ref().map(|key| key_of_turn(key, turns));
                sent.push(self.read_messages(events, index..index + messages, key).await?);
                index += messages;
                turns += 1;
            }
        }
        Ok(sent)
    }

    async fn read_messages(
        &self,
        events: &[Value],
        range: std::ops::Range<usize>,
        key: Option<IdempotencyKey>,
    ) -> Result<Sent, Problem> {
        if earlier_turn(self.gateway, self.app, self.id, key.as_ref()).await?.is_some() {
            return Ok(Sent::Repeated);
        }
        let mut messages = Vec::new();
        for index in range {
            let (input, place) = (&events[index]["input"], format!("events[{index}].input"));
            messages.extend(prompts(self.gateway, self.app, input, &place).await?);
        }
        Ok(Sent::Message { prompt: Prompt::joined(messages), key })
    }

    async fn apply(&self, event: Sent) -> Result<(), Problem> {
        let (gateway, app, id) = (self.gateway, self.app, self.id);
        match event {
            Sent::Message { prompt, key } => {
                sessions::submit(gateway, app, id, prompt, key).await?;
            }
            Sent::Repeated => {}
            // The turn that runs now may have been started by this request.
            Sent::Cancel if self.is_repeat => {}
            Sent::Cancel => {
                let (shared, app, id) = (gateway.clone(), app.clone(), id.clone());
                let key = self.key.clone();
                // Both happen even if the caller goes away, so that a caller who comes back finds its cancel.
                respond::uninterrupted(gateway, async move {
                    shared.sessions.cancel(&app, &id).await?;
                    sessions::note_interrupt(&shared, &app, &id, key.as_ref(), None).await
                })
                .await?;
            }
            Sent::ToolResult { call, content, is_error } => {
                let sessions = &gateway.sessions;
                let returned =
                    sessions.return_tool_result(app, id, &call, content.clone(), is_error).await;
                match returned {
                    Err(SessionError::NotFound) if self.key.is_some() => {
                        let steps = all_steps(gateway, app, id).await?;
                        if !has_result(&steps, &call, &content, is_error) {
                            return Err(SessionError::NotFound.into());
                        }
                    }
                    returned => returned?,
                }
            }
        }
        Ok(())
    }
}

fn read_other(index: usize, event: &Value) -> Result<Sent, Problem> {
    let place = format!("events[{index}]");
    let wrong = |text: String| Problem::invalid(format!("{place}{text}"));
    match event["type"].as_str() {
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
                Value::Array(parts) => {
                    let mut blocks = Vec::with_capacity(parts.len());
                    for (index, part) in parts.iter().enumerate() {
                        blocks.push(output_block(part, &format!("{place}.output[{index}]"))?);
                    }
                    Value::Array(blocks)
                }
                _ => return Err(wrong(".output: must be a string or a list of parts".to_owned())),
            };
            Ok(Sent::ToolResult { call: call.to_owned(), content, is_error })
        }
        Some(other) => Err(wrong(format!(".type: Hob does not support {other:?}"))),
        None => Err(wrong(".type: must be a string".to_owned())),
    }
}

/// Translates a part of a function's output into Anthropic's format.
fn output_block(part: &Value, place: &str) -> Result<Value, Problem> {
    match part["type"].as_str() {
        Some("input_text") if part["text"].is_string() => {
            Ok(json!({"type": "text", "text": part["text"]}))
        }
        Some("input_image") => data_url(&part["image_url"], "image", &format!("{place}.image_url")),
        _ => Err(Problem::invalid(format!("{place}: must be an input_text or an input_image"))),
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
        let place = format!("{place}.content");
        let block = |(index, part)| input_block(part, &format!("{place}[{index}]"));
        let content = match message["content"].as_array() {
            Some(parts) => parts.iter().enumerate().map(block).collect::<Result<_, _>>()?,
            None => message["content"].clone(),
        };
        prompts.push(prompt::read(gateway, app, &content, &place).await?);
    }
    Ok(prompts)
}

/// Translates a part of a message into Anthropic's format.
fn input_block(part: &Value, place: &str) -> Result<Value, Problem> {
    match part["type"].as_str() {
        Some("input_text") => Ok(json!({"type": "text", "text": part["text"]})),
        Some("input_image") => data_url(&part["image_url"], "image", &format!("{place}.image_url")),
        _ => Ok(part.clone()),
    }
}

/// Streams the events of a session from now on.
///
/// A client that resumes a stream sends the id of the last event that it has received in `Last-Event-ID`, and gets all
/// events after it. Events have the same ids in every stream.
#[utoipa::path(get, path = "/v1/agents/sessions/{id}/events", tag = "v1", operation_id = "stream_openai_session_events",
    security(("token" = [])), params(("id" = String, Path, description = "The session."),
        ("Last-Event-ID" = Option<String>, Header, description = "Begin after this event.")), responses(
    (status = 200, description = "The events, as they happen.", content((String = "text/event-stream"))),
    (status = 400, description = "The session has no event with the id in Last-Event-ID.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such session of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn follow(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
) -> Response {
    let opened = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        let session = sessions::find(&gateway, &app.name, &id).await?.session;
        let last_id = respond::last_event_id(&headers)?;
        let start = if last_id.is_some() { FeedStart::Session } else { FeedStart::RunningTurn };
        let (feed, before) = StepFeed::open(gateway.clone(), &app.name, &session, start).await?;
        let mut renderer = EventRenderer::new(gateway.clone(), app.name, session.id.clone());
        let mut missed = Vec::new();
        for step in &before {
            missed.extend(renderer.render(step).await);
        }
        let missed = match last_id {
            Some(id) if id == created_id(&session.id) => missed,
            Some(id) => respond::events_after(missed, "event_id", id)?,
            None => Vec::new(),
        };
        Ok::<_, Problem>((missed, events(feed, renderer, Until::SessionEnds)))
    };
    match opened.await {
        Ok((missed, events)) => respond::stream(stream::iter(missed).chain(events), "event_id"),
        Err(problem) => Dialect::OpenAi.respond(problem),
    }
}

/// Returns the id of the event with which a streamed session begins.
fn created_id(id: &SessionId) -> String {
    format!("event_{id}_created")
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

/// Streams the events of a session from its creation until its first turn is over and the session is idle.
pub(super) async fn opened(
    gateway: &Arc<Gateway>,
    app: &AppName,
    described: &DescribedSession,
) -> Result<Response, Problem> {
    let session = &described.session;
    let start = FeedStart::FirstTurn;
    let (feed, before) = StepFeed::open(gateway.clone(), app, session, start).await?;
    let mut renderer = EventRenderer::new(gateway.clone(), app.clone(), session.id.clone());
    let mut first = vec![json!({"type": "agent.session.created",
        "event_id": created_id(&session.id),
        "session": objects::session(described, Activity::Idle, &[])})];
    // A request that is repeated may find the turn begun, or over.
    for step in &before {
        first.extend(renderer.render(step).await);
        if matches!(step.kind, StepKind::TurnEnded { .. }) {
            return Ok(respond::stream(stream::iter(first), "event_id"));
        }
    }
    let turn = events(feed, renderer, Until::TurnEnds);
    Ok(respond::stream(stream::iter(first).chain(turn), "event_id"))
}
