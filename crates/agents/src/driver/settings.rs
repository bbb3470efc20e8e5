//! The settings that an agent offers for its conversation, in the shapes of the Agent Client Protocol: modes, options, and
//! the commands that a prompt may begin with.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hob_domain::{AgentChoices, OptionValue};
use serde_json::{Value, json};

/// The largest list of settings that is kept, in bytes of JSON. A larger one is not offered to the caller.
const MAX_SETTINGS_BYTES: usize = 256 << 10;
/// The id of the option by which agents offer their models.
pub(super) const MODEL_OPTION: &str = "model";
/// The code of JSON-RPC for a method that an agent does not have.
const METHOD_NOT_FOUND: i64 = -32601;

/// What an agent offers now. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct AgentSettings {
    state: Arc<Mutex<SettingsState>>,
}

#[derive(Debug, Default)]
struct SettingsState {
    /// The current mode and those that it has.
    modes: Value,
    config_options: Value,
    commands: Value,
    /// The models that an agent lists beside its options.
    listed_models: Vec<String>,
}

/// An agent's refusal of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingRefusal {
    /// A code of JSON-RPC.
    pub code: i64,
    pub message: String,
}

impl SettingRefusal {
    /// The refusal for an agent without settings.
    pub fn unsupported() -> SettingRefusal {
        let message = "the agent has no modes and no options".to_owned();
        SettingRefusal { code: METHOD_NOT_FOUND, message }
    }
}

impl AgentSettings {
    fn state(&self) -> MutexGuard<'_, SettingsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the settings as an object with `modes`, `config_options` and `commands`; each is null if the agent has not
    /// named any.
    pub fn to_json(&self) -> Value {
        let state = self.state();
        json!({"modes": state.modes, "config_options": state.config_options,
            "commands": state.commands})
    }

    /// Returns the choices with the values that the agent has by now: it may have changed them itself.
    pub fn current(&self, choices: &AgentChoices) -> AgentChoices {
        let state = self.state();
        let mut current = choices.clone();
        if let (Some(mode), Some(now)) = (&mut current.mode, state.modes["currentModeId"].as_str())
        {
            *mode = now.to_owned();
        }
        for option in state.config_options.as_array().into_iter().flatten() {
            let Some(value) = option["id"].as_str().and_then(|id| current.options.get_mut(id))
            else {
                continue;
            };
            match &option["currentValue"] {
                Value::Bool(now) => *value = OptionValue::Flag(*now),
                Value::String(now) => *value = OptionValue::Choice(now.clone()),
                _ => {}
            }
        }
        current
    }

    /// Returns the models of the agent's option. Without one, those that it lists beside its options.
    pub fn models(&self) -> Vec<String> {
        let state = self.state();
        let options = state.config_options.as_array().into_iter().flatten();
        let offered = options.filter(|option| option["id"] == MODEL_OPTION);
        // Values may be in groups.
        let list = |value: &Value| value["options"].as_array().cloned().unwrap_or_default();
        let entries = offered.flat_map(list).flat_map(|entry| match entry["options"].is_array() {
            true => list(&entry),
            false => vec![entry],
        });
        let models: Vec<String> =
            entries.filter_map(|entry| entry["value"].as_str().map(str::to_owned)).collect();
        if models.is_empty() { state.listed_models.clone() } else { models }
    }

    pub(super) fn set_modes(&self, modes: Value) {
        self.state().modes = bounded(modes);
    }

    /// Sets the commands; without any, the agent has named none.
    pub(super) fn set_commands(&self, commands: Vec<Value>) {
        let commands = if commands.is_empty() { Value::Null } else { json!(commands) };
        self.state().commands = bounded(commands);
    }

    pub(super) fn set_mode(&self, mode: &str) {
        let mut state = self.state();
        if state.modes.is_object() {
            state.modes["currentModeId"] = json!(mode);
        }
    }

    pub(super) fn set_config_options(&self, options: Value) {
        self.state().config_options = bounded(options);
    }

    /// Reads the models in an answer that opens a conversation. The protocol's schema no longer has them.
    pub(super) fn read_models(&self, line: &str) {
        if line.len() > MAX_SETTINGS_BYTES || !line.contains("availableModels") {
            return;
        }
        let answer: Value = serde_json::from_str(line).unwrap_or_default();
        let models = answer["result"]["models"]["availableModels"].as_array();
        let ids = models.into_iter().flatten().filter_map(|model| model["modelId"].as_str());
        self.state().listed_models = ids.map(str::to_owned).collect();
    }

    /// Reads an agent's notification. Most are of other kinds and are not parsed.
    pub(super) fn read(&self, line: &str) {
        let kinds = ["current_mode_update", "config_option_update", "available_commands_update"];
        if line.len() > MAX_SETTINGS_BYTES || !kinds.iter().any(|kind| line.contains(kind)) {
            return;
        }
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        let update = &message["params"]["update"];
        match update["sessionUpdate"].as_str() {
            Some("current_mode_update") => {
                if let Some(mode) = update["currentModeId"].as_str() {
                    self.set_mode(mode);
                }
            }
            Some("config_option_update") => {
                self.set_config_options(update["configOptions"].clone());
            }
            Some("available_commands_update") => {
                self.state().commands = update["availableCommands"].clone();
            }
            _ => {}
        }
    }
}

/// Returns a list of settings, or null if it is too long.
fn bounded(settings: Value) -> Value {
    match settings.to_string().len() > MAX_SETTINGS_BYTES {
        true => Value::Null,
        false => settings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hob_domain::SettingChange;

    fn update(update: Value) -> String {
        json!({"jsonrpc": "2.0", "method": "session/update",
            "params": {"sessionId": "s", "update": update}})
        .to_string()
    }

    #[test]
    fn updates_change_the_settings() {
        let settings = AgentSettings::default();
        let none = json!({"modes": null, "config_options": null, "commands": null});
        assert_eq!(settings.to_json(), none);
        // An agent without modes has no current one.
        let mode = update(json!({"sessionUpdate": "current_mode_update", "currentModeId": "code"}));
        settings.read(&mode);
        assert_eq!(settings.to_json(), none);
        settings.set_modes(json!({"currentModeId": "ask", "availableModes": []}));
        settings.read(&mode);
        settings.read(&update(json!({"sessionUpdate": "available_commands_update",
            "availableCommands": [{"name": "review", "description": ""}]})));
        let options =
            json!([{"id": "model", "currentValue": "small"}, {"id": "web", "currentValue": true}]);
        settings.read(&update(
            json!({"sessionUpdate": "config_option_update", "configOptions": options}),
        ));
        settings.read(&update(json!({"sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": "current_mode_update"}})));
        settings.read("current_mode_update, but no JSON");
        let now = settings.to_json();
        assert_eq!(now["modes"]["currentModeId"], "code");
        assert_eq!(
            (&now["commands"][0]["name"], &now["config_options"]),
            (&json!("review"), &options)
        );
        let mut choices = AgentChoices::default();
        assert_eq!(settings.current(&choices), choices, "nothing was chosen");
        let change = |option: &str, value: &str| SettingChange::Option {
            option: option.to_owned(),
            value: OptionValue::Choice(value.to_owned()),
        };
        choices.apply(&change("model", "large"));
        choices.apply(&change("gone", "x"));
        choices.apply(&SettingChange::Mode { mode: "plan".to_owned() });
        let grouped = json!([{"id": "mode", "options": [{"value": "x"}]}, {"id": "model", "options": [
            {"value": "a"}, {"group": "g", "options": [{"value": "b"}]}]}]);
        let offering = AgentSettings::default();
        offering.set_config_options(grouped);
        assert_eq!(offering.models(), ["a", "b"]);
        let listing = AgentSettings::default();
        let models =
            json!({"currentModelId": "a", "availableModels": [{"modelId": "a"}, {"x": 1}]});
        let answer = json!({"id": 1, "result": {"sessionId": "s", "models": models}});
        listing.read_models(&answer.to_string());
        assert_eq!(listing.models(), ["a"]);
        let current = settings.current(&choices);
        assert_eq!(current.mode.as_deref(), Some("code"));
        assert_eq!(current.options["model"], OptionValue::Choice("small".to_owned()));
        assert_eq!(current.options["gone"], OptionValue::Choice("x".to_owned()));
        settings.set_config_options(json!("x".repeat(MAX_SETTINGS_BYTES)));
        assert!(settings.to_json()["config_options"].is_null());
    }
}
