//! `POST /v1/responses`: making a response.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Json, Response};
use hob_domain::{App, AppFilter};
use hob_sessions::Conversation;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::super::attachments::{merged, prompt};
use super::super::content;
use super::super::dialect::{Dialect, Problem, SESSION_HEADER};
use super::super::ignored::{IgnoredFields, UnknownFields};
use super::super::metadata::checked_metadata;
use super::super::models;
use super::super::reply::Reply;
use super::super::system_prompt::{self, conversation};
use super::super::{structured, tools};
use super::history::{self, NamedHistory};
use super::keeper::Keeper;
use super::object::ResponseObject;
use super::{input, stream};
use crate::error::ApiError;
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// A request for a response. Fields that are not here are accepted without effect.
#[derive(Deserialize, ToSchema)]
#[schema(example = json!({"model": "claude", "input": "Say hello."}))]
pub(crate) struct ResponseBody {
    /// A model name of Claude Code; `claude` is its default.
    model: Option<String>,
    /// The conversation, or what is new since `previous_response_id`: a text, or items (messages, `function_call`,
    /// `function_call_output`, `item_reference`).
    #[schema(value_type = Value)]
    input: Option<Value>,
    /// Added to Claude Code's system prompt.
    instructions: Option<String>,
    stream: Option<bool>,
    /// The client's own functions, in addition to the tools of Claude Code. An answer that calls one ends with
    /// `function_call` items, and the next request with their outputs continues the turn.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
    /// `auto`, `none`, `required` or a function.
    #[schema(value_type = Option<Value>)]
    tool_choice: Option<Value>,
    /// With `false`, an answer has at most one call.
    parallel_tool_calls: Option<bool>,
    /// `format` is `text`, `json_object` or `json_schema`. An answer without the form is asked for once more, and is then
    /// an error.
    #[schema(value_type = Option<Object>)]
    text: Option<Value>,
    /// A stored response that this one continues.
    previous_response_id: Option<String>,
    /// Whether the response is stored; `true` if absent.
    store: Option<bool>,
    /// Whether the response is made after the answer to this request. It must be stored. Its stream can be read by several
    /// clients, also later (`GET /v1/responses/{id}?stream=true`), and goes on without them.
    background: Option<bool>,
    /// The ID of a conversation, or an object with it. Its items precede the input; the input and the output are added
    /// to it once the response is complete. Not together with `previous_response_id`.
    #[schema(value_type = Option<Value>)]
    conversation: Option<Value>,
    /// Must be absent.
    #[schema(value_type = Option<String>, max_length = 0)]
    prompt: Option<Value>,
    #[serde(flatten)]
    #[schema(ignore)]
    unknown: UnknownFields,
}

/// OpenAI's Responses on Claude Code.
///
/// Hob finds the live process by the history. The answer contains all texts of the turn. A client that disconnects ends
/// its turn, except for a response in the background. Stored responses are deleted after `sessions.hard_ttl_secs`.
#[utoipa::path(post, path = "/v1/responses", tag = "v1", operation_id = "create_response", request_body = ResponseBody,
    security(("token" = [])), responses(
    (status = 200, description = "The response, or a stream of its events. The header `x-hob-session` says whether the process was `warm`, `seeded` or `fresh`. The header `x-hob-ignored` lists the fields that had no effect.",
        content((schemas::OpenAiResponseObject = "application/json"), (Object = "text/event-stream"))),
    (status = 400, description = "Invalid request (`invalid_request_error`).", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token (`invalid_api_key`).", body = schemas::VendorError),
    (status = 404, description = "Unknown model, previous response or conversation.", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 413, description = "The body is too large.", body = schemas::VendorError),
    (status = 429, description = "The app has used up its quota, or the model's rate limit is reached (`rate_limit_exceeded`).", body = schemas::VendorError),
    (status = 500, description = "Internal error (`server_error`).", body = schemas::VendorError),
    (status = 503, description = "`sessions.max_live` is reached; see Retry-After.", body = schemas::VendorError),
    (status = 504, description = "The turn timed out.", body = schemas::VendorError),
))]
pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    caller: Result<Caller, ApiError>,
    request: Request,
) -> Response {
    answer(gateway, caller, request).await.unwrap_or_else(|problem| {
        tracing::info!(code = problem.code(), "a response failed");
        Dialect::OpenAi.respond(problem.in_responses())
    })
}

async fn answer(
    gateway: Arc<Gateway>,
    caller: Result<Caller, ApiError>,
    request: Request,
) -> Result<Response, Problem> {
    let Caller(app) = caller?;
    // Authenticate before reading the body.
    let JsonBody(request) = JsonBody::<Value>::from_request(request, &gateway).await?;
    let (body, items, history, asked) = read(&gateway, &app, &request).await?;
    let without_effect = without_effect(&body);
    let model = body.model.unwrap_or_else(|| models::DEFAULT.to_owned());
    let mut response = ResponseObject::new(&request, &model);
    let conversation = history.conversation().map(str::to_owned);
    if let Some(id) = &conversation {
        response.set("conversation", json!({"id": id}));
    }
    let is_stored = body.store != Some(false);
    let is_background = body.background == Some(true);
    let running = || gateway.responses.begin(&app.name, response.id(), is_background);
    let running = is_stored.then(running);
    let keeper =
        Keeper { gateway: gateway.clone(), app: app.clone(), items, conversation, running };
    if is_background {
        let is_streamed = body.stream == Some(true);
        let mut answer = in_background(keeper, asked, response, is_streamed).await?;
        without_effect.note(&mut answer);
        return Ok(answer);
    }
    let reply = Reply::to(&gateway, &app, asked).await?;
    let origin = reply.origin().as_str();
    let mut answer = match body.stream.unwrap_or_default() {
        true => {
            let reply = reply.begun().await?;
            if let Some(model) = &reply.model {
                response.set("model", json!(model));
            }
            // It can be read while it is streamed.
            keeper.store(&response).await?;
            stream::stream(reply, response, keeper).into_response()
        }
        false => {
            response.complete_with(reply.whole().await?);
            keeper.keep(&response).await;
            Json(response.value()).into_response()
        }
    };
    answer.headers_mut().insert(SESSION_HEADER, HeaderValue::from_static(origin));
    without_effect.note(&mut answer);
    Ok(answer)
}

fn without_effect(body: &ResponseBody) -> IgnoredFields {
    // The response repeats the metadata.
    let mut without_effect = IgnoredFields::new(&body.unknown).without("metadata");
    without_effect.add_within("text", body.text.as_ref(), "format");
    without_effect.add_tools(body.tools.as_deref());
    let items = body.input.as_ref().and_then(Value::as_array);
    without_effect.add_messages("input", items.map_or(&[][..], Vec::as_slice));
    without_effect
}

/// Reads a request: its fields, the items of its input, what it continues, and what the agent is asked.
async fn read(
    gateway: &Arc<Gateway>,
    app: &App,
    request: &Value,
) -> Result<(ResponseBody, Vec<Value>, NamedHistory, Conversation), Problem> {
    let body = ResponseBody::parse(request)?;
    let model = models::asked(gateway, body.model.as_deref())?;
    let (mut items, history) = body.items()?;
    gateway.responses.resolve(&app.name, &mut items).await?;
    let earlier = history.items(gateway, &app.name).await?;
    let mut asked = body.conversation(&earlier, &items)?;
    asked.prompt = prompt(gateway, &app.name, &asked.messages).await?;
    asked.model = model;
    Ok((body, items, history, asked))
}

impl ResponseBody {
    fn parse(request: &Value) -> Result<ResponseBody, Problem> {
        let wrong = |error: serde_path_to_error::Error<serde_json::Error>| {
            ApiError::bad_request(format!("{}: {}", error.path(), error.inner()))
        };
        if !request.is_object() {
            return Err(ApiError::bad_request("the body must be a JSON object").into());
        }
        let body: ResponseBody = serde_path_to_error::deserialize(request).map_err(wrong)?;
        match &request["metadata"] {
            Value::Null => {}
            Value::Object(metadata) => checked_metadata(metadata)?,
            _ => return Err(ApiError::bad_request("metadata: must be an object").into()),
        }
        refuse(&body)?;
        Ok(body)
    }

    /// Returns the items of the input, and what they continue.
    fn items(&self) -> Result<(Vec<Value>, NamedHistory), Problem> {
        let (conversation, response) = (&self.conversation, &self.previous_response_id);
        let history = history::named(conversation.as_ref(), response.as_deref())?;
        let items = match (&self.input, history.conversation()) {
            // The conversation may end with the prompt.
            (None | Some(Value::Null), Some(_)) => Vec::new(),
            (input, _) => input::items(input.as_ref())?,
        };
        Ok((items, history))
    }

    /// Returns the conversation, without its attachments and its model.
    fn conversation(&self, earlier: &[Value], items: &[Value]) -> Result<Conversation, Problem> {
        let (tools, choice) = (self.tools.as_deref(), self.tool_choice.as_ref());
        let tools = tools::responses(tools, choice, self.parallel_tool_calls)?;
        let form = structured::responses(self.text.as_ref())?;
        let input = input::conversation(earlier, items)?;
        input::check_calls(earlier.iter().chain(items))?;
        let instructions = self.instructions.iter().cloned();
        let systems: Vec<String> = instructions.chain(input.systems).collect();
        let system = system_prompt::checked(systems.join("\n\n"))?;
        let messages = merged(content::readable(input.messages)?);
        Ok(conversation(messages, system, tools, form))
    }
}

/// Reads a request that continues nothing, without the server's state.
pub(in crate::routes::v1) fn read_alone(request: &Value) -> Result<Conversation, Problem> {
    let body = ResponseBody::parse(request)?;
    let (items, _) = body.items()?;
    body.conversation(&[], &items)
}

/// Refuses what Hob cannot honour.
fn refuse(body: &ResponseBody) -> Result<(), Problem> {
    let is_given = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
    let text = match body {
        _ if is_given(&body.prompt) => "prompt: not supported; send the texts themselves",
        _ if body.background != Some(true) => return Ok(()),
        _ if body.store == Some(false) => "background: a response in the background must be stored",
        _ => return Ok(()),
    };
    Err(ApiError::bad_request(text).into())
}

/// Starts a response in the background and returns it as it is now, or a stream of its events.
async fn in_background(
    keeper: Keeper,
    asked: Conversation,
    mut response: ResponseObject,
    is_streamed: bool,
) -> Result<Response, Problem> {
    response.set("background", json!(true));
    response.set("status", json!("queued"));
    let gateway = keeper.gateway.clone();
    // A request beyond the app's limits is refused and leaves nothing.
    let admitted = Reply::admit(&gateway, &keeper.app, asked).await?;
    keeper.store(&response).await?;
    let log = keeper.events().unwrap_or_default();
    for kind in ["response.created", "response.queued"] {
        stream::log_whole(&response, &log, kind);
    }
    let answer = match is_streamed {
        true => stream::follow(log.clone(), 0).into_response(),
        false => Json(response.value()).into_response(),
    };
    let task_gateway = gateway.clone();
    gateway.runtime.tasks.spawn(async move {
        let mut begun = response.clone();
        begun.set("status", json!("in_progress"));
        let made = async {
            let reply = admitted.start(&task_gateway).await.map_err(Problem::in_responses)?;
            keeper.store(&begun).await?;
            let reply = if is_streamed { reply } else { reply.in_blocks() };
            Ok::<_, Problem>(stream::log_reply(reply, begun, log.clone()).await)
        };
        let made = tokio::select! {
            made = made => Some(made),
            () = keeper.cancelled() => None,
        };
        match made {
            Some(Ok(made)) => response = made,
            Some(Err(problem)) => response.fail(&problem),
            None => response.set("status", json!("cancelled")),
        }
        keeper.keep(&response).await;
        stream::log_whole(&response, &log, stream::last_event(response.status()));
        // An app that was removed meanwhile leaves nothing behind.
        let apps = task_gateway.apps.apps(AppFilter::All).await;
        let app = &keeper.app;
        let is_removed = |apps: Vec<App>| !app.name.is_owner() && !apps.contains(app);
        if apps.is_ok_and(is_removed) {
            let _ = task_gateway.responses.delete(&app.name, response.id()).await;
        }
    });
    Ok(answer)
}
