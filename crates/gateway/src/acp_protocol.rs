//! Messages of the Agent Client Protocol that Hob writes as an agent: for `hob acp` and for `/acp`.

use hob_domain::{OptionValue, SettingChange};
use hob_mcp::SERVER_NAME;
use serde_json::{Value, json};

/// The version of the protocol that Hob speaks.
const PROTOCOL_VERSION: u64 = 1;
/// The longest title of a session in a list, in characters.
const MAX_TITLE_CHARS: usize = 80;
/// The longest name of a mode, an option or a choice, in bytes.
pub const MAX_NAME_BYTES: usize = 1024;

/// The codes of JSON-RPC that Hob sends.
pub const PARSE_ERROR: i64 = -32700;
pub const INVALID_REQUEST: i64 = -32600;
pub const METHOD_NOT_FOUND: i64 = -32601;
pub const INVALID_PARAMS: i64 = -32602;
pub const INTERNAL_ERROR: i64 = -32603;
/// ACP's code for something that does not exist.
pub const NOT_FOUND: i64 = -32002;

/// Builds the result of `initialize`.
pub fn initialize() -> Value {
    json!({
        "protocolVersion": PROTOCOL_VERSION,
        "agentInfo": {"name": "hob", "title": "Hob", "version": env!("CARGO_PKG_VERSION")},
        "agentCapabilities": {
            "loadSession": true,
            "promptCapabilities": {"image": false, "audio": false, "embeddedContext": true},
            "mcpCapabilities": {"http": true, "sse": true},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
        },
        "authMethods": [],
    })
}

/// Returns the MCP servers of a new session: the client's, and Hob's memory. Its name is that of `hob setup`, so that an agent
/// which has the memory already does not get it twice.
pub fn session_servers(params: &Value) -> Value {
    let mut servers = match &params["mcpServers"] {
        Value::Null => Vec::new(),
        Value::Array(servers) => servers.clone(),
        // The protocol has a list. Without one, creating the session fails.
        _ => return json!("mcpServers"),
    };
    if servers.iter().all(|server| server["name"] != SERVER_NAME) {
        servers.push(json!({"name": SERVER_NAME, "type": "memory"}));
    }
    Value::Array(servers)
}

/// Returns the parameters of an agent's update, as one of Hob's session. Other messages are not shown.
pub fn own_update(session: &str, message: &Value) -> Option<Value> {
    if message["method"] != "session/update" || !message["params"]["update"].is_object() {
        return None;
    }
    let mut params = message["params"].clone();
    params["sessionId"] = json!(session);
    Some(params)
}

/// Adds an agent's modes and options to an answer that opens a session.
pub fn with_settings(mut answer: Value, settings: &Value) -> Value {
    for (name, setting) in
        [("modes", &settings["modes"]), ("configOptions", &settings["config_options"])]
    {
        if !setting.is_null() {
            answer[name] = setting.clone();
        }
    }
    answer
}

/// Returns the parameters of the update that names an agent's commands, if it has any.
pub fn commands_update(session: &str, settings: &Value) -> Option<Value> {
    let commands = settings["commands"].as_array()?;
    let update =
        json!({"sessionUpdate": "available_commands_update", "availableCommands": commands});
    Some(json!({"sessionId": session, "update": update}))
}

/// Returns the parameters of the update that shows a `setting` event.
pub fn setting_update(session: &str, event: &Value) -> Option<Value> {
    let update = match (&event["mode"], &event["config_options"]) {
        (Value::String(mode), _) => {
            json!({"sessionUpdate": "current_mode_update", "currentModeId": mode})
        }
        (_, Value::Array(options)) => {
            json!({"sessionUpdate": "config_option_update", "configOptions": options})
        }
        _ => return None,
    };
    Some(json!({"sessionId": session, "update": update}))
}

/// Returns whether a message of an agent says what it offers, or which of its settings hold. Such messages also come between
/// turns.
pub fn is_settings_update(message: &Value) -> bool {
    let kind = message["params"]["update"]["sessionUpdate"].as_str();
    matches!(
        kind,
        Some("available_commands_update" | "current_mode_update" | "config_option_update")
    )
}

/// Reads the change that `session/set_mode` or `session/set_config_option` asks for. Errors name the field.
pub fn setting_change(params: &Value) -> Result<SettingChange, String> {
    let name = |field: &str, value: &Value| {
        let name = value.as_str().filter(|name| (1..=MAX_NAME_BYTES).contains(&name.len()));
        let wrong = || format!("{field}: must be a string of 1 to {MAX_NAME_BYTES} bytes");
        name.map(str::to_owned).ok_or_else(wrong)
    };
    if let Some(mode) = params.get("modeId") {
        return Ok(SettingChange::Mode { mode: name("modeId", mode)? });
    }
    let option = name("modeId or configId", &params["configId"])?;
    let value = match &params["value"] {
        Value::Bool(is_on) => OptionValue::Flag(*is_on),
        choice @ Value::String(_) => OptionValue::Choice(name("value", choice)?),
        _ => return Err("value: must be a string or true or false".to_owned()),
    };
    Ok(SettingChange::Option { option, value })
}

/// Builds the body of `POST /sessions/{id}/settings` that makes a change.
pub fn setting_body(change: &SettingChange) -> Value {
    match change {
        SettingChange::Mode { mode } => json!({"mode": mode}),
        SettingChange::Option { option, value } => json!({"option": option, "value": value}),
    }
}

/// Builds the answer to a change, from the settings after it.
pub fn changed(change: &SettingChange, settings: &Value) -> Value {
    match change {
        SettingChange::Mode { .. } => json!({}),
        SettingChange::Option { .. } => {
            let options = settings["config_options"].as_array().cloned();
            json!({"configOptions": options.unwrap_or_default()})
        }
    }
}

/// Returns whether the parameters of `initialize` say that the client shows forms.
pub fn shows_forms(params: &Value) -> bool {
    params["clientCapabilities"]["elicitation"]["form"].is_object()
}

/// Returns the title of a session: the beginning of its first prompt.
pub fn title(prompt: &str) -> Option<String> {
    let line = prompt.lines().next().filter(|line| !line.is_empty())?;
    Some(line.chars().take(MAX_TITLE_CHARS).collect())
}

/// Returns the text of a prompt: its texts, and the texts and names of its resources. Errors name the field.
pub fn prompt_text(blocks: &Value) -> Result<String, String> {
    let blocks = blocks.as_array().ok_or("prompt: must be a list")?;
    let mut parts = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        let text = |value: &Value| {
            let text = value.as_str().map(str::to_owned);
            text.ok_or_else(|| format!("prompt[{index}]: its text is missing"))
        };
        parts.push(match block["type"].as_str() {
            Some("text") => text(&block["text"])?,
            Some("resource_link") => text(&block["uri"])?,
            Some("resource") => {
                let resource = &block["resource"];
                let (uri, content) = (text(&resource["uri"])?, text(&resource["text"])?);
                format!("{uri}:\n```\n{content}\n```")
            }
            kind => {
                let kind = kind.unwrap_or("none");
                return Err(format!("prompt[{index}]: blocks of type {kind} are not supported"));
            }
        });
    }
    match parts.iter().all(|part| part.trim().is_empty()) {
        true => Err("prompt: must not be empty".to_owned()),
        false => Ok(parts.join("\n\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_shown() {
        let mode = setting_change(&json!({"sessionId": "s", "modeId": "plan"})).unwrap();
        assert_eq!(mode, SettingChange::Mode { mode: "plan".to_owned() });
        let option = setting_change(&json!({"configId": "web", "type": "boolean", "value": true}));
        let option = option.unwrap();
        let expected =
            SettingChange::Option { option: "web".to_owned(), value: OptionValue::Flag(true) };
        assert_eq!(option, expected);
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for wrong in [
            json!({}),
            json!({"modeId": 1}),
            json!({"modeId": long}),
            json!({"configId": long, "value": true}),
            json!({"configId": "web", "value": long}),
            json!({"configId": "web", "value": null}),
        ] {
            assert!(setting_change(&wrong).is_err(), "{wrong}");
        }
        let settings = json!({"modes": null, "config_options": [{"id": "web"}], "commands": null});
        assert_eq!(changed(&option, &settings), json!({"configOptions": [{"id": "web"}]}));
        assert_eq!(changed(&mode, &settings), json!({}));
        let opened = with_settings(json!({"sessionId": "s"}), &settings);
        assert_eq!(opened, json!({"sessionId": "s", "configOptions": [{"id": "web"}]}));
        assert_eq!(commands_update("s", &settings), None);
        let update = setting_update("s", &json!({"mode": "plan"})).unwrap();
        assert_eq!(update["update"]["currentModeId"], "plan");
        assert!(is_settings_update(&json!({"params": update})));
        assert_eq!(setting_update("s", &json!({})), None);
    }

    #[test]
    fn prompts_become_texts() {
        let blocks = json!([{"type": "text", "text": "Look at"},
            {"type": "resource", "resource": {"uri": "file:///a.rs", "text": "fn a() {}"}},
            {"type": "resource_link", "uri": "file:///b.rs", "name": "b"}]);
        let text = prompt_text(&blocks).unwrap();
        assert_eq!(text, "Look at\n\nfile:///a.rs:\n```\nfn a() {}\n```\n\nfile:///b.rs");
        for wrong in [json!("x"), json!([]), json!([{"type": "image"}]), json!([{"type": "text"}])]
        {
            assert!(prompt_text(&wrong).is_err(), "{wrong}");
        }
    }
}
