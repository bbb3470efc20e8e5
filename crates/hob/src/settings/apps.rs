//! The apps table: how an app's conversations behind `/v1` run, where that is not as for all.

use std::collections::BTreeMap;

use hob_agents::claude::ClaudeTransport;
use hob_domain::session::Permissions;
use hob_domain::{AppName, Driver};
use hob_sessions::ConversationSetup;
use toml::{Table, Value};

use super::paths::expand;
use super::source::{Row, SettingsError, Source};

/// The keys of an entry; anything else is a warning.
const KEYS: &[&str] = &["driver", "cwd", "permissions"];

/// Reads the entries and `HOB_APPS_NAME_KEY` variables of apps that have one.
pub fn resolve(
    written: Table,
    environment: &BTreeMap<String, String>,
    rows: &mut Vec<Row>,
    warnings: &mut Vec<String>,
) -> Result<BTreeMap<AppName, ConversationSetup>, SettingsError> {
    let mut setups = BTreeMap::new();
    for (name, entry) in written {
        let bad = |key: &str, origin: &Source, problem: &str| SettingsError::BadValue {
            key: format!("apps.{name}{key}"),
            origin: origin.clone(),
            problem: problem.to_owned(),
        };
        let app = AppName::new(name.as_str())
            .map_err(|error| bad("", &Source::File, &error.to_string()))?;
        let Value::Table(mut entry) = entry else {
            return Err(bad("", &Source::File, "it must be a table"));
        };
        let mut setup = ConversationSetup::default();
        for key in KEYS {
            let variable = format!("HOB_APPS_{name}_{key}").to_uppercase().replace(['-', '.'], "_");
            let set = environment.get(&variable).filter(|text| !text.is_empty()).cloned();
            let (value, source) = match (entry.remove(*key), set) {
                (_, Some(text)) => (Value::String(text), Source::Environment(variable)),
                (Some(value), None) => (value, Source::File),
                (None, None) => continue,
            };
            let shown = format!(".{key}");
            let text = value
                .as_str()
                .ok_or_else(|| bad(&shown, &source, "it must be a text in quotes"))?;
            match *key {
                "driver" => {
                    let way =
                        Driver::parse(text).and_then(ClaudeTransport::of).ok_or_else(|| {
                            bad(&shown, &source, "it must be \"claude-tui\" or \"claude-stream\"")
                        })?;
                    setup.way = Some(way);
                }
                "cwd" => {
                    let folder = expand(text, environment);
                    if !folder.is_absolute() {
                        return Err(bad(&shown, &source, "it must be an absolute path"));
                    }
                    setup.cwd = Some(folder);
                }
                _ => {
                    setup.permissions = match text {
                        "deny" => Permissions::Deny,
                        "allow" => Permissions::Allow,
                        _ => {
                            let problem =
                                "it must be \"deny\" or \"allow\": nobody is there to be asked";
                            return Err(bad(&shown, &source, problem));
                        }
                    };
                }
            }
            rows.push(Row { key: format!("apps.{name}.{key}"), value: value.to_string(), source });
        }
        let unknown = entry.keys().map(|key| {
            format!("config.toml: apps.{name}.{key} is not a setting of this hob; ignored")
        });
        warnings.extend(unknown);
        setups.insert(app, setup);
    }
    Ok(setups)
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
            way: Some(ClaudeTransport::Stream),
            cwd: Some("/u/site".into()),
            permissions: Permissions::Allow,
        };
        assert_eq!(setups[&AppName::new("site").unwrap()], expect);
        let setups = read("[site]\n", &[("HOB_APPS_SITE_DRIVER", "claude-tui")]).unwrap();
        assert_eq!(setups[&AppName::new("site").unwrap()].way, Some(ClaudeTransport::Terminal));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (file, word) in [
            ("[a]\ndriver = \"acp\"", "apps.a.driver"),
            ("[a]\ncwd = \"here\"", "apps.a.cwd"),
            ("[a]\npermissions = \"ask\"", "nobody"),
            ("[a]\npermissions = 1", "apps.a.permissions"),
            ("a = 1", "apps.a"),
            ("[\"a b\"]", "apps.a b"),
        ] {
            let error = read(file, &[]).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
