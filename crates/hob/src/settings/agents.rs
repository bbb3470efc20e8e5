//! The table of agents. The user's entries override the built-in ones key by key.

use std::collections::BTreeMap;

use hob_domain::session::Permissions;
use hob_domain::{AgentName, AgentSpec, Driver, Sandbox};
use toml::{Table, Value};

use super::source::{Row, SettingsError, Source};

/// The built-in agents. `demo` has no command, because it is this executable itself.
const BUILT_IN: &str = r#"
[claude]
driver = "claude-tui"
command = ["claude"]
env_pass = ["ANTHROPIC_*", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN"]
install = "Install Claude Code with `npm install -g @anthropic-ai/claude-code`, or use another agent; `demo` needs no installation."

[claude-agent-acp]
driver = "acp"
command = ["claude-agent-acp"]
env_pass = ["ANTHROPIC_*", "CLAUDE_CODE_OAUTH_TOKEN"]
private = ["CLAUDE_CONFIG_DIR"]
copy = { "~/.claude/.credentials.json" = "CLAUDE_CONFIG_DIR/.credentials.json" }
install = "Install it with `npm install -g @agentclientprotocol/claude-agent-acp`."

[codex]
driver = "acp"
command = ["codex-acp"]
env = { INITIAL_AGENT_MODE = "agent-full-access" }
env_pass = ["OPENAI_*", "CODEX_*"]
private = ["CODEX_HOME"]
modes = { deny = "read-only", ask = "read-only" }
notices = { deny = "With permissions = \"deny\", Codex runs no commands: its own sandbox cannot run inside Hob's. Use \"ask\" or \"allow\".", ask = "Codex's own sandbox cannot run inside Hob's. Commands for which Codex does not ask fail." }
copy = { "~/.codex/auth.json" = "CODEX_HOME/auth.json", "~/.codex/config.toml" = "CODEX_HOME/config.toml" }
install = "Install it with `npm install -g @agentclientprotocol/codex-acp`."

[gemini]
driver = "acp"
command = ["gemini", "--acp"]
env = { GEMINI_CLI_TRUST_WORKSPACE = "true" }
env_pass = ["GEMINI_*", "GOOGLE_*"]
model_env = "GEMINI_MODEL"
private = ["GEMINI_CLI_HOME"]
modes = { deny = "default", ask = "default" }
copy = { "~/.gemini/oauth_creds.json" = "GEMINI_CLI_HOME/.gemini/oauth_creds.json", "~/.gemini/google_accounts.json" = "GEMINI_CLI_HOME/.gemini/google_accounts.json", "~/.gemini/settings.json" = "GEMINI_CLI_HOME/.gemini/settings.json" }
install = "Install it with `npm install -g @google/gemini-cli`."

[opencode]
driver = "acp"
command = ["opencode", "acp"]
env_pass = ["OPENCODE_*", "ANTHROPIC_*", "OPENAI_*", "GEMINI_*"]
permission_env = { OPENCODE_PERMISSION = '{"edit":"ask","bash":"ask","webfetch":"ask"}' }
private = ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"]
copy = { "~/.config/opencode/opencode.json" = "XDG_CONFIG_HOME/opencode/opencode.json", "~/.local/share/opencode/auth.json" = "XDG_DATA_HOME/opencode/auth.json" }
install = "Install it with `npm install -g opencode-ai`."

[copilot]
driver = "acp"
command = ["copilot", "--acp"]
env_pass = ["COPILOT_*", "GH_TOKEN", "GITHUB_TOKEN"]
model_env = "COPILOT_MODEL"
private = ["COPILOT_HOME"]
copy = { "~/.copilot/config.json" = "COPILOT_HOME/config.json" }
install = "Install it with `npm install -g @github/copilot`."

[cursor]
driver = "acp"
command = ["cursor-agent", "acp"]
env_pass = ["CURSOR_*"]
private = ["CURSOR_CONFIG_DIR"]
copy = { "~/.config/cursor/auth.json" = "CURSOR_CONFIG_DIR/auth.json", "~/.cursor/cli-config.json" = "CURSOR_CONFIG_DIR/cli-config.json" }
install = "Install it as https://cursor.com/docs/cli describes."

[goose]
driver = "acp"
command = ["goose", "acp"]
env_pass = ["GOOSE_*", "ANTHROPIC_*", "OPENAI_*", "GOOGLE_*"]
permission_env = { GOOSE_MODE = "approve" }
model_env = "GOOSE_MODEL"
private = ["GOOSE_PATH_ROOT"]
copy = { "~/.config/goose/config.yaml" = "GOOSE_PATH_ROOT/config/config.yaml" }
install = "Install it as https://block.github.io/goose describes."

[qwen]
driver = "acp"
command = ["qwen", "--acp"]
env_pass = ["QWEN_*", "OPENAI_*", "DASHSCOPE_*"]
model_env = "OPENAI_MODEL"
private = ["QWEN_HOME"]
copy = { "~/.qwen/oauth_creds.json" = "QWEN_HOME/oauth_creds.json", "~/.qwen/settings.json" = "QWEN_HOME/settings.json" }
install = "Install it with `npm install -g @qwen-code/qwen-code`."

[demo]
driver = "demo"
command = []
"#;

/// The keys of an entry. Any other key is a warning.
const KEYS: &[&str] = &[
    "driver",
    "command",
    "env",
    "env_pass",
    "permission_env",
    "model_env",
    "modes",
    "notices",
    "sandbox",
    "writable",
    "readable",
    "sockets",
    "ports",
    "git_hosts",
    "private",
    "copy",
    "install",
];

/// Overrides the built-in entries with those of `config.toml`, and these with `HOB_AGENTS_NAME_KEY`
/// variables.
pub fn resolve(
    written: Table,
    environment: &BTreeMap<String, String>,
    rows: &mut Vec<Row>,
    warnings: &mut Vec<String>,
) -> Result<BTreeMap<AgentName, AgentSpec>, SettingsError> {
    let mut entries: BTreeMap<String, BTreeMap<String, (Value, Source)>> = BTreeMap::new();
    let built_in: Table = BUILT_IN.parse().expect("the built-in table is valid");
    for (table, source) in [(built_in, Source::Default), (written, Source::File)] {
        for (name, entry) in table {
            let Value::Table(entry) = entry else {
                return Err(bad(&name, "", &source, "must be a table"));
            };
            let known = entries.entry(name).or_default();
            for (key, value) in entry {
                known.insert(key, (value, source.clone()));
            }
        }
    }
    for (name, entry) in &mut entries {
        for key in KEYS {
            let variable =
                format!("HOB_AGENTS_{name}_{key}").to_uppercase().replace(['-', '.'], "_");
            let Some(text) = environment.get(&variable).filter(|text| !text.is_empty()) else {
                continue;
            };
            let source = Source::Environment(variable);
            let value = match *key {
                "driver" | "sandbox" | "install" | "model_env" => Value::String(text.clone()),
                _ => format!("v = {text}")
                    .parse::<Table>()
                    .ok()
                    .and_then(|mut table| table.remove("v"))
                    .ok_or_else(|| bad(name, key, &source, "must be a TOML array or table"))?,
            };
            entry.insert((*key).to_owned(), (value, source));
        }
    }
    let mut agents = BTreeMap::new();
    for (name, entry) in entries {
        for (key, (value, source)) in &entry {
            if KEYS.contains(&key.as_str()) {
                // Values of `env` may be secrets.
                let value = if key == "env" || key == "permission_env" {
                    "(set)".to_owned()
                } else {
                    value.to_string()
                };
                rows.push(Row {
                    key: format!("agents.{name}.{key}"),
                    value,
                    source: source.clone(),
                });
            } else {
                warnings
                    .push(format!("config.toml: unknown setting agents.{name}.{key} is ignored"));
            }
        }
        let agent_name = AgentName::new(name.as_str())
            .ok_or_else(|| bad(&name, "", &Source::File, "is not a valid agent name"))?;
        let (mut spec, asks) = spec(&name, &entry)?;
        let has_built_in_env =
            entry.get("env").is_some_and(|(_, source)| *source == Source::Default);
        if spec.sandbox == Sandbox::Off && has_built_in_env {
            // It switches off what the agent itself guards, which must stay if Hob has no sandbox.
            spec.env = asks;
        }
        agents.insert(agent_name, spec);
    }
    Ok(agents)
}

/// Returns an agent, and the part of its variables by which it asks for permission.
fn spec(
    name: &str,
    entry: &BTreeMap<String, (Value, Source)>,
) -> Result<(AgentSpec, BTreeMap<String, String>), SettingsError> {
    let text = |key: &str| match entry.get(key) {
        None => Ok(None),
        Some((Value::String(text), source)) => Ok(Some((text.as_str(), source))),
        Some((_, source)) => Err(bad(name, key, source, "must be a string in quotes")),
    };
    let list = |key: &str| match entry.get(key) {
        None => Ok(Vec::new()),
        Some((Value::Array(values), source)) => values
            .iter()
            .map(|value| value.as_str().map(str::to_owned))
            .collect::<Option<Vec<String>>>()
            .ok_or_else(|| bad(name, key, source, "must be a list of strings")),
        Some((_, source)) => Err(bad(name, key, source, "must be a list of strings")),
    };
    let driver = match text("driver")? {
        None => return Err(bad(name, "driver", &Source::File, "is required for a new agent")),
        Some((text, source)) => Driver::parse(text).ok_or_else(|| {
            let known: Vec<&str> = Driver::ALL.iter().map(|driver| driver.as_str()).collect();
            bad(name, "driver", source, &format!("must be one of {}", known.join(", ")))
        })?,
    };
    let command = list("command")?;
    if driver != Driver::Demo && command.first().is_none_or(String::is_empty) {
        return Err(bad(name, "command", &Source::File, "must name a program"));
    }
    let sandbox = match text("sandbox")? {
        None => Sandbox::Workspace,
        Some((text, source)) => Sandbox::parse(text).ok_or_else(|| {
            bad(name, "sandbox", source, "must be \"workspace\", \"strict\" or \"off\"")
        })?,
    };
    let table = |key: &str| match entry.get(key) {
        None => Ok(BTreeMap::new()),
        Some((Value::Table(table), source)) => table
            .iter()
            .map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect::<Option<BTreeMap<String, String>>>()
            .ok_or_else(|| bad(name, key, source, "must be a table of strings")),
        Some((_, source)) => Err(bad(name, key, source, "must be a table of strings")),
    };
    let (private, copy, modes) = (list("private")?, table("copy")?, table("modes")?);
    // The user's own variables win.
    let mut env = table("permission_env")?;
    let asks = env.clone();
    env.extend(table("env")?);
    let mut notices = table("notices")?;
    for (key, by_policy) in [("modes", &modes), ("notices", &notices)] {
        if by_policy.keys().any(|policy| Permissions::parse(policy).is_none()) {
            let problem = "may have the keys \"deny\", \"ask\" and \"allow\"";
            return Err(bad(name, key, &Source::File, problem));
        }
    }
    if sandbox == Sandbox::Off {
        // They tell what Hob's sandbox does to the agent.
        notices.clear();
    }
    let is_name = |name: &String| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if !private.iter().all(is_name) {
        return Err(bad(name, "private", &Source::File, "must list names of variables"));
    }
    let model_env = text("model_env")?.map(|(name, _)| name.to_owned());
    if !model_env.iter().all(is_name) {
        return Err(bad(name, "model_env", &Source::File, "must be the name of a variable"));
    }
    // A path below a private folder, without a way out of it.
    let is_below_private = |to: &String| {
        let parts: Vec<&str> = to.split('/').collect();
        let is_plain = |part: &&str| !["", ".", ".."].contains(part);
        parts.len() > 1 && private.iter().any(|p| p == parts[0]) && parts.iter().all(is_plain)
    };
    if !copy.values().all(is_below_private) {
        let problem = "must map each file to VARIABLE/path, where `private` lists the variable";
        return Err(bad(name, "copy", &Source::File, problem));
    }
    let install = match text("install")? {
        Some((text, _)) => text.to_owned(),
        None => format!("Install it, or set agents.{name}.command in config.toml."),
    };
    let git_hosts = list("git_hosts")?;
    let is_host = |host: &String| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
        !host.is_empty() && host.bytes().all(is_part)
    };
    if !git_hosts.iter().all(is_host) {
        let problem = "must list names of hosts, for example \"github.com\"";
        return Err(bad(name, "git_hosts", &Source::File, problem));
    }
    let spec = AgentSpec {
        driver,
        command,
        env,
        env_pass: list("env_pass")?,
        sandbox,
        writable: list("writable")?,
        readable: list("readable")?,
        sockets: list("sockets")?,
        ports: ports(name, entry)?,
        git_hosts,
        model_env,
        modes,
        notices,
        private,
        copy,
        install,
    };
    Ok((spec, asks))
}

fn ports(
    name: &str,
    entry: &BTreeMap<String, (Value, Source)>,
) -> Result<Option<Vec<u16>>, SettingsError> {
    let Some((value, source)) = entry.get("ports") else { return Ok(None) };
    let port = |value: &Value| u16::try_from(value.as_integer()?).ok();
    let ports = value.as_array().and_then(|values| values.iter().map(port).collect());
    ports.map(Some).ok_or_else(|| bad(name, "ports", source, "must be a list of port numbers"))
}

fn bad(name: &str, key: &str, origin: &Source, problem: &str) -> SettingsError {
    let key =
        if key.is_empty() { format!("agents.{name}") } else { format!("agents.{name}.{key}") };
    SettingsError::BadValue { key, origin: origin.clone(), problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agents(
        file: &str,
        env: &[(&str, &str)],
    ) -> Result<BTreeMap<AgentName, AgentSpec>, SettingsError> {
        let env = env.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        resolve(file.parse().unwrap(), &env, &mut Vec::new(), &mut Vec::new())
    }

    fn agent(file: &str, env: &[(&str, &str)], name: &str) -> AgentSpec {
        agents(file, env).unwrap().remove(&AgentName::new(name).unwrap()).unwrap()
    }

    #[test]
    fn the_usual_agents_are_built_in() {
        let names: Vec<String> =
            agents("", &[]).unwrap().keys().map(|name| name.to_string()).collect();
        let known = "claude claude-agent-acp codex copilot cursor demo gemini goose opencode qwen";
        assert_eq!(names.join(" "), known);
    }

    #[test]
    fn agents_keep_their_own_guards_where_hob_has_no_sandbox() {
        let mode = |file: &str| agent(file, &[], "codex").env.get("INITIAL_AGENT_MODE").cloned();
        assert_eq!(mode("").as_deref(), Some("agent-full-access"));
        assert_eq!(mode("[codex]\nsandbox = \"off\"\n"), None);
        // Gemini CLI has no tools of MCP servers in a folder that it does not trust.
        let env = |file: &str| agent(file, &[], "gemini").env.into_keys().collect::<Vec<_>>();
        assert_eq!(env(""), ["GEMINI_CLI_TRUST_WORKSPACE"]);
        assert!(env("[gemini]\nsandbox = \"off\"\n").is_empty());
    }

    /// A user who gives OpenCode other variables, or no sandbox, does not switch its questions off.
    #[test]
    fn agents_ask_whatever_else_is_set() {
        let asks = |file: &str| {
            let opencode = agent(file, &[], "opencode");
            opencode.env.get("OPENCODE_PERMISSION").is_some_and(|text| text.contains("ask"))
        };
        assert!(asks("") && asks("[opencode]\nenv = { A = \"b\" }\nsandbox = \"off\"\n"));
        assert!(asks("[opencode]\nsandbox = \"off\"\n"));
        assert!(!asks("[opencode]\nenv = { OPENCODE_PERMISSION = \"{}\" }\n"));
        // By default goose asks nothing.
        for file in ["", "[goose]\nenv = { A = \"b\" }\n", "[goose]\nsandbox = \"off\"\n"] {
            assert_eq!(agent(file, &[], "goose").env["GOOSE_MODE"], "approve", "{file}");
        }
        let codex = agent("", &[], "codex");
        assert_eq!(codex.modes["deny"], "read-only");
        assert!(codex.notices["deny"].contains("runs no commands"));
        assert!(agent("[codex]\nsandbox = \"off\"\n", &[], "codex").notices.is_empty());
        let wrong = agents("[codex]\nmodes = { never = \"x\" }\n", &[]).unwrap_err().to_string();
        assert!(wrong.contains("agents.codex.modes"), "{wrong}");
    }

    #[test]
    fn variables_take_the_model() {
        let variable = |file: &str, name: &str| agent(file, &[], name).model_env;
        for (name, expect) in [
            ("gemini", "GEMINI_MODEL"),
            ("goose", "GOOSE_MODEL"),
            ("qwen", "OPENAI_MODEL"),
            ("copilot", "COPILOT_MODEL"),
        ] {
            assert_eq!(variable("", name).as_deref(), Some(expect));
        }
        assert_eq!(variable("", "codex"), None);
        assert_eq!(variable("[codex]\nmodel_env = \"M\"\n", "codex").as_deref(), Some("M"));
        let set = agent("", &[("HOB_AGENTS_CODEX_MODEL_ENV", "MODEL")], "codex");
        assert_eq!(set.model_env.as_deref(), Some("MODEL"));
    }

    #[test]
    fn an_entry_overrides_key_by_key() {
        let claude = agent("[claude]\ncommand = [\"/opt/claude\", \"-x\"]\n", &[], "claude");
        assert_eq!(claude.command, ["/opt/claude", "-x"]);
        assert_eq!(claude.driver, Driver::ClaudeTui);
        assert_eq!(
            claude.env_pass,
            ["ANTHROPIC_*", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN"]
        );
        let file = "[claude]\nsandbox = \"off\"\nenv = { A = \"b\" }\n";
        let claude = agent(file, &[("HOB_AGENTS_CLAUDE_DRIVER", "claude-stream")], "claude");
        assert_eq!((claude.driver, claude.sandbox), (Driver::ClaudeStream, Sandbox::Off));
        assert_eq!(claude.env["A"], "b");
        let claude = agent("", &[("HOB_AGENTS_CLAUDE_COMMAND", "[\"x\", \"y\"]")], "claude");
        assert_eq!((claude.command, claude.ports), (vec!["x".to_owned(), "y".to_owned()], None));
        let claude = agent("", &[("HOB_AGENTS_CLAUDE_PORTS", "[443]")], "claude");
        assert_eq!(claude.ports, Some(vec![443]));
    }

    #[test]
    fn a_new_agent_needs_a_driver_and_a_command() {
        let mine = agent("[my-agent]\ndriver = \"acp\"\ncommand = [\"mine\"]\n", &[], "my-agent");
        assert_eq!(mine.sandbox, Sandbox::Workspace);
        for (file, word) in [
            ("[x]\ncommand = [\"c\"]", "agents.x.driver"),
            ("[x]\ndriver = \"acp\"", "agents.x.command"),
            ("[x]\ndriver = \"telepathy\"\ncommand = [\"c\"]", "claude-tui"),
            ("[claude]\ncommand = \"claude\"", "agents.claude.command"),
            ("[claude]\nenv = { A = 1 }", "agents.claude.env"),
            ("[claude]\nports = [\"https\"]", "agents.claude.ports"),
            ("[claude]\nports = [70000]", "agents.claude.ports"),
            ("[claude]\ngit_hosts = [\"https://github.com\"]", "agents.claude.git_hosts"),
            ("[claude]\nmodel_env = \"A=b\"", "agents.claude.model_env"),
            ("claude = 1", "agents.claude"),
            ("[\"a b\"]\ndriver = \"acp\"\ncommand = [\"c\"]", "not a valid agent name"),
        ] {
            let error = agents(file, &[]).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
