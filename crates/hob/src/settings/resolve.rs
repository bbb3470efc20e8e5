//! Resolves the settings once at start: a flag wins over the environment, which wins over
//! `config.toml`, which wins over the default.

use std::collections::BTreeMap;
use std::io;

use hob_domain::{AgentName, AgentSpec};
use hob_files::owned;
use hob_sessions::session::SessionLimits;
use hob_store::StoreUrl;
use toml::{Table, Value};

use super::registry::Values;
use super::resolved::{ClaudeSettings, Resolved};
use super::source::{Row, SettingsError, Source};
use super::value::{AgentReference, ValueReader};
use super::{agents, apps, paths};
use crate::home::Home;

/// Reads the environment and `config.toml`, and resolves the settings. `flags` are settings from
/// the command line.
pub fn load(flags: Vec<(&'static str, String)>) -> Result<Resolved, SettingsError> {
    let environment: BTreeMap<String, String> = unicode_environment().collect();
    let (home, _) = paths::home(&environment).ok_or(SettingsError::NoHome)?;
    let home = Home::new(home);
    let path = home.config();
    let file = match owned::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        // The sandbox closes the home to agents. The environment tells their commands all they
        // need.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && home.is_inside_agent() => {
            String::new()
        }
        Err(error) => {
            return Err(SettingsError::Unreadable { path: path.display().to_string(), error });
        }
    };
    resolve(&flags, &environment, &file)
}

/// Loads the settings for a hook, which must work even if a setting is wrong. If the settings
/// cannot be resolved, only the paths and the passphrase of the environment count, and the
/// defaults.
pub fn load_or_default() -> Result<Resolved, SettingsError> {
    const NAMES: [&str; 7] = [
        "HOB_HOME",
        "IAI_MCP_STORE",
        "HOB_SOCKET",
        "IAI_DAEMON_SOCKET_PATH",
        "HOB_PASSPHRASE",
        "IAI_MCP_CRYPTO_PASSPHRASE",
        "HOME",
    ];
    load(Vec::new()).or_else(|_| {
        let named = unicode_environment().filter(|(name, _)| NAMES.contains(&name.as_str()));
        resolve(&[], &named.collect(), "")
    })
}

/// Checks the text of a `config.toml` as if no variable had a value of its own.
pub fn check_file(text: &str) -> Result<(), SettingsError> {
    const NAMES: [&str; 3] = ["HOB_HOME", "IAI_MCP_STORE", "HOME"];
    let named = unicode_environment().filter(|(name, _)| NAMES.contains(&name.as_str()));
    resolve(&[], &named.collect(), text).map(drop)
}

fn unicode_environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Resolves flags, environment and file. Pure, except that it makes relative paths absolute.
fn resolve(
    flags: &[(&'static str, String)],
    environment: &BTreeMap<String, String>,
    file: &str,
) -> Result<Resolved, SettingsError> {
    let (root, home_source) = paths::home(environment).ok_or(SettingsError::NoHome)?;
    let home = Home::new(root);
    let (socket, socket_source) = paths::socket(environment, &home);
    let file: Table = file.parse().map_err(|error| SettingsError::NotToml {
        path: home.config().display().to_string(),
        error: Box::new(error),
    })?;
    let mut rows = vec![
        Row {
            key: "home".to_owned(),
            value: home.root().display().to_string(),
            source: home_source,
        },
        Row {
            key: "socket".to_owned(),
            value: socket.display().to_string(),
            source: socket_source,
        },
    ];
    let passphrase_names = ["HOB_PASSPHRASE", "IAI_MCP_CRYPTO_PASSPHRASE"];
    let passphrase = secret("passphrase", &passphrase_names, environment, &mut rows);
    let admin_token = secret("admin_token", &["HOB_ADMIN_TOKEN"], environment, &mut rows);

    let mut reader = ValueReader { flags, environment, file, rows };
    let values = Values::read(&mut reader)?;
    let ValueReader { mut file, mut rows, .. } = reader;
    refuse_clear_store(&values, &rows)?;
    let (agents_table, apps_table) =
        (take_table(&mut file, "agents")?, take_table(&mut file, "apps")?);
    let mut warnings = Vec::new();
    let agents = agents::resolve(agents_table, environment, &mut rows, &mut warnings)?;
    let apps = apps::resolve(apps_table, environment, &mut rows, &mut warnings)?;
    warnings.extend(unknown_keys("", &file));

    Ok(Resolved {
        home,
        socket,
        passphrase,
        admin_token,
        sessions: session_limits(&values),
        default_agent: known_agent(&values.default_agent, &agents)?,
        claude: ClaudeSettings { agent: known_agent(&values.claude_agent, &agents)?, apps },
        agents,
        values,
        rows,
        warnings,
    })
}

/// Refuses a database on another machine that may be used without TLS.
fn refuse_clear_store(values: &Values, rows: &[Row]) -> Result<(), SettingsError> {
    let is_clear = values.store_url.as_ref().is_some_and(StoreUrl::may_be_clear);
    let row = rows.iter().find(|row| row.key == "store.url");
    match row.filter(|_| is_clear && values.store_require_tls) {
        None => Ok(()),
        Some(row) => Err(SettingsError::BadValue {
            key: row.key.clone(),
            origin: row.source.clone(),
            problem:
                "the database server is on another machine, and sslmode allows connections without TLS: use \
                      sslmode=require, verify-ca or verify-full, or set store.require_tls to false"
                    .to_owned(),
        }),
    }
}

/// Reads a secret from the environment. Its row only says whether the secret is set.
fn secret(
    key: &str,
    names: &[&str],
    environment: &BTreeMap<String, String>,
    rows: &mut Vec<Row>,
) -> Option<String> {
    let (value, source) = match paths::from_environment(environment, names) {
        Some((value, source)) => (Some(value), source),
        None => (None, Source::Default),
    };
    let shown = if value.is_some() { "(set)" } else { "(not set)" };
    rows.push(Row { key: key.to_owned(), value: shown.to_owned(), source });
    value
}

/// Takes the table of agents or apps out of the file.
fn take_table(file: &mut Table, key: &str) -> Result<Table, SettingsError> {
    match file.remove(key) {
        Some(Value::Table(entries)) => Ok(entries),
        None => Ok(Table::new()),
        Some(_) => Err(SettingsError::BadValue {
            key: key.to_owned(),
            origin: Source::File,
            problem: format!("must be a table of {key}"),
        }),
    }
}

fn known_agent(
    reference: &AgentReference,
    agents: &BTreeMap<AgentName, AgentSpec>,
) -> Result<AgentName, SettingsError> {
    let name = AgentName::new(reference.name.as_str()).filter(|name| agents.contains_key(name));
    name.ok_or_else(|| {
        let known: Vec<&str> = agents.keys().map(AgentName::as_str).collect();
        SettingsError::BadValue {
            key: reference.key.to_owned(),
            origin: reference.source.clone(),
            problem: format!(
                "there is no agent named {:?}; known agents: {}",
                reference.name,
                known.join(", ")
            ),
        }
    })
}

fn session_limits(values: &Values) -> SessionLimits {
    SessionLimits {
        ttl: values.session_ttl,
        hard_ttl: values.session_hard_ttl,
        sweep_interval: values.sweep_interval,
        queue: values.max_queued_turns,
        turn_timeout: values.turn_timeout,
        permission_timeout: values.permission_timeout,
        stall_after: values.stall_after,
        start_timeout: values.start_timeout,
        app_sessions: values.app_sessions,
        app_turns_per_minute: values.app_turns_per_minute,
        app_tokens_per_day: values.app_tokens_per_day,
        app_cost_per_day: values.app_cost_per_day,
        session_tokens: values.session_tokens,
        session_cost: values.session_cost,
    }
}

/// Returns a warning for each key that no setting has read.
fn unknown_keys(prefix: &str, table: &Table) -> Vec<String> {
    let warnings = table.iter().flat_map(|(key, value)| match value {
        Value::Table(inner) => unknown_keys(&format!("{prefix}{key}."), inner),
        _ => vec![format!("config.toml: unknown setting {prefix}{key} is ignored")],
    });
    warnings.collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let home = [("HOME", "/u")];
        home.iter().chain(pairs).map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    fn ok(flags: &[(&'static str, String)], pairs: &[(&str, &str)], file: &str) -> Resolved {
        resolve(flags, &env(pairs), file).expect("valid settings")
    }

    fn source<'a>(resolved: &'a Resolved, key: &str) -> &'a Source {
        &resolved.rows.iter().find(|row| row.key == key).expect(key).source
    }

    #[test]
    fn empty_settings_give_the_defaults() {
        let resolved = ok(&[], &[], "");
        assert_eq!(resolved.home.root(), PathBuf::from("/u/.hob"));
        assert_eq!(resolved.socket, PathBuf::from("/u/.hob/hob.sock"));
        assert_eq!(resolved.values.listen, "127.0.0.1:7717");
        assert_eq!(resolved.values.idle_shutdown, Duration::ZERO);
        assert_eq!(resolved.values.max_live, 16);
        assert_eq!(resolved.values.turn_timeout, Duration::from_secs(1800));
        assert_eq!(resolved.default_agent.as_str(), "claude");
        assert!(resolved.warnings.is_empty());
    }

    #[test]
    fn flag_wins_over_environment_over_file() {
        let file = "listen = \"f:1\"\n[sessions]\nmax_live = 3\nturn_timeout_secs = 9\n";
        let pairs = [("HOB_LISTEN", "e:1"), ("HOB_SESSIONS_MAX_LIVE", "4")];
        let resolved = ok(&[("listen", "l:1".to_owned())], &pairs, file);
        assert_eq!(resolved.values.listen, "l:1");
        assert_eq!(*source(&resolved, "listen"), Source::Flag);
        assert_eq!(resolved.values.max_live, 4);
        let expect = Source::Environment("HOB_SESSIONS_MAX_LIVE".to_owned());
        assert_eq!(*source(&resolved, "sessions.max_live"), expect);
        assert_eq!(resolved.values.turn_timeout, Duration::from_secs(9));
        assert_eq!(*source(&resolved, "sessions.turn_timeout_secs"), Source::File);
        assert_eq!(*source(&resolved, "log"), Source::Default);
    }

    #[test]
    fn earlier_variables_count_if_the_new_ones_are_unset() {
        let old = [
            ("IAI_MCP_STORE", "/old"),
            ("IAI_DAEMON_SOCKET_PATH", "/old.sock"),
            ("IAI_DAEMON_IDLE_SHUTDOWN_SECS", "7"),
            ("IAI_MCP_CRYPTO_PASSPHRASE", "secret"),
        ];
        let resolved = ok(&[], &old, "");
        assert_eq!(resolved.home.root(), PathBuf::from("/old"));
        assert_eq!(resolved.socket, PathBuf::from("/old.sock"));
        assert_eq!(resolved.values.idle_shutdown, Duration::from_secs(7));
        assert_eq!(resolved.passphrase.as_deref(), Some("secret"));
        assert!(resolved.rows.iter().all(|row| !row.value.contains("secret")));
        let new = [("HOB_HOME", "/new"), ("HOB_SOCKET", "/new.sock")];
        let both: Vec<_> = old.iter().chain(&new).copied().collect();
        let resolved = ok(&[], &both, "");
        assert_eq!(resolved.home.root(), PathBuf::from("/new"));
        assert_eq!(resolved.socket, PathBuf::from("/new.sock"));
    }

    #[test]
    fn bad_value_error_names_setting_and_source() {
        let check = |pairs: &[(&str, &str)], file: &str, words: &[&str]| {
            let error = resolve(&[], &env(pairs), file).expect_err("bad settings").to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        };
        check(&[], "[sessions]\nmax_live = \"x\"\n", &["sessions.max_live", "config.toml"]);
        check(&[], "[sessions]\nmax_live = 0\n", &["sessions.max_live", "1"]);
        check(&[("HOB_SESSIONS_MAX_LIVE", "x")], "", &["$HOB_SESSIONS_MAX_LIVE"]);
        check(&[], "nonsense", &["not valid TOML"]);
        check(&[], "sessions = 3\n[agents.x]\n", &["agents.x"]);
        check(&[("HOB_SESSIONS_DEFAULT_AGENT", "nobody")], "", &["nobody"]);
        check(&[("HOB_STORE_URL", "mysql://u@h/d")], "", &["store.url", "postgres://"]);
    }

    #[test]
    fn database_password_is_never_shown() {
        let resolved = ok(&[], &[("HOB_STORE_URL", "postgres://u:s3cret@h:1/d")], "");
        let row = resolved.rows.iter().find(|row| row.key == "store.url").expect("a row");
        assert_eq!(row.value, "postgres://u@h:1/d");
        assert!(!format!("{resolved:?}").contains("s3cret"));
        for bad in ["postgres://u:s3cret@h:x/d", "pg://u:s3cret@h", "postgres://u:s3cret@h/d?y=1"] {
            let error = resolve(&[], &env(&[("HOB_STORE_URL", bad)]), "").expect_err(bad);
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
        assert!(ok(&[], &[], "").values.store_url.is_none());
    }

    #[test]
    fn unknown_keys_are_warnings() {
        let resolved =
            ok(&[], &[], "colour = 1\n[sessions]\nmax_lives = 9\n[agents.claude]\nx = 1\n");
        let text = resolved.warnings.join("\n");
        for word in ["colour", "sessions.max_lives", "agents.claude.x"] {
            assert!(text.contains(word), "{text}");
        }
        assert_eq!(resolved.warnings.len(), 3);
    }
}
