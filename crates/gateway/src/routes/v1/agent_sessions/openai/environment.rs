//! Where a session of OpenAI's API works. All environments are this machine.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::error::ApiError;
use crate::routes::v1::agent_sessions::body::asks;

/// The fields that would change a hosted environment in a way that Hob does not support.
const REFUSED: [&str; 9] = [
    "files",
    "plugins",
    "skills",
    "setup_commands",
    "capability_directories",
    "env",
    "environment_id",
    "environment_template_id",
    "packages",
];

/// Checks an environment. Returns it as the API shows it, and the folder that the session works in.
pub(super) fn environment(value: &Value) -> Result<(Value, Option<String>), ApiError> {
    let wrong = |field: &str, text: &str| {
        Err(ApiError::bad_request(format!("environment.{field}: {text}")))
    };
    let known: &[&str] = match value["type"].as_str() {
        Some("none") => &[],
        Some("self_hosted") => &["workspace_directory", "capability_directories"],
        Some("openai_hosted") => &["container_size", "desktop", "network"],
        _ => return wrong("type", "must be none, self_hosted or openai_hosted"),
    };
    let is_hosted = value["type"] == "openai_hosted";
    for (field, content) in value.as_object().into_iter().flatten() {
        let is_refused = is_hosted && REFUSED.contains(&field.as_str());
        if field != "type" && !is_refused && !known.contains(&field.as_str()) {
            return wrong(field, "unknown field");
        }
        let is_full = match content {
            // The lists of packages may all be empty.
            Value::Object(table) if field == "packages" => table.values().any(asks),
            content => asks(content),
        };
        if is_full && (is_refused || field == "capability_directories") {
            return wrong(field, "Hob does not support it; the agent uses what this machine has");
        }
    }
    let id = format!("env_{}", Uuid::new_v4().simple());
    match value["type"].as_str() {
        Some("self_hosted") => {
            let folder = value["workspace_directory"].as_str().unwrap_or_default();
            if folder.is_empty() {
                return wrong("workspace_directory", "must not be empty");
            }
            let shown = json!({"type": "self_hosted", "id": id, "capability_directories": [],
                "remote_url": "", "workspace_directory": folder});
            Ok((shown, Some(folder.to_owned())))
        }
        Some("openai_hosted") => {
            let network = &value["network"];
            let is_open = network["access"].as_str().unwrap_or("enabled") == "enabled";
            if !is_open || asks(&network["allowed_domains"]) || asks(&network["blocked_domains"]) {
                return wrong("network", "Hob does not limit the network of a session");
            }
            if asks(&value["desktop"]["enabled"]) {
                return wrong("desktop", "Hob has no desktop for a session");
            }
            let shown = json!({"type": "openai_hosted", "id": id, "capability_directories": [],
                "files": [], "network": {"access": "enabled", "allowed_domains": []},
                "packages": {"npm": [], "python": [], "system": []}, "plugins": [], "skills": []});
            Ok((shown, None))
        }
        _ => Ok((json!({"type": "none"}), None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(value: Value) -> String {
        match environment(&value) {
            Err(ApiError::BadRequest { message, .. }) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn unsupported_fields_are_refused_by_name() {
        let hosted = |field: &str, value: Value| json!({"type": "openai_hosted", field: value});
        for (field, value) in [
            ("environment_template_id", json!("t")),
            ("env", json!({"A": "1"})),
            ("packages", json!({"npm": ["x"]})),
            ("network", json!({"access": "enabled", "blocked_domains": ["x.org"]})),
            ("desktop", json!({"enabled": true})),
            ("colour", json!(1)),
        ] {
            let error = error(hosted(field, value));
            assert!(error.starts_with(&format!("environment.{field}:")), "{error}");
        }
        let own = json!({"type": "self_hosted", "workspace_directory": "/w",
            "capability_directories": ["/c"]});
        assert!(error(own).starts_with("environment.capability_directories:"));
        assert!(error(json!({"type": "none", "env": {}})).starts_with("environment.env:"));
    }

    #[test]
    fn empty_fields_ask_for_nothing() {
        let empty = json!({"type": "openai_hosted", "files": [], "env": null, "container_size": "small",
            "packages": {"npm": [], "python": null}, "desktop": {"enabled": false},
            "network": {"access": "enabled", "allowed_domains": []}});
        assert!(environment(&empty).is_ok());
        let (_, folder) =
            environment(&json!({"type": "self_hosted", "workspace_directory": "/w"})).unwrap();
        assert_eq!(folder.as_deref(), Some("/w"));
    }
}
