//! `/v1/agents/sessions`: sessions of OpenAI's API.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Json, Response};
use hob_domain::AppName;
use hob_domain::session::IdempotencyKey;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use uuid::Uuid;

use super::agents::{self as agent_bodies, AgentBody};
use super::environment::environment;
use super::events::{self, prompts};
use super::objects;
use super::render::EventRenderer;
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::idempotency::idempotency;
use crate::routes::v1::agent_sessions::body::{parse, present};
use crate::routes::v1::agent_sessions::cursor::{Query, openai_page};
use crate::routes::v1::agent_sessions::feed::open_turn_steps;
use crate::routes::v1::agent_sessions::respond::{Called, answer};
use crate::routes::v1::agent_sessions::sessions::{self, Activity, DescribedSession, Description};
use crate::routes::v1::agent_sessions::{agents, creation};
use crate::routes::v1::dialect::{Dialect, Problem};
use crate::routes::v1::ignored::IgnoredFields;
use crate::routes::v1::metadata;
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// A session of OpenAI's API.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"environment": {"type": "none"}, "agent": {"model": "claude"}, "input": "Say hello."}))]
pub(crate) struct HostedSessionBody {
    /// Its `type` is `none`, `self_hosted` or `openai_hosted`. All of them are this machine.
    #[schema(value_type = Object)]
    environment: Value,
    /// An agent for this session alone, or changes of the one with `agent_id`.
    #[schema(value_type = Option<Value>)]
    agent: Option<Value>,
    agent_id: Option<String>,
    /// The first turn: a text, or messages of the user.
    #[schema(value_type = Option<Value>)]
    input: Option<Value>,
    /// Texts under keys.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
    /// Must be absent or `none`.
    review: Option<String>,
    /// A limit is refused.
    #[schema(value_type = Option<Value>)]
    spend_control: Option<Value>,
    /// Whether the answer is a stream of the first turn's events. It needs an `input`.
    stream: Option<bool>,
    /// Only with `stream`.
    #[schema(value_type = Option<Value>)]
    stream_options: Option<StreamOptions>,
    /// Must be absent or empty.
    vault_ids: Option<Vec<String>>,
}

/// Hob sends no padding that hides the lengths of events.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamOptions {
    include_obfuscation: Option<bool>,
}

/// Changes of a session of OpenAI's API.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"metadata": {"topic": "files"}}))]
pub(crate) struct HostedSessionChange {
    /// Texts under keys, in place of the earlier ones.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Object>)]
    metadata: Option<Option<Map<String, Value>>>,
    /// Must be absent or null.
    #[schema(value_type = Option<Value>)]
    agent: Option<Value>,
    /// Must be absent or `none`.
    review: Option<String>,
    /// A limit is refused.
    #[schema(value_type = Option<Value>)]
    spend_control: Option<Value>,
}

/// Creates a session of an agent, and begins its first turn if there is an input.
///
/// A request with an `Idempotency-Key` can be repeated: it returns the session that the first request created. A stream
/// begins again with the session's creation.
#[utoipa::path(post, path = "/v1/agents/sessions", tag = "v1", operation_id = "create_openai_session", security(("token" = [])),
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with this key creates no second session.")),
    request_body = HostedSessionBody, responses(
    (status = 200, description = "The session, or the events of its first turn.",
        content((schemas::AgentSessionObject = "application/json"), (String = "text/event-stream"))),
    (status = 400, description = "Invalid request; the error names the field.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such agent of this app.", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 413, description = "The body is too large.", body = schemas::VendorError),
    (status = 429, description = "The app's limit is reached; see Retry-After.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
    (status = 503, description = "`sessions.max_live` is reached.", body = schemas::VendorError),
))]
pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    caller: Called<Caller>,
    request: Request,
) -> Response {
    let created = async {
        let Caller(app) = caller?;
        let JsonBody(body) = JsonBody::<Value>::from_request(request, &gateway).await?;
        let key = idempotency(&headers, &body)?;
        let (app, key, body) = (&app.name, key.as_ref(), parse::<HostedSessionBody>(body)?);
        let (without_effect, is_streamed) = (ignored(&body), body.stream == Some(true));
        let (described, prompts) = prepare(&gateway, app, body, key).await?;
        let opened = match is_streamed {
            true => Some(events::opened(&gateway, app, &described).await?),
            false => None,
        };
        creation::submit_first(&gateway, app, &described, prompts, key).await?;
        let mut response = match opened {
            Some(response) => response,
            None => {
                let id = described.session.id.as_str();
                let described = sessions::find(&gateway, app, id).await?;
                Json(render(&gateway, app, &described).await?).into_response()
            }
        };
        without_effect.note(&mut response);
        Ok(response)
    };
    created.await.unwrap_or_else(|problem: Problem| Dialect::OpenAi.respond(problem))
}

/// Returns the fields of a request that have no effect.
fn ignored(body: &HostedSessionBody) -> IgnoredFields {
    let mut ignored = IgnoredFields::default();
    if let Some(agent) = &body.agent {
        agent_bodies::add_ignored(agent, "agent.", &mut ignored);
    }
    ignored.add("environment.container_size", Some(&body.environment["container_size"]));
    let options = body.stream_options.as_ref();
    if options.is_some_and(|options| options.include_obfuscation == Some(true)) {
        ignored.add("stream_options.include_obfuscation", Some(&Value::Bool(true)));
    }
    ignored
}

/// Finds the session that an earlier request with this key created, or creates one. Returns it with the messages of its
/// first turn, unless it has that turn.
async fn prepare(
    gateway: &Arc<Gateway>,
    app: &AppName,
    mut body: HostedSessionBody,
    key: Option<&IdempotencyKey>,
) -> Result<(DescribedSession, Vec<events::Prompt>), Problem> {
    let input = body.input.take().filter(|input| !input.is_null());
    if let Some(described) = creation::earlier(gateway, app, key).await? {
        let lacks_turn = creation::lacks_first_turn(gateway, app, &described, key).await?;
        let input = input.filter(|_| lacks_turn);
        return Ok((described, first_prompts(gateway, app, input).await?));
    }
    if body.stream == Some(true) && input.is_none() {
        return Err(Problem::invalid("stream: can be true only if `input` is sent"));
    }
    let description = describe(gateway, app, body).await?;
    let prompts = first_prompts(gateway, app, input).await?;
    Ok((creation::create(gateway, app, description, key).await?, prompts))
}

async fn first_prompts(
    gateway: &Gateway,
    app: &AppName,
    input: Option<Value>,
) -> Result<Vec<events::Prompt>, Problem> {
    match input {
        Some(input) => prompts(gateway, app, &input, "input").await,
        None => Ok(Vec::new()),
    }
}

/// Checks what a session is to be, and describes it.
async fn describe(
    gateway: &Gateway,
    app: &AppName,
    body: HostedSessionBody,
) -> Result<Description, Problem> {
    refuse(body.review.as_deref(), body.spend_control.as_ref(), body.vault_ids.as_deref())?;
    let (agent_id, mut version) = match &body.agent_id {
        Some(id) => {
            let (_, document) = agents::find(gateway, app, id).await?;
            (id.clone(), document.newest().clone())
        }
        None => {
            let version = agent_bodies::new_version(gateway, AgentBody::default())?;
            (format!("agent_{}", Uuid::new_v4().simple()), version)
        }
    };
    if let Some(overrides) = body.agent.filter(|agent| !agent.is_null()) {
        agent_bodies::apply(&mut version, parse(overrides)?)?;
    }
    let metadata = body.metadata.unwrap_or_default();
    metadata::check_texts(&metadata)?;
    let (environment, cwd) = environment(&body.environment)?;
    if body.stream_options.is_some() && body.stream != Some(true) {
        return Err(Problem::invalid("stream_options: can be sent only if `stream` is true"));
    }
    Ok(Description {
        metadata,
        agent_id,
        agent: Some(version),
        environment: Some(environment),
        cwd,
        ..Description::default()
    })
}

fn refuse(
    review: Option<&str>,
    spend: Option<&Value>,
    vaults: Option<&[String]>,
) -> Result<(), Problem> {
    let refused = [
        ("review", review.is_some_and(|review| review != "none")),
        ("spend_control", spend.is_some_and(|spend| !spend["limit"].is_null())),
        ("vault_ids", vaults.is_some_and(|vaults| !vaults.is_empty())),
    ];
    match refused.iter().find(|(_, is_sent)| *is_sent) {
        Some((name, _)) => Err(Problem::invalid(format!("{name}: Hob does not support it"))),
        None => Ok(()),
    }
}

/// Lists this app's sessions, whatever API created them.
#[utoipa::path(get, path = "/v1/agents/sessions", tag = "v1", operation_id = "list_openai_sessions", security(("token" = [])),
    params(("limit" = Option<u32>, Query, description = "At most this many, from 1 to 1000."),
        ("after" = Option<String>, Query, description = "The last session of the page before."),
        ("order" = Option<String>, Query, description = "`desc` (the default) or `asc`, by creation."),
        ("agent_id" = Option<String>, Query, description = "Only sessions of this agent."),
        ("metadata[key]" = Option<String>, Query, description = "Only sessions whose metadata have this value under this key.")), responses(
    (status = 200, description = "The sessions.", body = schemas::ObjectPage),
    (status = 400, description = "Invalid query; the error names the parameter.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    query: Called<Query>,
) -> Response {
    let listed = async {
        let (Caller(app), query) = (caller?, query?);
        let mut found = sessions::list(&gateway, &app.name).await?;
        if query.is_descending("desc")? {
            found.reverse();
        }
        let (agent, metadata) = (query.get("agent_id"), query.within("metadata"));
        found.retain(|described| {
            let has = |(key, value): &(&str, &str)| {
                described.description.metadata.get(*key).is_some_and(|known| known == value)
            };
            agent.is_none_or(|agent| described.agent_id() == agent) && metadata.iter().all(has)
        });
        let mut rendered = Vec::with_capacity(found.len());
        for described in &found {
            rendered.push(render(&gateway, &app.name, described).await?);
        }
        Ok(openai_page(rendered, &query)?)
    };
    answer(Dialect::OpenAi, listed.await)
}

/// Returns a session.
#[utoipa::path(get, path = "/v1/agents/sessions/{id}", tag = "v1", operation_id = "get_openai_session", security(("token" = [])),
    params(("id" = String, Path, description = "The session.")), responses(
    (status = 200, description = "The session.", body = schemas::AgentSessionObject),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such session of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
) -> Response {
    let found = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        let described = sessions::find(&gateway, &app.name, &id).await?;
        render(&gateway, &app.name, &described).await
    };
    answer(Dialect::OpenAi, found.await)
}

/// Changes the metadata of a session.
#[utoipa::path(post, path = "/v1/agents/sessions/{id}", tag = "v1", operation_id = "update_openai_session", security(("token" = [])),
    params(("id" = String, Path, description = "The session.")), request_body = HostedSessionChange, responses(
    (status = 200, description = "The session.", body = schemas::AgentSessionObject),
    (status = 400, description = "Invalid request; the error names the field.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such session of this app.", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 413, description = "The body is too large.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn update(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
    request: Request,
) -> Response {
    let changed = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        // A session of another app does not exist, whatever the body says.
        sessions::find(&gateway, &app.name, &id).await?;
        let JsonBody(body) =
            JsonBody::<HostedSessionChange>::from_request(request, &gateway).await?;
        refuse(body.review.as_deref(), body.spend_control.as_ref(), None)?;
        if body.agent.is_some_and(|agent| !agent.is_null()) {
            return Err(Problem::invalid("agent: cannot be changed in an existing session"));
        }
        let described = sessions::change(&gateway, &app.name, &id, |description| {
            if let Some(metadata) = body.metadata {
                let metadata = metadata.unwrap_or_default();
                metadata::check_texts(&metadata)?;
                description.metadata = metadata;
            }
            Ok(())
        })
        .await?;
        render(&gateway, &app.name, &described).await
    };
    answer(Dialect::OpenAi, changed.await)
}

/// Deletes a session. Its log stays until `hard_ttl_secs`.
#[utoipa::path(delete, path = "/v1/agents/sessions/{id}", tag = "v1", operation_id = "delete_openai_session",
    security(("token" = [])), params(("id" = String, Path, description = "The session.")), responses(
    (status = 200, description = "It is deleted.", body = schemas::DeletedObject),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such session of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
) -> Response {
    let deleted = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        sessions::delete(&gateway, &app.name, &id).await?;
        Ok(json!({"id": id, "object": "agent.session.deleted", "deleted": true}))
    };
    answer(Dialect::OpenAi, deleted.await)
}

async fn render(
    gateway: &Arc<Gateway>,
    app: &AppName,
    described: &DescribedSession,
) -> Result<Value, Problem> {
    let session = &described.session;
    let activity = sessions::activity(gateway, app, session).await?;
    let mut renderer = EventRenderer::new(gateway.clone(), app.clone(), session.id.clone());
    if activity == Activity::Waiting {
        for step in open_turn_steps(gateway, app, &session.id).await? {
            renderer.render(&step).await;
        }
    }
    Ok(objects::session(described, activity, renderer.waiting()))
}
