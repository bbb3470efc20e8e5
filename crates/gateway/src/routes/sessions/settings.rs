//! `/sessions/{id}/settings`: the modes, options and commands of a session's agent.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use hob_agents::driver::SettingRefusal;
use hob_domain::{OptionValue, SettingChange};
use hob_sessions::session::ChangedSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::acp_protocol::{INVALID_PARAMS, MAX_NAME_BYTES, METHOD_NOT_FOUND, NOT_FOUND};
use crate::error::{ApiError, ErrorBody};
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::extract::session_id::session_id;
use crate::state::Gateway;

/// A change of one setting: `mode`, or `option` with its `value`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"mode": "plan"}))]
pub(crate) struct SettingBody {
    /// The id of a mode.
    pub mode: Option<String>,
    /// The id of an option.
    pub option: Option<String>,
    /// The id of a choice, or whether the option is switched on.
    #[schema(value_type = Option<Value>)]
    pub value: Option<Value>,
}

/// What a session's agent offers, in the shapes of the Agent Client Protocol.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true,
    "modes": {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "plan", "name": "Plan"}]},
    "config_options": null, "commands": [{"name": "review", "description": "Reviews changes"}]}))]
pub(crate) struct SettingsAnswer {
    /// Always `true`.
    ok: bool,
    /// `currentModeId` and `availableModes`; `null` if the agent has no modes.
    #[schema(value_type = Option<Object>)]
    modes: Value,
    /// The options with their current values; `null` if the agent has none.
    #[schema(value_type = Option<Vec<Object>>)]
    config_options: Value,
    /// The commands that a prompt may begin with; `null` if the agent has named none.
    #[schema(value_type = Option<Vec<Object>>)]
    commands: Value,
}

impl SettingsAnswer {
    fn new(mut settings: Value) -> SettingsAnswer {
        SettingsAnswer {
            ok: true,
            modes: settings["modes"].take(),
            config_options: settings["config_options"].take(),
            commands: settings["commands"].take(),
        }
    }
}

/// Returns the modes, options and commands of the agent.
///
/// Starts an agent that does not run. All are `null` for agents without settings, and if the agent cannot be started.
#[utoipa::path(get, path = "/sessions/{id}/settings", tag = "sessions", operation_id = "get_settings", security(("token" = [])),
    params(("id" = String, Path, description = "The session.")), responses(
    (status = 200, description = "The settings.", body = SettingsAnswer),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such session of this app.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    Caller(app): Caller,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<SettingsAnswer>, ApiError> {
    let settings = gateway.sessions.settings(&app.name, &session_id(&id)?).await?;
    Ok(Json(SettingsAnswer::new(settings)))
}

/// Changes the mode of the agent, or one of its options.
///
/// The choice lasts: Hob makes it again when the agent is started again.
#[utoipa::path(post, path = "/sessions/{id}/settings", tag = "sessions", operation_id = "change_setting",
    security(("token" = [])), request_body = SettingBody,
    params(("id" = String, Path, description = "The session.")), responses(
    (status = 200, description = "The settings after the change.", body = SettingsAnswer),
    (status = 400, description = "Invalid request, the agent has no such setting, or it refuses the value.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such session of this app.", body = ErrorBody),
    (status = 408, description = "The body did not arrive in time.", body = ErrorBody),
    (status = 410, description = "The session is closed.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
    (status = 502, description = "The agent failed, or could not be started.", body = ErrorBody),
))]
pub(crate) async fn change(
    State(gateway): State<Arc<Gateway>>,
    Caller(app): Caller,
    ApiPath(id): ApiPath<String>,
    JsonBody(body): JsonBody<SettingBody>,
) -> Result<Json<SettingsAnswer>, ApiError> {
    let change = read_change(body)?;
    match gateway.sessions.configure(&app.name, &session_id(&id)?, change).await? {
        ChangedSettings::Changed(settings) => Ok(Json(SettingsAnswer::new(settings))),
        ChangedSettings::Refused(refusal) => Err(refused(refusal)),
    }
}

/// Reads what a request changes.
fn read_change(body: SettingBody) -> Result<SettingChange, ApiError> {
    let name = |field: &str, name: String| match name.is_empty() || name.len() > MAX_NAME_BYTES {
        true => {
            Err(ApiError::bad_request(format!("{field}: must have 1 to {MAX_NAME_BYTES} bytes")))
        }
        false => Ok(name),
    };
    match body {
        SettingBody { mode: Some(mode), option: None, value: None } => {
            Ok(SettingChange::Mode { mode: name("mode", mode)? })
        }
        SettingBody { mode: None, option: Some(option), value: Some(value) } => {
            let value = match value {
                Value::Bool(is_on) => OptionValue::Flag(is_on),
                Value::String(choice) => OptionValue::Choice(name("value", choice)?),
                _ => return Err(ApiError::bad_request("value: must be a string or true or false")),
            };
            Ok(SettingChange::Option { option: name("option", option)?, value })
        }
        _ => Err(ApiError::bad_request(
            "mode: the body must have either `mode`, or both `option` and `value`",
        )),
    }
}

/// Returns an agent's refusal as an error: of the caller, or of the agent.
fn refused(refusal: SettingRefusal) -> ApiError {
    let SettingRefusal { code, message } = refusal;
    match code {
        METHOD_NOT_FOUND => ApiError::BadRequest { code: "unsupported", message },
        INVALID_PARAMS | NOT_FOUND => ApiError::BadRequest { code: "setting_refused", message },
        _ => ApiError::Turn { code: "agent_failed", message },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn change_has_one_setting() {
        let read = |body: Value| read_change(serde_json::from_value(body).unwrap()).ok();
        let mode = SettingChange::Mode { mode: "plan".to_owned() };
        assert_eq!(read(json!({"mode": "plan"})), Some(mode));
        let value = OptionValue::Flag(true);
        let option = SettingChange::Option { option: "web".to_owned(), value };
        assert_eq!(read(json!({"option": "web", "value": true})), Some(option));
        for wrong in [
            json!({}),
            json!({"mode": ""}),
            json!({"mode": "x".repeat(MAX_NAME_BYTES + 1)}),
            json!({"option": "web"}),
            json!({"value": true}),
            json!({"option": "web", "value": 1}),
            json!({"mode": "plan", "option": "web", "value": true}),
        ] {
            assert_eq!(read(wrong.clone()), None, "{wrong}");
        }
    }
}
