//! `GET /v1/models` in the caller's dialect, and which agent and model a name stands for.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Json, Response};
use hob_domain::{AgentName, AgentSpec, AppName, Driver};
use serde_json::{Value, json};

use super::dialect::{Dialect, Problem};
use super::items_page::PageQuery;
use crate::error::ApiError;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::{ApiPath, ApiQuery};
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// The model that Claude Code chooses.
pub(super) const DEFAULT: &str = "claude";
/// Claude Code's aliases for the newest model of each family.
const ALIASES: [&str; 4] = [DEFAULT, "opus", "sonnet", "haiku"];
/// Maximum length of a model name, in bytes.
const NAME_LIMIT: usize = 200;

/// Lists Claude Code's short names, and the other installed agents with the models that they have offered to sessions of the app.
#[utoipa::path(get, path = "/v1/models", tag = "v1", operation_id = "list_models", security(("token" = [])), params(PageQuery), responses(
    (status = 200, description = "The models, in OpenAI's shape, or in Anthropic's if `anthropic-version` is sent.", body = schemas::ObjectPage),
    (status = 400, description = "Invalid query; the error names the parameter.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Result<Caller, ApiError>,
    headers: HeaderMap,
    query: Result<ApiQuery<PageQuery>, ApiError>,
) -> Response {
    let dialect = Dialect::of(&headers);
    let page = async {
        let (Caller(app), ApiQuery(query)) = (caller?, query?);
        let names = listed(&gateway, &app.name).await?;
        let models = names.iter().map(|name| model(dialect, name)).collect();
        let page = query.page(Vec::clone(&models))?;
        Ok::<_, ApiError>(match dialect {
            // OpenAI's list has no pages.
            Dialect::OpenAi => json!({"object": "list", "data": models}),
            Dialect::Anthropic => page,
        })
    };
    match page.await {
        Ok(page) => Json(page).into_response(),
        Err(error) => dialect.respond(error.into()),
    }
}

/// Returns a model of the list, or one whose name Hob passes on to an installed agent.
///
/// The latter are full names of Claude's models, and an agent with its model, such as `codex/gpt-5`. Hob does not know
/// which of them exist.
#[utoipa::path(get, path = "/v1/models/{model}", tag = "v1", operation_id = "get_model", security(("token" = [])),
    params(("model" = String, Path, description = "The name.")), responses(
    (status = 200, description = "The model.", body = schemas::ModelObject),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "Hob has no such model, and passes no such name on.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    caller: Result<Caller, ApiError>,
    headers: HeaderMap,
    name: Result<ApiPath<String>, ApiError>,
) -> Response {
    let dialect = Dialect::of(&headers);
    let found = caller.and(name).and_then(|ApiPath(name)| match is_known(&gateway, &name) {
        true => Ok(model(dialect, &name)),
        false => Err(ApiError::NotFound(
            "no such model; GET /v1/models lists the available ones".to_owned(),
        )),
    });
    match found {
        Ok(model) => Json(model).into_response(),
        Err(error) => dialect.respond(error.into()),
    }
}

/// Returns Claude Code's short names, and each other installed agent with the models that it has offered to the app.
async fn listed(gateway: &Gateway, app: &AppName) -> Result<Vec<String>, ApiError> {
    let mut offered = gateway.sessions.offered_models(app).await?;
    let mut names = ALIASES.map(str::to_owned).to_vec();
    for agent in installed_agents(gateway) {
        names.push(agent.to_owned());
        let models = offered.remove(agent).unwrap_or_default();
        names.extend(models.into_iter().map(|model| format!("{agent}/{model}")));
    }
    Ok(names)
}

/// Returns the agents other than Claude Code. They answer in sessions.
fn other_agents(gateway: &Gateway) -> impl Iterator<Item = (&str, &AgentSpec)> {
    let named = gateway.agents.iter().map(|(name, spec)| (name.as_str(), spec));
    named.filter(|(name, spec)| !is_claude(spec.driver) && !ALIASES.contains(name))
}

/// Returns the agents other than Claude Code that are installed.
fn installed_agents(gateway: &Gateway) -> impl Iterator<Item = &str> {
    let is_installed =
        |spec: &AgentSpec| spec.driver == Driver::Demo || gateway.doctor.is_installed(spec);
    other_agents(gateway).filter(move |(_, spec)| is_installed(spec)).map(|(name, _)| name)
}

/// Returns whether a name is in the list, or is passed on to an agent that is installed.
fn is_known(gateway: &Gateway, name: &str) -> bool {
    let is_agent = |name: &str| installed_agents(gateway).any(|agent| agent == name);
    let is_of_agent =
        |(agent, model): (&str, &str)| !model.is_empty() && (agent == DEFAULT || is_agent(agent));
    let can_be_passed_on = name.len() <= NAME_LIMIT && !name.contains(char::is_control);
    ALIASES.contains(&name)
        || is_agent(name)
        || can_be_passed_on && (is_full_name(name) || name.split_once('/').is_some_and(is_of_agent))
}

/// Returns whether a name is one of Claude's full names, which begin alike, also with a cloud's prefix.
fn is_full_name(name: &str) -> bool {
    let name = name.rsplit_once("anthropic.").map_or(name, |(_, name)| name);
    name.strip_prefix("claude-").is_some_and(|rest| !rest.is_empty())
}

fn is_claude(driver: Driver) -> bool {
    matches!(driver, Driver::ClaudeTui | Driver::ClaudeStream)
}

fn model(dialect: Dialect, name: &str) -> Value {
    match dialect {
        Dialect::OpenAi => {
            let is_claudes = ALIASES.contains(&name) || is_full_name(name);
            let owner = if is_claudes { "anthropic" } else { "hob" };
            json!({"id": name, "object": "model", "created": 0, "owned_by": owner})
        }
        Dialect::Anthropic => json!({"type": "model", "id": name, "display_name": name,
            "created_at": "1970-01-01T00:00:00Z", "lifecycle": "active", "deprecated_at": null,
            "retires_at": null, "line": null}),
    }
}

/// Returns the model argument for the program; `None` for its default. Names that begin with another agent are refused, as
/// Claude Code would answer in its place.
pub(super) fn asked(gateway: &Gateway, name: Option<&str>) -> Result<Option<String>, Problem> {
    let Some(name) = name else { return Ok(None) };
    if name.is_empty() || name.len() > NAME_LIMIT || name.contains(char::is_control) {
        return Err(ApiError::bad_request("model: must be a non-empty model name").into());
    }
    let (agent, model) =
        name.split_once('/').map_or((name, None), |(agent, model)| (agent, Some(model)));
    if other_agents(gateway).any(|(other, _)| other == agent) {
        let text = format!(
            "model: {agent:?} is an agent for sessions (/sessions, /v1/sessions, /v1/agents/sessions); here Claude Code answers"
        );
        return Err(ApiError::bad_request(text).into());
    }
    match (agent, model) {
        (DEFAULT, Some("")) => {
            Err(ApiError::bad_request("model: the name of the model is missing; write AGENT/MODEL")
                .into())
        }
        (DEFAULT, None | Some(DEFAULT | "default")) | ("default", None) => Ok(None),
        (DEFAULT, Some(model)) => Ok(Some(model.to_owned())),
        _ => Ok(Some(name.to_owned())),
    }
}

/// Checks the model of a stored agent.
pub(super) fn check_model(model: &str) -> Result<(), ApiError> {
    if model.trim().is_empty() || model.len() > NAME_LIMIT || model.contains(char::is_control) {
        let text = format!("model: must be 1 to {NAME_LIMIT} bytes without control characters");
        return Err(ApiError::bad_request(text));
    }
    Ok(())
}

/// Returns the agent of Hob's settings that a model's name chooses, and the model that it is to use: `codex` is an agent
/// with its default model, `codex/gpt-5` names both, and any other name is a model of the default agent.
pub(super) fn resolve_model(gateway: &Gateway, model: &str) -> (AgentName, Option<String>) {
    if let Ok((agent, _)) = gateway.agent(model) {
        return (agent, None);
    }
    if let Some((agent, model)) = model.split_once('/')
        && let Ok((agent, _)) = gateway.agent(agent)
        && !model.is_empty()
    {
        return (agent, Some(model.to_owned()));
    }
    (gateway.default_agent.clone(), Some(model.to_owned()))
}
