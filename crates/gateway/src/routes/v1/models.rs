//! `GET /v1/models` in the caller's dialect, and checks of model-related fields.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Json, Response};
use hob_domain::{AgentSpec, Driver};
use hob_sessions::Conversation;
use serde_json::{Value, json};

use super::dialect::{Dialect, Problem};
use super::items_page::PageQuery;
use super::structured::AnswerForm;
use super::tools::ToolUse;
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
/// Maximum length of a system prompt, in bytes. The prompt is a program argument, which the kernel limits.
const SYSTEM_LIMIT: usize = 120_000;

/// Lists Claude Code's short names, and the other installed agents, which sessions can use. Hob passes any other name on to Claude Code.
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
    let page = caller.and(query).and_then(|ApiQuery(query)| {
        let names = ALIASES.into_iter().chain(installed_agents(&gateway));
        let models = names.map(|name| model(dialect, name)).collect();
        let page = query.page(Vec::clone(&models))?;
        Ok(match dialect {
            // OpenAI's list has no pages.
            Dialect::OpenAi => json!({"object": "list", "data": models}),
            Dialect::Anthropic => page,
        })
    });
    match page {
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

/// Returns the model argument for the program; `None` for its default.
pub(super) fn asked(gateway: &Gateway, name: Option<&str>) -> Result<Option<String>, Problem> {
    match name {
        None | Some(DEFAULT | "default") => Ok(None),
        Some(name) if other_agents(gateway).any(|(agent, _)| agent == name) => {
            let text = format!(
                "model: {name:?} is an agent for sessions (/sessions, /v1/sessions, /v1/agents/sessions); here Claude Code answers"
            );
            Err(ApiError::bad_request(text).into())
        }
        Some(name)
            if name.is_empty() || name.len() > NAME_LIMIT || name.contains(char::is_control) =>
        {
            Err(ApiError::bad_request("model: must be a non-empty model name").into())
        }
        Some(name) => Ok(Some(name.to_owned())),
    }
}

/// Refuses the older form of OpenAI's tools.
pub(super) fn no_functions(functions: Option<&[Value]>) -> Result<(), Problem> {
    match functions {
        None | Some([]) => Ok(()),
        Some(_) => {
            let text = "functions: this older form is not supported; use tools instead";
            Err(ApiError::bad_request(text).into())
        }
    }
}

/// Returns the conversation of a request, without its attachments and its model. A required call or form of the answer is
/// asked for in the system prompt, and checked.
pub(super) fn conversation(
    messages: Vec<Value>,
    system: Option<String>,
    tools: ToolUse,
    form: Option<AnswerForm>,
) -> Conversation {
    let names: Vec<&str> = tools.tools.iter().map(|tool| tool.name.as_str()).collect();
    let required_call = tools.is_required.then(|| {
        let names = names.join(", ");
        format!("You must answer by calling one of these tools, and with nothing else: {names}.")
    });
    let instruction = form.as_ref().map(|form| form.instruction.clone());
    let systems: Vec<String> = [system, instruction, required_call].into_iter().flatten().collect();
    let system = (!systems.is_empty()).then(|| systems.join("\n\n"));
    Conversation {
        messages,
        prompt: None,
        system,
        model: None,
        tools: tools.tools,
        answer_check: form.map(|form| form.check),
        must_call: tools.is_required,
        one_call_at_a_time: tools.one_at_a_time,
    }
}

/// Checks that a system prompt can be passed on.
pub(super) fn system(text: String) -> Result<Option<String>, Problem> {
    if text.contains('\0') || text.len() > SYSTEM_LIMIT {
        let text = format!("system: must not contain NUL or exceed {SYSTEM_LIMIT} bytes");
        return Err(ApiError::bad_request(text).into());
    }
    Ok((!text.trim().is_empty()).then_some(text))
}
