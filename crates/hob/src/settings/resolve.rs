//! Resolves the settings once at start: a flag wins over the environment, which wins over `config.toml`, which
//! wins over the default.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hob_agents::claude::HistoryMode;
use hob_domain::AgentName;
use hob_sessions::session::SessionLimits;
use hob_store::StoreUrl;
use toml::{Table, Value};

use super::registry::{SETTINGS, Setting};
use super::resolved::{ClaudeSettings, Resolved};
use super::source::{Row, SettingsError, Source};
use super::{agents, apps, paths};
use crate::home::Home;

/// Reads the environment and the file, and resolves. `flags` are settings given on the command line.
pub fn load(flags: Vec<(&'static str, String)>) -> Result<Resolved, SettingsError> {
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let (home, _) = paths::home(&environment).ok_or(SettingsError::NoHome)?;
    let home = Home::new(home);
    let path = home.config();
    let file = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        // Inside an agent the home is closed; what is needed there is known without it.
        Err(error)
            if error.kind() == std::io::ErrorKind::PermissionDenied && home.is_inside_agent() =>
        {
            String::new()
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => {
            return Err(SettingsError::Unreadable { path: path.display().to_string(), error });
        }
    };
    resolve(&flags, &environment, &file)
}

/// Settings for commands that must work whatever a file says: where it can't be understood, only the
/// environment and the defaults count.
pub fn load_or_default() -> Result<Resolved, SettingsError> {
    load(Vec::new()).or_else(|_| {
        let names = ["HOB_HOME", "IAI_MCP_STORE", "HOB_SOCKET", "IAI_DAEMON_SOCKET_PATH"];
        let more = ["HOB_PASSPHRASE", "IAI_MCP_CRYPTO_PASSPHRASE", "HOME"];
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| names.iter().chain(&more).any(|known| known == name))
            .collect();
        resolve(&[], &environment, "")
    })
}

/// Resolves what was given. Pure, but for making relative paths absolute.
fn resolve(
    flags: &[(&'static str, String)],
    environment: &BTreeMap<String, String>,
    file: &str,
) -> Result<Resolved, SettingsError> {
    let (root, home_source) = paths::home(environment).ok_or(SettingsError::NoHome)?;
    let home = Home::new(root);
    let mut table: Table = file.parse().map_err(|error| SettingsError::NotToml {
        path: home.config().display().to_string(),
        error: Box::new(error),
    })?;
    let mut rows = Vec::new();
    let mut row = |key: &str, value: String, source: &Source| {
        rows.push(Row { key: key.to_owned(), value, source: source.clone() });
    };
    row("home", home.root().display().to_string(), &home_source);
    let (socket, source) = paths::socket(environment, &home);
    row("socket", socket.display().to_string(), &source);
    let mut secret = |key: &str, names: &[&str]| {
        let found = paths::from_environment(environment, names);
        let shown = if found.is_some() { "(set)" } else { "(not set)" };
        let source = found.as_ref().map_or(Source::Default, |(_, source)| source.clone());
        row(key, shown.to_owned(), &source);
        found.map(|(value, _)| value)
    };
    let passphrase = secret("passphrase", &["HOB_PASSPHRASE", "IAI_MCP_CRYPTO_PASSPHRASE"]);
    let admin_token = secret("admin_token", &["HOB_ADMIN_TOKEN"]);

    let mut values = BTreeMap::new();
    for setting in SETTINGS {
        let (value, source) = pick(setting, flags, environment, &mut table)?;
        // Written without its password.
        let store = value.as_str().and_then(|text| text.parse::<StoreUrl>().ok());
        row(setting.key, store.map_or(value.to_string(), |url| url.to_string()), &source);
        values.insert(setting.key, value);
    }
    let mut tables = |key: &str| match table.remove(key) {
        Some(Value::Table(entries)) => Ok(entries),
        None => Ok(Table::new()),
        Some(_) => Err(SettingsError::BadValue {
            key: key.to_owned(),
            origin: Source::File,
            problem: format!("it must be a table of {key}"),
        }),
    };
    let (written_agents, written_apps) = (tables("agents")?, tables("apps")?);
    let mut warnings = Vec::new();
    let agents = agents::resolve(written_agents, environment, &mut rows, &mut warnings)?;
    let apps = apps::resolve(written_apps, environment, &mut rows, &mut warnings)?;
    warnings.extend(left_over("", &table));

    let count = |key| values[key].as_integer().unwrap_or_default().max(0) as u64;
    let seconds = |key| Duration::from_secs(count(key));
    let amount = |key| values[key].as_float().unwrap_or_default();
    let folders = |key| -> Vec<PathBuf> {
        let listed = values[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        listed.map(|folder| paths::expand(folder, environment)).collect()
    };
    let names = |key| -> Vec<String> {
        let listed = values[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        listed.map(str::to_owned).collect()
    };
    let text = |key| values[key].as_str().unwrap_or_default().to_owned();
    let agent = |key: &'static str| {
        let name = text(key);
        let known = AgentName::new(name.as_str()).filter(|name| agents.contains_key(name));
        known.ok_or_else(|| SettingsError::BadValue {
            key: key.to_owned(),
            origin: rows
                .iter()
                .find(|row| row.key == key)
                .map_or(Source::Default, |row| row.source.clone()),
            problem: format!("there is no agent {name:?}"),
        })
    };
    let default_agent = agent("sessions.default_agent")?;
    let claude = ClaudeSettings {
        agent: agent("claude.agent")?,
        history: HistoryMode::parse(&text("claude.history")).unwrap_or(HistoryMode::NativeJsonl),
        idle: seconds("claude.idle_secs"),
        apps,
    };
    Ok(Resolved {
        home,
        socket,
        passphrase,
        admin_token,
        store: text("store.url").parse().ok(),
        lease: seconds("cluster.lease_secs"),
        cluster_max_live: count("cluster.max_live") as usize,
        store_encrypt: values["store.encrypt"].as_bool().unwrap_or(true),
        http: values["http"].as_bool().unwrap_or(true),
        listen: text("listen"),
        hosts: names("hosts"),
        console_session: seconds("console.session_secs"),
        idle_shutdown: Duration::from_secs(count("idle_shutdown_secs")),
        shutdown_grace: Duration::from_secs(count("shutdown_grace_secs")),
        max_body_bytes: count("max_body_bytes") as usize,
        max_file_bytes: count("max_file_bytes"),
        log: text("log"),
        max_live: count("sessions.max_live") as usize,
        turn_timeout: seconds("sessions.turn_timeout_secs"),
        sessions: SessionLimits {
            ttl: seconds("sessions.ttl_secs"),
            hard_ttl: seconds("sessions.hard_ttl_secs"),
            sweep_interval: seconds("sessions.sweep_interval_secs"),
            queue: count("sessions.queue") as usize,
            turn_timeout: seconds("sessions.turn_timeout_secs"),
            permission_timeout: seconds("sessions.permission_timeout_secs"),
            stall_after: seconds("sessions.stall_secs"),
            start_timeout: seconds("sessions.start_timeout_secs"),
            app_sessions: count("limits.app_sessions") as usize,
            app_turns_per_minute: count("limits.app_turns_per_minute") as usize,
            app_tokens_per_day: count("limits.app_tokens_per_day"),
            app_cost_per_day: amount("limits.app_cost_usd_per_day"),
            session_tokens: count("limits.session_tokens"),
            session_cost: amount("limits.session_cost_usd"),
        },
        roots: folders("sessions.roots"),
        default_agent,
        agents,
        claude,
        memory_model: Some(text("memory.model"))
            .filter(|folder| !folder.is_empty())
            .map(|folder| paths::expand(&folder, environment)),
        rows,
        warnings,
    })
}

/// One setting's value: the first of flag, environment, file and default that gives one.
fn pick(
    setting: &Setting,
    flags: &[(&'static str, String)],
    environment: &BTreeMap<String, String>,
    file: &mut Table,
) -> Result<(Value, Source), SettingsError> {
    let from_file = take(file, setting.key);
    let names = setting.environment_names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (found, source) = if let Some((_, text)) = flags.iter().find(|(key, _)| *key == setting.key)
    {
        (setting.kind.parse(text), Source::Flag)
    } else if let Some((text, source)) = paths::from_environment(environment, &names) {
        (setting.kind.parse(&text), source)
    } else if let Some(value) = from_file {
        (Ok(value), Source::File)
    } else {
        (setting.kind.parse(setting.default), Source::Default)
    };
    let bad = |problem| SettingsError::BadValue {
        key: setting.key.to_owned(),
        origin: source.clone(),
        problem,
    };
    let value = found.and_then(|value| setting.kind.check(value)).map_err(bad)?;
    Ok((value, source))
}

/// Takes `section.key` out of a table, so that what is left was not understood.
fn take(table: &mut Table, key: &str) -> Option<Value> {
    match key.split_once('.') {
        None => table.remove(key),
        Some((section, rest)) => take(table.get_mut(section)?.as_table_mut()?, rest),
    }
}

fn left_over(prefix: &str, table: &Table) -> Vec<String> {
    table
        .iter()
        .flat_map(|(key, value)| match value {
            Value::Table(inner) => left_over(&format!("{prefix}{key}."), inner),
            _ => vec![format!("config.toml: {prefix}{key} is not a setting of this hob; ignored")],
        })
        .collect()
}

#[cfg(test)]
mod tests {
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
    fn defaults() {
        let resolved = ok(&[], &[], "");
        assert_eq!(resolved.home.root(), PathBuf::from("/u/.hob"));
        assert_eq!(resolved.socket, PathBuf::from("/u/.hob/hob.sock"));
        assert_eq!(resolved.listen, "127.0.0.1:7717");
        assert_eq!(resolved.idle_shutdown, Duration::ZERO);
        assert_eq!(resolved.max_live, 16);
        assert_eq!(resolved.turn_timeout, Duration::from_secs(1800));
        assert_eq!(resolved.default_agent.as_str(), "claude");
        assert!(resolved.warnings.is_empty());
    }

    #[test]
    fn flags_win_over_the_environment_over_the_file() {
        let file = "listen = \"f:1\"\n[sessions]\nmax_live = 3\nturn_timeout_secs = 9\n";
        let pairs = [("HOB_LISTEN", "e:1"), ("HOB_SESSIONS_MAX_LIVE", "4")];
        let resolved = ok(&[("listen", "l:1".to_owned())], &pairs, file);
        assert_eq!(resolved.listen, "l:1");
        assert_eq!(*source(&resolved, "listen"), Source::Flag);
        assert_eq!(resolved.max_live, 4);
        let expect = Source::Environment("HOB_SESSIONS_MAX_LIVE".to_owned());
        assert_eq!(*source(&resolved, "sessions.max_live"), expect);
        assert_eq!(resolved.turn_timeout, Duration::from_secs(9));
        assert_eq!(*source(&resolved, "sessions.turn_timeout_secs"), Source::File);
        assert_eq!(*source(&resolved, "log"), Source::Default);
    }

    #[test]
    fn earlier_names_are_read_when_the_new_one_is_unset() {
        let old = [
            ("IAI_MCP_STORE", "/old"),
            ("IAI_DAEMON_SOCKET_PATH", "/old.sock"),
            ("IAI_DAEMON_IDLE_SHUTDOWN_SECS", "7"),
            ("IAI_MCP_CRYPTO_PASSPHRASE", "secret"),
        ];
        let resolved = ok(&[], &old, "");
        assert_eq!(resolved.home.root(), PathBuf::from("/old"));
        assert_eq!(resolved.socket, PathBuf::from("/old.sock"));
        assert_eq!(resolved.idle_shutdown, Duration::from_secs(7));
        assert_eq!(resolved.passphrase.as_deref(), Some("secret"));
        assert!(resolved.rows.iter().all(|row| !row.value.contains("secret")));
        let new = [("HOB_HOME", "/new"), ("HOB_SOCKET", "/new.sock")];
        let both: Vec<_> = old.iter().chain(&new).copied().collect();
        let resolved = ok(&[], &both, "");
        assert_eq!(resolved.home.root(), PathBuf::from("/new"));
        assert_eq!(resolved.socket, PathBuf::from("/new.sock"));
    }

    #[test]
    fn bad_values_name_the_setting_and_its_source() {
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
    fn the_password_of_the_database_is_shown_nowhere() {
        let resolved = ok(&[], &[("HOB_STORE_URL", "postgres://u:s3cret@h:1/d")], "");
        let row = resolved.rows.iter().find(|row| row.key == "store.url").expect("a row");
        assert_eq!(row.value, "postgres://u@h:1/d");
        assert!(!format!("{resolved:?}").contains("s3cret"));
        for bad in ["postgres://u:s3cret@h:x/d", "pg://u:s3cret@h", "postgres://u:s3cret@h/d?y=1"] {
            let error = resolve(&[], &env(&[("HOB_STORE_URL", bad)]), "").expect_err(bad);
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
        assert!(ok(&[], &[], "").store.is_none());
    }

    #[test]
    fn what_is_not_understood_is_a_warning() {
        let resolved =
            ok(&[], &[], "colour = 1\n[sessions]\nmax_lives = 9\n[agents.claude]\nx = 1\n");
        let text = resolved.warnings.join("\n");
        for word in ["colour", "sessions.max_lives", "agents.claude.x"] {
            assert!(text.contains(word), "{text}");
        }
        assert_eq!(resolved.warnings.len(), 3);
    }
}
