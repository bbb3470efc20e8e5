//! The settings of Claude Code without a terminal: its permission modes, its model, and the commands of the user and of the
//! project.
//!
//! The commands that are built in are not offered: they change the program itself, for example its settings or its
//! conversation. A prompt that begins with one is only text.

use std::collections::{HashMap, HashSet};

use hob_domain::session::Permissions;
use hob_domain::{OptionValue, SettingChange};
use hob_transcript::claude::stream_json::{self, ControlAnswer};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::settings::{AgentSettings, MODEL_OPTION, SettingRefusal};
use crate::claude::input;

/// The permission modes that the program has at any time, with their names.
const MODES: [(&str, &str); 4] = [
    ("default", "Ask"),
    ("acceptEdits", "Accept edits"),
    ("plan", "Plan"),
    ("dontAsk", "Do not ask"),
];
/// The mode that the program has only if it was started with a permission for it.
const BYPASS: (&str, &str) = ("bypassPermissions", "Bypass permissions");
/// The model that stands for the program's own choice.
pub(super) const DEFAULT_MODEL: &str = "default";
/// The code of JSON-RPC for a wrong value.
const INVALID_PARAMS: i64 = -32602;

type Reply = oneshot::Sender<Result<Value, SettingRefusal>>;

/// What the program offers, and the changes that it has not answered yet.
#[derive(Default)]
pub(super) struct ClaudeSettings {
    /// The settings as callers see them.
    pub shown: AgentSettings,
    /// The permissions of the session.
    permissions: Permissions,
    /// The commands that a prompt may begin with.
    commands: Vec<String>,
    model: String,
    models: Vec<Value>,
    /// By the ids of their requests.
    changes: HashMap<String, (SettingChange, Reply)>,
}

impl ClaudeSettings {
    /// Creates the settings of a session with these permissions.
    pub fn new(permissions: Permissions) -> ClaudeSettings {
        ClaudeSettings { permissions, ..ClaudeSettings::default() }
    }

    /// Reads what the program offers when it starts. `model` is the one that it was started with.
    pub fn read_offer(&mut self, offer: &Value, model: Option<&str>) {
        let mode = offer["current_permission_mode"].as_str();
        let mode = mode.filter(|mode| is_mode(mode, self.permissions)).unwrap_or(MODES[0].0);
        let modes = modes(self.permissions);
        let modes: Vec<Value> = modes.map(|(id, name)| json!({"id": id, "name": name})).collect();
        self.shown.set_modes(json!({"currentModeId": mode, "availableModes": modes}));
        let model_of = |model: &Value| {
            let value = model["value"].as_str()?;
            let name = model["displayName"].as_str().unwrap_or(value);
            Some(json!({"value": value, "name": name, "description": model["description"]}))
        };
        self.models =
            offer["models"].as_array().into_iter().flatten().filter_map(model_of).collect();
        self.show_model(model.unwrap_or(DEFAULT_MODEL));
        let own = own_commands(offer);
        let name = |command: &&Value| command["name"].as_str().unwrap_or_default().to_owned();
        self.commands = own.iter().map(name).collect();
        let shown = own.iter().map(|command| {
            let mut shown = json!({"name": command["name"], "description": command["description"]});
            if let Some(hint) = command["argumentHint"].as_str().filter(|hint| !hint.is_empty()) {
                shown["input"] = json!({"hint": hint});
            }
            shown
        });
        self.shown.set_commands(shown.collect());
    }

    /// Returns the request for a change; `None` if it was refused at once.
    pub fn request(&mut self, id: &str, change: SettingChange, reply: Reply) -> Option<Value> {
        let request = match &change {
            SettingChange::Mode { mode } => stream_json::mode_request(id, mode),
            SettingChange::Option { option, value: OptionValue::Choice(model) }
                if option == MODEL_OPTION =>
            {
                stream_json::model_request(id, model)
            }
            SettingChange::Option { .. } => {
                let message = format!("the agent does not have {}", change.describe());
                let _ = reply.send(Err(SettingRefusal { code: INVALID_PARAMS, message }));
                return None;
            }
        };
        self.changes.insert(id.to_owned(), (change, reply));
        Some(request)
    }

    /// Reads a record that may answer a change or tell the mode.
    pub fn read(&mut self, record: &Value) {
        if let Some(ControlAnswer { id, result }) = stream_json::control_answer(record) {
            let Some((change, reply)) = self.changes.remove(&id) else { return };
            let answer = result.map_err(|message| SettingRefusal { code: INVALID_PARAMS, message });
            let _ = reply.send(answer.map(|_| {
                self.apply(&change);
                self.shown.to_json()
            }));
        } else if record["type"] == "system"
            && let Some(mode) = record["permissionMode"].as_str()
            && is_mode(mode, self.permissions)
        {
            self.shown.set_mode(mode);
        }
    }

    /// Returns a prompt as the program is to read it: as text, unless it begins with a command that is offered.
    pub fn prompt(&self, text: &str) -> String {
        let command = text.strip_prefix('/').and_then(|rest| {
            let name = rest.split_whitespace().next()?;
            let arguments = rest.strip_prefix(name)?;
            self.commands.iter().any(|known| known == name).then_some((name, arguments))
        });
        match command {
            Some((name, arguments)) => format!("/{name}{}", input::plain(arguments)),
            None => input::plain(text),
        }
    }

    fn apply(&mut self, change: &SettingChange) {
        match change {
            SettingChange::Mode { mode } => self.shown.set_mode(mode),
            SettingChange::Option { value: OptionValue::Choice(model), .. } => {
                self.show_model(model);
            }
            SettingChange::Option { .. } => {}
        }
    }

    fn show_model(&mut self, model: &str) {
        self.model = model.to_owned();
        if self.models.is_empty() {
            return;
        }
        let mut models = self.models.clone();
        if models.iter().all(|known| known["value"] != model) {
            models.push(json!({"value": model, "name": model}));
        }
        self.shown.set_config_options(json!([{"id": MODEL_OPTION, "name": "Model",
            "category": "model", "type": "select", "currentValue": model, "options": models}]));
    }
}

/// Returns whether the program may be in a mode in a session with these permissions. What an agent says of its mode is kept,
/// and is its mode at the next start.
pub(super) fn is_mode(mode: &str, permissions: Permissions) -> bool {
    modes(permissions).any(|(id, _)| id == mode)
}

/// Returns the modes of a session with these permissions.
fn modes(permissions: Permissions) -> impl Iterator<Item = (&'static str, &'static str)> {
    let bypass = (permissions == Permissions::Allow).then_some(BYPASS);
    MODES.into_iter().chain(bypass)
}

/// Returns the commands that are not built in. A file of a project may have the name of a built-in command, which then runs
/// instead. A program that marks no command does not tell which ones are built in.
fn own_commands(offer: &Value) -> Vec<&Value> {
    let commands = offer["commands"].as_array().map(Vec::as_slice).unwrap_or_default();
    let built_in = commands.iter().filter(|command| command["builtin"] == true);
    let built_in: HashSet<&str> = built_in.filter_map(|command| command["name"].as_str()).collect();
    if built_in.is_empty() {
        return Vec::new();
    }
    let is_own = |name: &str| !built_in.contains(name);
    commands.iter().filter(|command| command["name"].as_str().is_some_and(is_own)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offering() -> ClaudeSettings {
        let mut settings = ClaudeSettings::default();
        let offer = json!({"current_permission_mode": "dontAsk",
            "models": [{"value": "default", "displayName": "Default"}, {"value": "opus"}],
            "commands": [{"name": "ship", "description": "Ships it", "argumentHint": "where"},
                {"name": "clear", "description": "of the project"},
                {"name": "clear", "description": "", "builtin": true}]});
        settings.read_offer(&offer, Some("custom"));
        settings
    }

    #[test]
    fn own_commands_modes_and_models_are_offered() {
        let settings = offering();
        let shown = settings.shown.to_json();
        assert_eq!(shown["modes"]["currentModeId"], "dontAsk");
        assert_eq!(shown["modes"]["availableModes"].as_array().unwrap().len(), 4);
        let input = json!({"hint": "where"});
        let ship = json!({"name": "ship", "description": "Ships it", "input": input});
        assert_eq!(shown["commands"], json!([ship]));
        assert_eq!(shown["config_options"][0]["currentValue"], "custom");
        assert_eq!(settings.shown.models(), ["default", "opus", "custom"]);
        let mut settings = ClaudeSettings::new(Permissions::Allow);
        settings.read_offer(&json!({"current_permission_mode": "bypassPermissions"}), None);
        let shown = settings.shown.to_json();
        assert_eq!(shown["modes"]["currentModeId"], "bypassPermissions");
        assert_eq!(shown["modes"]["availableModes"][4]["id"], "bypassPermissions");
        assert!(shown["commands"].is_null() && shown["config_options"].is_null());
    }

    /// An agent writes its records itself, so it could name a mode that the session does not have.
    #[test]
    fn agent_names_only_modes_of_its_permissions() {
        for (permissions, expect) in [
            (Permissions::Deny, "default"),
            (Permissions::Ask, "default"),
            (Permissions::Allow, "bypassPermissions"),
        ] {
            let mut settings = ClaudeSettings::new(permissions);
            let mode = |settings: &ClaudeSettings| {
                settings.shown.to_json()["modes"]["currentModeId"].as_str().map(str::to_owned)
            };
            settings.read_offer(&json!({"current_permission_mode": "bypassPermissions"}), None);
            assert_eq!(mode(&settings).as_deref(), Some(expect));
            // An agent that was started in another mode may go back to this one.
            settings.read_offer(&json!({"current_permission_mode": "plan"}), None);
            let modes = settings.shown.to_json()["modes"]["availableModes"].clone();
            let offers = modes.as_array().unwrap().iter().any(|mode| mode["id"] == BYPASS.0);
            assert_eq!(offers, permissions == Permissions::Allow);
            for named in ["default", "bypassPermissions", "dance"] {
                settings.read(&json!({"type": "system", "permissionMode": named}));
            }
            assert_eq!(mode(&settings).as_deref(), Some(expect));
        }
    }

    #[test]
    fn only_offered_commands_are_commands() {
        let settings = offering();
        assert_eq!(settings.prompt("/ship it @home"), "/ship it \u{2800}@home");
        assert_eq!(settings.prompt("/ship"), "/ship");
        for text in ["/clear", "/shipping", " /ship", "/ ship", "!ship"] {
            assert_ne!(settings.prompt(text), text);
        }
        let mut unmarked = ClaudeSettings::default();
        unmarked.read_offer(&json!({"commands": [{"name": "ship"}, {"name": "clear"}]}), None);
        assert!(unmarked.shown.to_json()["commands"].is_null());
        assert_ne!(unmarked.prompt("/clear"), "/clear");
    }

    #[test]
    fn changes_hold_once_the_program_has_accepted_them() {
        let mut settings = offering();
        let change = |id: &str, change: SettingChange, settings: &mut ClaudeSettings| {
            let (reply, answer) = oneshot::channel();
            (settings.request(id, change, reply), answer)
        };
        let mode = SettingChange::Mode { mode: "plan".to_owned() };
        let (request, mut answer) = change("a", mode, &mut settings);
        assert_eq!(request.unwrap()["request"]["mode"], "plan");
        assert!(answer.try_recv().is_err());
        let response = json!({"subtype": "success", "request_id": "a", "response": {}});
        settings.read(&json!({"type": "control_response", "response": response}));
        let shown = answer.try_recv().unwrap().unwrap();
        assert_eq!(shown["modes"]["currentModeId"], "plan");
        let model = SettingChange::Option {
            option: "model".to_owned(),
            value: OptionValue::Choice("none".to_owned()),
        };
        let (request, mut answer) = change("b", model, &mut settings);
        assert_eq!(request.unwrap()["request"]["model"], "none");
        let response = json!({"subtype": "error", "request_id": "b", "error": "not found"});
        settings.read(&json!({"type": "control_response", "response": response}));
        assert_eq!(answer.try_recv().unwrap().unwrap_err().message, "not found");
        assert_eq!(settings.shown.to_json()["config_options"][0]["currentValue"], "custom");
        let flag = SettingChange::Option { option: "x".to_owned(), value: OptionValue::Flag(true) };
        let (request, mut answer) = change("c", flag, &mut settings);
        assert!(request.is_none() && answer.try_recv().unwrap().is_err());
        settings.read(&json!({"type": "system", "subtype": "status", "permissionMode": "default"}));
        assert_eq!(settings.shown.to_json()["modes"]["currentModeId"], "default");
    }
}
