//! The table of apps: settings of `/v1` that apply to one app only.

use std::collections::BTreeMap;

use hob_agents::claude::ClaudeTransport;
use hob_domain::session::Permissions;
use hob_domain::{AppName, Driver};
use hob_sessions::ConversationSetup;
use toml::{Table, Value};

use super::paths::expand;
use super::source::{Row, SettingsError, Source};

/// The keys of an entry. Any other key is a warning.
const KEYS: &[&str] = &["driver", "cwd", "permissions"];

/// Reads the entries of `config.toml`. A `HOB_APPS_NAME_KEY` variable overrides a key of an
/// existing entry.
pub fn resolve(
    written: Table,
    environment: &BTreeMap<String, String>,
    rows: &mut Vec<Row>,
    warnings: &mut Vec<String>,
) -> Result<BTreeMap<AppName, ConversationSetup>, SettingsError> {
    let mut setups = BTreeMap::new();
    for (name, entry) in written {
        let bad = |problem: String| bad(&format!("apps.{name}"), &Source::File, problem);
        let app = AppName::new(name.as_str()).map_err(|error| bad(error.to_string()))?;
        let Value::Table(entry) = entry else {
            return Err(bad("must be a table".to_owned()));
        };
        setups.insert(app, read_app(&name, entry, environment, rows, warnings)?);
    }
    Ok(setups)
}

/// Reads the entry of one app. A variable wins over the file.
fn read_app(
    name: &str,
    mut entry: Table,
    environment: &BTreeMap<String, String>,
    rows: &mut Vec<Row>,
    warnings: &mut Vec<String>,
) -> Result<ConversationSetup, SettingsError> {
    let mut setup = ConversationSetup::default();
    for key in KEYS {
        let variable = format!("HOB_APPS_{name}_{key}").to_uppercase().replace(['-', '.'], "_");
        let set = environment.get(&variable).filter(|text| !text.is_empty()).cloned();
        let (value, source) = match (entry.remove(*key), set) {
            (_, Some(text)) => (Value::String(text), Source::Environment(variable)),
            (Some(value), None) => (value, Source::File),
            (None, None) => continue,
        };
        let full_key = format!("apps.{name}.{key}");
        let applied = match value.as_str() {
            Some(text) => apply(&mut setup, key, text, environment),
            None => Err("must be a string in quotes"),
        };
        applied.map_err(|problem| bad(&full_key, &source, problem.to_owned()))?;
        rows.push(Row { key: full_key, value: value.to_string(), source });
    }
    let unknown = entry
        .keys()
        .map(|key| format!("config.toml: unknown setting apps.{name}.{key} is ignored"));
    warnings.extend(unknown);
    Ok(setup)
}

/// Sets one key of an app. The error says what a valid value is.
fn apply(
    setup: &mut ConversationSetup,
    key: &str,
    text: &str,
    environment: &BTreeMap<String, String>,
) -> Result<(), &'static str> {
    match key {
        "driver" => {
            let way = Driver::parse(text).and_then(ClaudeTransport::of);
            setup.transport = Some(way.ok_or("must be \"claude-tui\" or \"claude-stream\"")?);
        }
        "cwd" => {
            let folder = Some(expand(text, environment)).filter(|folder| folder.is_absolute());
            setup.cwd = Some(folder.ok_or("must be an absolute path")?);
        }
        _ => {
            setup.permissions = match text {
                "deny" => Permissions::Deny,
                "allow" => Permissions::Allow,
                _ => return Err("must be \"deny\" or \"allow\": /v1 cannot ask a user"),
            };
        }
    }
    Ok(())
}

fn bad(key: &str, origin: &Source, problem: String) -> SettingsError {
    SettingsError::BadValue { key: key.to_owned(), origin: origin.clone(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        file: &str,
        env: &[(&str, &str)],
    ) -> Result<BTreeMap<AppName, ConversationSetup>, SettingsError> {
        let env = env.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        resolve(file.parse().unwrap(), &env, &mut Vec::new(), &mut Vec::new())
    }

    #[test]
    fn an_app_chooses_its_driver_folder_and_permissions() {
        let file =
            "[site]\ndriver = \"claude-stream\"\ncwd = \"~/site\"\npermissions = \"allow\"\n";
        let setups = read(file, &[("HOME", "/u")]).unwrap();
        let expect = ConversationSetup {
            transport: Some(ClaudeTransport::Stream),
            cwd: Some("/u/site".into()),
            permissions: Permissions::Allow,
        };
        assert_eq!(setups[&AppName::new("site").unwrap()], expect);
        let setups = read("[site]\n", &[("HOB_APPS_SITE_DRIVER", "claude-tui")]).unwrap();
        assert_eq!(
            setups[&AppName::new("site").unwrap()].transport,
            Some(ClaudeTransport::Terminal)
        );
    }

    #[test]
    fn bad_values_are_refused_by_name() {
        for (file, word) in [
            ("[a]\ndriver = \"acp\"", "apps.a.driver"),
            ("[a]\ncwd = \"here\"", "apps.a.cwd"),
            ("[a]\npermissions = \"ask\"", "cannot ask"),
            ("[a]\npermissions = 1", "apps.a.permissions"),
            ("a = 1", "apps.a"),
            ("[\"a b\"]", "apps.a b"),
        ] {
            let error = read(file, &[]).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
