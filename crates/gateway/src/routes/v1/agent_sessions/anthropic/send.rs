//! What a caller sends to a session of Anthropic's API.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use hob_domain::session::{EventKind, EventRange, IdempotencyKey, SessionId};
use hob_domain::{AppName, Timestamp};
use hob_sessions::session::SessionError;
use serde_json::{Value, json};

use super::render::{answer_id, event_id, result_id, seq_of, user_message};
use crate::error::ApiError;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::idempotency::key_of_turn;
use crate::routes::v1::agent_sessions::feed::{all_steps, open_turn_steps};
use crate::routes::v1::agent_sessions::incoming::{Incoming, SessionEventsBody};
use crate::routes::v1::agent_sessions::prompt::{self, Prompt};
use crate::routes::v1::agent_sessions::repeats::{
    SentInterrupt, earlier_turn, has_answer, has_result,
};
use crate::routes::v1::agent_sessions::respond::{Called, answer, uninterrupted};
use crate::routes::v1::agent_sessions::sessions;
use crate::routes::v1::agent_sessions::steps::{Step, StepKind};
use crate::routes::v1::content::readable_result;
use crate::routes::v1::dialect::{Dialect, Problem};
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// In how many of the last events an interrupt is looked for.
const RECENT_EVENTS: usize = 200;

/// An event that the caller sends. Messages that come one after another are one.
enum Sent {
    Message {
        prompt: Prompt,
        key: Option<IdempotencyKey>,
    },
    /// A message that an earlier request with the same key has sent.
    Repeated {
        turn: u32,
    },
    Interrupt,
    Confirmation {
        event: Value,
        call: u64,
        request: String,
        deny_message: Option<String>,
    },
    ToolResult {
        event: Value,
        first: u64,
        call: String,
        content: Value,
    },
}

/// Sends events to a session: messages, interrupts, confirmations and results of the caller's tools.
///
/// Messages that come one after another start one turn. A request with an `Idempotency-Key` can be repeated: what it has
/// sent is not sent again.
#[utoipa::path(post, path = "/v1/sessions/{id}/events", tag = "v1", operation_id = "send_session_events",
    security(("token" = [])), params(("id" = String, Path, description = "The session."),
        ("Idempotency-Key" = Option<String>, Header, description = "A repeated request with this key sends nothing again.")),
    request_body = SessionEventsBody, responses(
    (status = 200, description = "The events.", body = schemas::ObjectPage),
    (status = 400, description = "Invalid request, or the session has ended.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such session of this app, or no pending tool call or permission request has this ID.", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 413, description = "The body is too large.", body = schemas::VendorError),
    (status = 429, description = "The queue is full, or the app's limit is reached; see Retry-After.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
    (status = 529, description = "Hob is stopping (`overloaded_error`).", body = schemas::VendorError),
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
        let Incoming { app, id, events, key, is_repeat, interrupt } = incoming;
        // What a repeated request has answered may belong to a turn that is over.
        let steps = match key {
            Some(_) => all_steps(&gateway, &app, &id).await?,
            None => open_turn_steps(&gateway, &app, &id).await?,
        };
        let (gateway, app, id) = (&gateway, &app, &id);
        let sender = Sender { gateway, app, id, steps, key, is_repeat, interrupt };
        // All events are checked before the first one has an effect.
        let mut data = Vec::with_capacity(events.len());
        for event in sender.read(&events).await? {
            data.push(sender.apply(event).await?);
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

/// A request that sends events to a session.
struct Sender<'a> {
    gateway: &'a Arc<Gateway>,
    app: &'a AppName,
    id: &'a SessionId,
    /// The steps in which the events' tool calls are.
    steps: Vec<Step>,
    key: Option<IdempotencyKey>,
    /// Whether an earlier request with the same key has sent its messages or its interrupt.
    is_repeat: bool,
    /// The interrupt of an earlier request with the same key.
    interrupt: Option<SentInterrupt>,
}

impl Sender<'_> {
    async fn read(&self, events: &[Value]) -> Result<Vec<Sent>, Problem> {
        let is_message = |event: &Value| event["type"] == "user.message";
        let (mut sent, mut index, mut turns) = (Vec::new(), 0, 0);
        while let Some(event) = events.get(index) {
            let messages = events[index..].iter().take_while(|event| is_message(event)).count();
            if messages == 0 {
                sent.push(self.read_other(index, event)?);
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
        let earlier = earlier_turn(self.gateway, self.app, self.id, key.as_ref()).await?;
        if let Some(turn) = earlier {
            return Ok(Sent::Repeated { turn });
        }
        let mut prompts = Vec::with_capacity(range.len());
        for index in range {
            let (content, place) = (&events[index]["content"], format!("events[{index}].content"));
            prompts.push(prompt::read(self.gateway, self.app, content, &place).await?);
        }
        Ok(Sent::Message { prompt: Prompt::joined(prompts), key })
    }

    fn read_other(&self, index: usize, event: &Value) -> Result<Sent, Problem> {
        let place = format!("events[{index}]");
        let wrong = |text: String| Problem::invalid(format!("{place}{text}"));
        let seq = |field: &str| seq_of(self.id, event[field].as_str().unwrap_or_default());
        match event["type"].as_str() {
            Some("user.interrupt") => Ok(Sent::Interrupt),
            Some("user.tool_confirmation") => {
                if !matches!(event["result"].as_str(), Some("allow" | "deny")) {
                    return Err(wrong(".result: must be allow or deny".to_owned()));
                }
                let deny_message = match &event["deny_message"] {
                    Value::Null => None,
                    Value::String(text) if event["result"] == "deny" => Some(text.clone()),
                    Value::String(_) => {
                        let text = ".deny_message: only a denial can have it";
                        return Err(wrong(text.to_owned()));
                    }
                    _ => return Err(wrong(".deny_message: must be a string".to_owned())),
                };
                let seq = seq("tool_use_id");
                let waiting = self.steps.iter().find_map(|step| match &step.kind {
                    StepKind::ToolUsed { call, request: Some(request) }
                        if Some(call.first) == seq =>
                    {
                        Some((call.first, request.clone()))
                    }
                    _ => None,
                });
                let (call, request) =
                    waiting.ok_or_else(|| nothing_waits(&place, "tool_use_id"))?;
                Ok(Sent::Confirmation { event: event.clone(), call, request, deny_message })
            }
            Some(kind @ ("user.custom_tool_result" | "user.tool_result")) => {
                let is_custom = kind == "user.custom_tool_result";
                let field = if is_custom { "custom_tool_use_id" } else { "tool_use_id" };
                let seq = seq(field);
                let is_own = |step: &Step| matches!(&step.kind, StepKind::ToolUsed { call, .. } if Some(call.first) == seq);
                if self.steps.iter().any(is_own) {
                    let text = format!(
                        ".{field}: the agent runs this tool itself; only calls of custom tools take results"
                    );
                    return Err(wrong(text));
                }
                let waiting = self.steps.iter().find_map(|step| match &step.kind {
                    StepKind::ClientToolUsed { first, call, .. } if Some(*first) == seq => {
                        Some((*first, call.clone()))
                    }
                    _ => None,
                });
                let (first, call) = waiting.ok_or_else(|| nothing_waits(&place, field))?;
                let content = match &event["content"] {
                    Value::Null => json!(""),
                    Value::Array(_) | Value::String(_) => event["content"].clone(),
                    _ => {
                        return Err(wrong(".content: must be a list of content blocks".to_owned()));
                    }
                };
                let content = readable_result(content, &format!("{place}.content"))?;
                Ok(Sent::ToolResult { event: event.clone(), first, call, content })
            }
            Some(other) => Err(wrong(format!(".type: Hob does not support {other:?}"))),
            None => Err(wrong(".type: must be a string".to_owned())),
        }
    }

    /// Carries out an event, and returns it as the log has it.
    async fn apply(&self, event: Sent) -> Result<Value, Problem> {
        let (sessions, app, id) = (&self.gateway.sessions, self.app, self.id);
        match event {
            Sent::Message { prompt, key } => {
                let (text, files) = (prompt.text.clone(), prompt.files.clone());
                let turn = sessions::submit(self.gateway, app, id, prompt, key).await?;
                Ok(user_message(id, turn, &text, &files, None))
            }
            Sent::Repeated { turn } => {
                let turn = sessions.turn(app, id, turn).await?;
                let at = turn.started_at.map(|at| at.to_string());
                Ok(user_message(id, turn.index, &turn.prompt, &turn.files, at.as_deref()))
            }
            Sent::Interrupt => {
                // The turn that runs now may have been started by this request.
                let logged = match &self.interrupt {
                    Some(interrupt) => interrupt.event_id.clone(),
                    None if self.is_repeat => last_interrupt(self.gateway, app, id).await?,
                    None => Some(self.interrupt().await?),
                };
                let logged = logged.unwrap_or_else(|| new_event_id(id));
                Ok(echoed(json!({"type": "user.interrupt"}), logged))
            }
            Sent::Confirmation { event, call, request, deny_message } => {
                let is_allowed = event["result"] == "allow";
                let option = if is_allowed { "allow_once" } else { "reject_once" };
                let answered = sessions.answer(app, id, &request, option, None, deny_message).await;
                match answered {
                    Err(SessionError::NotFound)
                        if self.key.is_some() && has_answer(&self.steps, call, is_allowed) => {}
                    Err(SessionError::Invalid(text)) if text.starts_with("content") => {
                        let text = "the agent asks for the fields of a form, which a confirmation cannot have: deny it, or answer it with `hob allow --content`";
                        return Err(ApiError::bad_request(text).into());
                    }
                    answered => answered?,
                }
                Ok(echoed(event, answer_id(id, call)))
            }
            Sent::ToolResult { event, first, call, content } => {
                let is_error = event["is_error"] == true;
                let is_repeated =
                    self.key.is_some() && has_result(&self.steps, &call, &content, is_error);
                match sessions.return_tool_result(app, id, &call, content, is_error).await {
                    Err(SessionError::NotFound) if is_repeated => {}
                    returned => returned?,
                }
                Ok(echoed(event, result_id(id, first)))
            }
        }
    }

    /// Interrupts the running turn and returns the id of the event that says so. Both happen even if the caller goes away,
    /// so that a caller who comes back finds its interrupt.
    async fn interrupt(&self) -> Result<String, ApiError> {
        let (gateway, app, id) = (self.gateway.clone(), self.app.clone(), self.id.clone());
        let key = self.key.clone();
        let interrupt = async move {
            gateway.sessions.cancel(&app, &id).await?;
            let logged = last_interrupt(&gateway, &app, &id).await?;
            let logged = logged.unwrap_or_else(|| new_event_id(&id));
            let shown = Some(logged.clone());
            sessions::note_interrupt(&gateway, &app, &id, key.as_ref(), shown).await?;
            Ok(logged)
        };
        uninterrupted(self.gateway, interrupt).await
    }
}

/// Returns the id of the last event that says that a caller interrupted a turn.
async fn last_interrupt(
    gateway: &Gateway,
    app: &AppName,
    id: &SessionId,
) -> Result<Option<String>, ApiError> {
    let range = EventRange::Before { before: u64::MAX >> 1, limit: RECENT_EVENTS };
    let events = gateway.sessions.events(app, id, range).await?;
    let mut cancels = events.iter().filter(|stored| stored.event.kind == EventKind::Cancel);
    Ok(cancels.next_back().map(|stored| event_id(id, stored.seq)))
}

fn new_event_id(id: &SessionId) -> String {
    format!("sevt_{id}_{}", uuid::Uuid::new_v4().simple())
}

fn nothing_waits(place: &str, field: &str) -> Problem {
    ApiError::NotFound(format!(
        "{place}.{field}: no pending tool call or permission request has this ID"
    ))
    .into()
}

/// Returns an event of the caller with its id and the time.
fn echoed(mut event: Value, id: String) -> Value {
    event["id"] = json!(id);
    event["processed_at"] = json!(Timestamp::now().to_string());
    event
}
