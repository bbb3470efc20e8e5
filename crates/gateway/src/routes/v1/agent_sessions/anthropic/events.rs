//! `/v1/sessions/{id}/events`: what happens in a session, and what the caller sends.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::response::Response;
use hob_domain::session::{SessionId, TurnState};
use hob_domain::{AppName, Timestamp};
use hob_sessions::session::SessionError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::render::{Deltas, EventRenderer, seq_of, user_message};
use crate::error::ApiError;
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::routes::v1::agent_sessions::cursor::{Query, anthropic_page};
use crate::routes::v1::agent_sessions::feed::{StepFeed, all_steps, open_turn_steps};
use crate::routes::v1::agent_sessions::prompt::{self, Prompt};
use crate::routes::v1::agent_sessions::respond::{self, Called, answer};
use crate::routes::v1::agent_sessions::sessions;
use crate::routes::v1::agent_sessions::steps::{Step, StepKind};
use crate::routes::v1::dialect::{Dialect, Problem};
use crate::state::Gateway;

/// The most events of one request.
const MAX_EVENTS: usize = 20;
/// The most turns that can wait at a time.
const RECENT_TURNS: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendBody {
    events: Vec<Value>,
}

/// An event that the caller sends.
enum Sent {
    Message(Prompt),
    Interrupt,
    Confirmation { event: Value, request: String, option: &'static str },
    ToolResult { event: Value, call: String, content: Value, is_error: bool },
}

/// Sends events to a session: messages, interrupts, confirmations and results of the caller's tools.
#[utoipa::path(post, path = "/v1/sessions/{id}/events", tag = "v1", operation_id = "send_session_events",
    security(("token" = [])), params(("id" = String, Path, description = "The session.")), request_body = Object, responses(
    (status = 200, description = "The events.", body = Object),
    (status = 400, description = "Invalid request, or the session has ended.", body = Object),
    (status = 401, description = "Missing or wrong token.", body = Object),
    (status = 404, description = "No such session of this app, or no pending tool call or permission request has this ID.", body = Object),
    (status = 408, description = "The body did not arrive in time.", body = Object),
    (status = 413, description = "The body is too large.", body = Object),
    (status = 429, description = "The queue is full, or the app's limit is reached; see Retry-After.", body = Object),
    (status = 500, description = "Internal error; see Hob's log.", body = Object),
    (status = 529, description = "Hob is stopping (`overloaded_error`).", body = Object),
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
        let steps = open_turn_steps(&gateway, &app.name, &session.id).await?;
        let mut events = Vec::with_capacity(body.events.len());
        for (index, event) in body.events.into_iter().enumerate() {
            events.push(read(&gateway, &app.name, &session.id, &steps, index, event).await?);
        }
        let mut data = Vec::with_capacity(events.len());
        for event in events {
            data.push(apply(&gateway, &app.name, &session.id, event).await?);
        }
        Ok(json!({"data": data}))
    };
    answer(Dialect::Anthropic, sent.await)
}

/// Reads the messages that a session begins with.
pub(super) async fn initial(
    gateway: &Gateway,
    app: &AppName,
    events: &[Value],
) -> Result<Vec<Prompt>, Problem> {
    let mut prompts = Vec::with_capacity(events.len());
    for (index, event) in events.iter().enumerate() {
        let place = format!("initial_events[{index}]");
        if event["type"] != "user.message" {
            return Err(Problem::invalid(format!("{place}.type: must be user.message")));
        }
        let content = &event["content"];
        prompts.push(prompt::read(gateway, app, content, &format!("{place}.content")).await?);
    }
    Ok(prompts)
}

async fn read(
    gateway: &Gateway,
    app: &AppName,
    id: &SessionId,
    steps: &[Step],
    index: usize,
    event: Value,
) -> Result<Sent, Problem> {
    let place = format!("events[{index}]");
    let wrong = |text: String| Problem::invalid(format!("{place}{text}"));
    match event["type"].as_str() {
        Some("user.message") => {
            let place = format!("{place}.content");
            Ok(Sent::Message(prompt::read(gateway, app, &event["content"], &place).await?))
        }
        Some("user.interrupt") => Ok(Sent::Interrupt),
        Some("user.tool_confirmation") => {
            let option = match event["result"].as_str() {
                Some("allow") => "allow_once",
                Some("deny") => "reject_once",
                _ => return Err(wrong(".result: must be allow or deny".to_owned())),
            };
            let seq = seq_of(id, event["tool_use_id"].as_str().unwrap_or_default());
            let request = steps.iter().find_map(|step| match &step.kind {
                StepKind::ToolUsed { call, request } if Some(call.first) == seq => request.clone(),
                _ => None,
            });
            let request = request.ok_or_else(|| nothing_waits(&place, "tool_use_id"))?;
            Ok(Sent::Confirmation { event, request, option })
        }
        Some("user.custom_tool_result") => {
            let seq = seq_of(id, event["custom_tool_use_id"].as_str().unwrap_or_default());
            let call = steps.iter().find_map(|step| match &step.kind {
                StepKind::ClientToolUsed { first, call, .. } if Some(*first) == seq => {
                    Some(call.clone())
                }
                _ => None,
            });
            let call = call.ok_or_else(|| nothing_waits(&place, "custom_tool_use_id"))?;
            let content = match &event["content"] {
                Value::Null => json!(""),
                Value::Array(_) | Value::String(_) => event["content"].clone(),
                _ => return Err(wrong(".content: must be a list of content blocks".to_owned())),
            };
            let is_error = event["is_error"] == true;
            Ok(Sent::ToolResult { event, call, content, is_error })
        }
        Some(other) => Err(wrong(format!(".type: Hob does not support {other:?}"))),
        None => Err(wrong(".type: must be a string".to_owned())),
    }
}

fn nothing_waits(place: &str, field: &str) -> Problem {
    ApiError::NotFound(format!(
        "{place}.{field}: no pending tool call or permission request has this ID"
    ))
    .into()
}

async fn apply(
    gateway: &Gateway,
    app: &AppName,
    id: &SessionId,
    event: Sent,
) -> Result<Value, Problem> {
    let echoed = |mut event: Value| {
        event["id"] = json!(format!("sevt_{id}_{}", uuid::Uuid::new_v4().simple()));
        event["processed_at"] = json!(Timestamp::now().to_string());
        event
    };
    match event {
        Sent::Message(Prompt { text, files }) => {
            let turn = sessions::submit(gateway, app, id, text.clone(), files).await?;
            Ok(user_message(id, turn, &text, None))
        }
        Sent::Interrupt => {
            gateway.sessions.cancel(app, id).await?;
            Ok(echoed(json!({"type": "user.interrupt"})))
        }
        Sent::Confirmation { event, request, option } => {
            match gateway.sessions.answer(app, id, &request, option, None).await {
                Err(SessionError::Invalid(text)) if text.starts_with("content") => {
                    let text = "the agent asks for the fields of a form, which a confirmation cannot have: deny it, or answer it with `hob allow --content`";
                    Err(ApiError::bad_request(text).into())
                }
                answered => {
                    answered?;
                    Ok(echoed(event))
                }
            }
        }
        Sent::ToolResult { event, call, content, is_error } => {
            let returned =
                gateway.sessions.return_tool_result(app, id, &call, content, is_error).await;
            returned?;
            Ok(echoed(event))
        }
    }
}

/// Lists the events of a session.
#[utoipa::path(get, path = "/v1/sessions/{id}/events", tag = "v1", operation_id = "list_session_events",
    security(("token" = [])), params(("id" = String, Path, description = "The session."),
        ("limit" = Option<u32>, Query, description = "At most this many, from 1 to 1000."),
        ("page" = Option<String>, Query, description = "`next_page` of the page before."),
        ("order" = Option<String>, Query, description = "`asc` (the default) or `desc`."),
        ("types" = Option<Vec<String>>, Query, description = "Only events of these types.")), responses(
    (status = 200, description = "The events.", body = Object),
    (status = 400, description = "Invalid query; the error names the parameter.", body = Object),
    (status = 401, description = "Missing or wrong token.", body = Object),
    (status = 404, description = "No such session of this app.", body = Object),
    (status = 500, description = "Internal error; see Hob's log.", body = Object),
))]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
    query: Called<Query>,
) -> Response {
    let listed = async {
        let (Caller(app), ApiPath(id), query) = (caller?, id?, query?);
        let session = sessions::find(&gateway, &app.name, &id).await?.session;
        let (app, id) = (app.name, session.id);
        let deltas = Deltas::default();
        let mut renderer = EventRenderer::new(gateway.clone(), app.clone(), id.clone(), deltas);
        let mut events = Vec::new();
        for step in all_steps(&gateway, &app, &id).await? {
            events.extend(renderer.render(&step).await);
        }
        let turns = gateway.sessions.turns_before(&app, &id, u32::MAX, RECENT_TURNS).await;
        for turn in turns? {
            if turn.state == TurnState::Queued {
                events.push(user_message(&id, turn.index, &turn.prompt, None));
            }
        }
        let types = query.all("types");
        if !types.is_empty() {
            events.retain(|event| event["type"].as_str().is_some_and(|kind| types.contains(&kind)));
        }
        if query.is_descending("asc")? {
            events.reverse();
        }
        Ok(anthropic_page(events, &query)?)
    };
    answer(Dialect::Anthropic, listed.await)
}

/// Streams the events of a session from now on.
#[utoipa::path(get, path = "/v1/sessions/{id}/events/stream", tag = "v1", operation_id = "stream_session_events",
    security(("token" = [])), params(("id" = String, Path, description = "The session."),
        ("event_deltas" = Option<Vec<String>>, Query,
            description = "`agent.message`, `agent.thinking`: also send these texts while they are written.")), responses(
    (status = 200, description = "The events, as they happen.", content((String = "text/event-stream"))),
    (status = 401, description = "Missing or wrong token.", body = Object),
    (status = 404, description = "No such session of this app.", body = Object),
    (status = 500, description = "Internal error; see Hob's log.", body = Object),
))]
pub(crate) async fn stream(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
    query: Called<Query>,
) -> Response {
    let opened = async {
        let (Caller(app), ApiPath(id), query) = (caller?, id?, query?);
        let session = sessions::find(&gateway, &app.name, &id).await?.session;
        let feed = StepFeed::open(gateway.clone(), &app.name, &session).await?;
        let wanted = query.all("event_deltas");
        let deltas = Deltas {
            answer: wanted.contains(&"agent.message"),
            thinking: wanted.contains(&"agent.thinking"),
        };
        let renderer = EventRenderer::new(gateway.clone(), app.name, session.id, deltas);
        Ok::<_, Problem>((feed, renderer))
    };
    match opened.await {
        Ok(opened) => {
            let steps = futures_util::stream::unfold(opened, |(mut feed, mut renderer)| async {
                let step = feed.next().await?;
                let events = renderer.render(&step).await;
                Some((futures_util::stream::iter(events), (feed, renderer)))
            });
            respond::stream(futures_util::StreamExt::flatten(steps))
        }
        Err(problem) => Dialect::Anthropic.respond(problem),
    }
}
