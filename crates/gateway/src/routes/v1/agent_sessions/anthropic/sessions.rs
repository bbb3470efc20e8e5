//! `/v1/sessions`: sessions of Anthropic's API.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use hob_domain::{AppName, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::{agents as agent_bodies, environments, objects, send};
use crate::error::ApiError;
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::idempotency::idempotency;
use crate::routes::v1::agent_sessions::agents::{self, AgentVersion};
use crate::routes::v1::agent_sessions::body::{parse, present};
use crate::routes::v1::agent_sessions::creation;
use crate::routes::v1::agent_sessions::cursor::{Query, TimeRange, anthropic_page};
use crate::routes::v1::agent_sessions::memory_stores::attached;
use crate::routes::v1::agent_sessions::respond::{Called, answer, answer_noting};
use crate::routes::v1::agent_sessions::sessions::{self, DescribedSession, Description};
use crate::routes::v1::dialect::{Dialect, Problem};
use crate::routes::v1::ignored::IgnoredFields;
use crate::routes::v1::metadata;
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// A session of Anthropic's API.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"agent": "agent_1", "environment_id": "env_1", "title": "First"}))]
pub(crate) struct ManagedSessionBody {
    /// The id of an agent, or an object with its id, a version and overrides.
    #[schema(value_type = Value)]
    agent: Value,
    environment_id: String,
    title: Option<String>,
    /// Texts under keys.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
    /// Messages (`user.message`), which are the first turn.
    #[schema(value_type = Option<Vec<Object>>)]
    initial_events: Option<Vec<Value>>,
    /// Must be absent or null.
    #[schema(value_type = Option<Value>)]
    budget: Option<Value>,
    /// Memory stores.
    #[schema(value_type = Option<Vec<Object>>)]
    resources: Option<Vec<Value>>,
    /// Must be absent or empty.
    vault_ids: Option<Vec<String>>,
}

/// Changes of a session of Anthropic's API.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"title": "First", "metadata": {"topic": "files"}}))]
pub(crate) struct ManagedSessionChange {
    /// A title that is null is cleared, one that is absent stays.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    title: Option<Option<String>>,
    /// Texts under keys, which are added. A null removes its key.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
    /// Must be absent or null.
    #[schema(value_type = Option<Value>)]
    agent: Option<Value>,
    /// Must be absent or null.
    #[schema(value_type = Option<Value>)]
    budget: Option<Value>,
    /// Must be absent or empty.
    vault_ids: Option<Vec<String>>,
}

/// Creates a session of an agent.
///
/// A request with an `Idempotency-Key` can be repeated: it returns the session that the first request created.
#[utoipa::path(post, path = "/v1/sessions", tag = "v1", operation_id = "create_agent_session", security(("token" = [])),
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with this key creates no second session.")),
    request_body = ManagedSessionBody, responses(
    (status = 200, description = "The session.", body = schemas::AgentSessionObject),
    (status = 400, description = "Invalid request; the error names the field.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such agent or environment of this app.", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 413, description = "The body is too large.", body = schemas::VendorError),
    (status = 429, description = "The app's limit is reached; see Retry-After.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
    (status = 529, description = "`sessions.max_live` is reached (`overloaded_error`).", body = schemas::VendorError),
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
        let (app, key, mut body) = (&app.name, key.as_ref(), parse::<ManagedSessionBody>(body)?);
        let mut ignored = IgnoredFields::default();
        agent_bodies::add_ignored(&body.agent, "agent.", &mut ignored);
        let mut events = body.initial_events.take().unwrap_or_default();
        let (described, prompts) = match creation::earlier(&gateway, app, key).await? {
            Some(described) => {
                if !creation::lacks_first_turn(&gateway, app, &described, key).await? {
                    events.clear();
                }
                (described, send::initial(&gateway, app, &events).await?)
            }
            None => {
                let description = describe(&gateway, app, body).await?;
                let prompts = send::initial(&gateway, app, &events).await?;
                (creation::create(&gateway, app, description, key).await?, prompts)
            }
        };
        creation::submit_first(&gateway, app, &described, prompts, key).await?;
        let described = sessions::find(&gateway, app, described.session.id.as_str()).await?;
        Ok((render(&gateway, app, &described).await?, ignored))
    };
    answer_noting(Dialect::Anthropic, created.await)
}

/// Checks what a session is to be, and describes it.
async fn describe(
    gateway: &Gateway,
    app: &AppName,
    body: ManagedSessionBody,
) -> Result<Description, Problem> {
    let refused = [
        ("budget", body.budget.is_some_and(|budget| !budget.is_null())),
        ("vault_ids", body.vault_ids.is_some_and(|vaults| !vaults.is_empty())),
    ];
    if let Some((name, _)) = refused.iter().find(|(_, is_sent)| *is_sent) {
        return Err(Problem::invalid(format!("{name}: Hob does not support it")));
    }
    let environment = environments::find(gateway, app, &body.environment_id).await?;
    if !environment.body["archived_at"].is_null() {
        return Err(Problem::invalid("environment_id: the environment is archived"));
    }
    let (agent_id, version) = agent(gateway, app, &body.agent).await?;
    let resources = body.resources.unwrap_or_default();
    let memory_stores = attached::read(gateway, app, &resources).await?;
    let metadata = body.metadata.unwrap_or_default();
    metadata::check_texts(&metadata)?;
    Ok(Description {
        title: body.title,
        metadata,
        agent_id,
        agent: Some(version),
        environment_id: Some(body.environment_id),
        memory_stores,
        ..Description::default()
    })
}

/// Finds the agent of a session: its id, or its id with a version and overrides.
async fn agent(
    gateway: &Gateway,
    app: &AppName,
    agent: &Value,
) -> Result<(String, AgentVersion), ApiError> {
    let wrong = |text: &str| Err(ApiError::bad_request(format!("agent{text}")));
    let Some(id) = agent.as_str().or_else(|| agent["id"].as_str()) else {
        return wrong(": must be an agent's id, or an object with an id");
    };
    let number = match &agent["version"] {
        Value::Null => None,
        value => match value.as_u64().and_then(|number| u32::try_from(number).ok()) {
            Some(number) => Some(number),
            None => return wrong(".version: must be a whole number"),
        },
    };
    let (_, document) = agents::find(gateway, app, id).await?;
    if document.archived_at.is_some() {
        return wrong(": the agent is archived");
    }
    let mut version = document.version(number)?.clone();
    match agent["type"].as_str() {
        None | Some("agent") => {}
        Some("agent_with_overrides") => {
            if !agent["model"].is_null() {
                (version.model, version.extra) = agent_bodies::model(&agent["model"])?;
            }
            if let Some(system) = agent.get("system") {
                version.system = system.as_str().map(str::to_owned);
            }
            if agent["skills"].as_array().is_some_and(|skills| !skills.is_empty()) {
                return wrong(".skills: Hob does not support it");
            }
            let (tools, servers) = (agent["tools"].as_array(), agent["mcp_servers"].as_array());
            agent_bodies::change_tools(&mut version, tools.cloned(), servers.cloned())?;
        }
        Some(_) => return wrong(".type: must be agent or agent_with_overrides"),
    }
    Ok((id.to_owned(), version))
}

/// The sessions that a caller wants to list.
struct SessionListFilter<'a> {
    agent: Option<&'a str>,
    agent_version: Option<u32>,
    memory_store: Option<&'a str>,
    /// Hob has no deployments, so no session is of one.
    is_of_deployment: bool,
    created: TimeRange,
    with_archived: bool,
}

impl SessionListFilter<'_> {
    fn read(query: &Query) -> Result<SessionListFilter<'_>, ApiError> {
        let agent = query.get("agent_id");
        let wrong = || ApiError::bad_request("agent_version: must be a whole number");
        let number = |text: &str| {
            let number = text.parse().ok().filter(|number| i32::try_from(*number).is_ok());
            number.ok_or_else(wrong)
        };
        let version: Option<u32> = query.get("agent_version").map(number).transpose()?;
        Ok(SessionListFilter {
            agent,
            agent_version: version.filter(|_| agent.is_some()),
            memory_store: query.get("memory_store_id"),
            is_of_deployment: query.get("deployment_id").is_some(),
            created: query.times("created_at")?,
            with_archived: query.is_set("include_archived")?,
        })
    }

    fn includes(&self, described: &DescribedSession) -> bool {
        let (session, description) = (&described.session, &described.description);
        let has_store = |id: &str| description.memory_stores.iter().any(|store| store.id == id);
        self.agent.is_none_or(|agent| described.agent_id() == agent)
            && self.agent_version.is_none_or(|number| described.agent().version == number)
            && self.memory_store.is_none_or(has_store)
            && !self.is_of_deployment
            && self.created.contains(session.created_at)
            && (description.archived_at.is_none() || self.with_archived)
    }
}

/// Lists this app's sessions, whatever API created them.
#[utoipa::path(get, path = "/v1/sessions", tag = "v1", operation_id = "list_agent_sessions", security(("token" = [])),
    params(("limit" = Option<u32>, Query, description = "At most this many, from 1 to 1000."),
        ("page" = Option<String>, Query, description = "`next_page` of the page before."),
        ("order" = Option<String>, Query, description = "`desc` (the default) or `asc`, by creation."),
        ("agent_id" = Option<String>, Query, description = "Only sessions of this agent."),
        ("agent_version" = Option<u32>, Query, description = "With `agent_id`: only sessions of this version."),
        ("memory_store_id" = Option<String>, Query, description = "Only sessions with this memory store."),
        ("statuses" = Option<Vec<String>>, Query, description = "Only sessions with one of these states."),
        ("created_at[gte]" = Option<String>, Query, description = "Only sessions from this time on; also `gt`, `lt`, `lte`."),
        ("include_archived" = Option<bool>, Query, description = "Also list archived ones.")), responses(
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
        let filter = SessionListFilter::read(&query)?;
        found.retain(|described| filter.includes(described));
        let mut rendered = Vec::with_capacity(found.len());
        let statuses = query.all("statuses");
        for described in &found {
            let session = render(&gateway, &app.name, described).await?;
            let status = session["status"].as_str().unwrap_or_default();
            if statuses.is_empty() || statuses.contains(&status) {
                rendered.push(session);
            }
        }
        Ok(anthropic_page(rendered, &query)?)
    };
    answer(Dialect::Anthropic, listed.await)
}

/// Returns a session.
#[utoipa::path(get, path = "/v1/sessions/{id}", tag = "v1", operation_id = "get_agent_session", security(("token" = [])),
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
    answer(Dialect::Anthropic, found.await)
}

/// Changes the title or the metadata of a session.
#[utoipa::path(post, path = "/v1/sessions/{id}", tag = "v1", operation_id = "update_agent_session", security(("token" = [])),
    params(("id" = String, Path, description = "The session.")), request_body = ManagedSessionChange, responses(
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
            JsonBody::<ManagedSessionChange>::from_request(request, &gateway).await?;
        let refused = [
            ("agent", body.agent.is_some()),
            ("budget", body.budget.is_some_and(|budget| !budget.is_null())),
            ("vault_ids", body.vault_ids.is_some_and(|vaults| !vaults.is_empty())),
        ];
        if let Some((name, _)) = refused.iter().find(|(_, is_sent)| *is_sent) {
            return Err(Problem::invalid(format!(
                "{name}: cannot be changed in an existing session"
            )));
        }
        let described = sessions::change(&gateway, &app.name, &id, |description| {
            if let Some(title) = body.title {
                description.title = title;
            }
            metadata::merge(&mut description.metadata, body.metadata.unwrap_or_default())
        })
        .await?;
        render(&gateway, &app.name, &described).await
    };
    answer(Dialect::Anthropic, changed.await)
}

/// Archives a session: it takes no more events.
#[utoipa::path(post, path = "/v1/sessions/{id}/archive", tag = "v1", operation_id = "archive_agent_session",
    security(("token" = [])), params(("id" = String, Path, description = "The session.")), responses(
    (status = 200, description = "The session.", body = schemas::AgentSessionObject),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such session of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn archive(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
) -> Response {
    let archived = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        let described = sessions::find(&gateway, &app.name, &id).await?;
        gateway.sessions.close(&app.name, &described.session.id).await?;
        sessions::change(&gateway, &app.name, &id, |description| {
            description.archived_at.get_or_insert(Timestamp::now());
            Ok(())
        })
        .await?;
        render(&gateway, &app.name, &sessions::find(&gateway, &app.name, &id).await?).await
    };
    answer(Dialect::Anthropic, archived.await)
}

/// Deletes a session. Its log stays until `hard_ttl_secs`.
#[utoipa::path(delete, path = "/v1/sessions/{id}", tag = "v1", operation_id = "delete_agent_session",
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
        Ok(json!({"id": id, "type": "session_deleted"}))
    };
    answer(Dialect::Anthropic, deleted.await)
}

async fn render(
    gateway: &Gateway,
    app: &AppName,
    described: &DescribedSession,
) -> Result<Value, Problem> {
    let activity = sessions::activity(gateway, app, &described.session).await?;
    Ok(objects::session(described, activity))
}
