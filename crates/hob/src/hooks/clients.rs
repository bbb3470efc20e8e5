//! The settings files of the clients, and what keeps a client from running hooks.
//!
//! **Claude Code** reads `settings.json` in `$CLAUDE_CONFIG_DIR` (else `~/.claude`). It is strict
//! JSON: a comment or a trailing comma makes Claude Code drop the whole file (issues 83190 and 9906
//! of anthropics/claude-code). Hob therefore treats such a file as broken, too.
//!
//! **Codex** (openai/codex at 343074d, `codex-rs/hooks/src/engine/discovery.rs` and
//! `codex-rs/config/src/hook_config.rs`; <https://developers.openai.com/codex/hooks>) reads
//! `hooks.json` in `$CODEX_HOME` (else `~/.codex`) and `[hooks]` in the `config.toml` next to it;
//! if both hold hooks it runs both and warns. Hob writes `hooks.json`, which has the structure of
//! Claude Code's file, because it holds no other settings. Facts that matter here:
//!
//! * Only `description` and `hooks` are allowed at the top level; any other key makes Codex drop
//!   the file.
//! * Hooks are on unless `[features] hooks = false`. Older versions needed `codex_hooks = true`,
//!   which is still read as another name of that key.
//! * Codex skips a hook until the user has reviewed and trusted it (`/hooks` in Codex). It stores
//!   the trust in `config.toml` as `[hooks.state."<file>:<event>:<group>:<handler>"] trusted_hash`.
//!   Hob does not write it, because it is the user's consent. The key counts positions, so Hob only
//!   appends entries; the trust in other hooks stays valid.
//! * `SessionEnd` may take at most three seconds; Codex shortens a larger timeout and warns.
//!   Versions without that event ignore it.
//! * Standard input is one JSON object with `session_id`, `transcript_path` (may be null), `cwd`
//!   and `hook_event_name`; `SessionStart` adds `source`, `model` and `permission_mode`;
//!   `UserPromptSubmit` adds `prompt` and `turn_id`; `Stop` adds `turn_id`, `stop_hook_active` and
//!   `last_assistant_message`; `SessionEnd` adds `reason`.
//! * Plain standard output of `SessionStart` and `UserPromptSubmit` goes to the model; that of
//!   `Stop` must be empty or JSON, else Codex reports that the hook failed.
//!
//! **Gemini CLI** (google-gemini/gemini-cli at 5411f11, `packages/core/src/hooks` and
//! `docs/hooks/reference.md`) reads `hooks` in `settings.json` in `$GEMINI_CLI_HOME/.gemini` (else
//! `~/.gemini`), with the structure of Claude Code's file. Facts that matter here:
//!
//! * The events have other names: `BeforeAgent` for a prompt and `AfterAgent` for an answer. Timeouts are
//!   in milliseconds.
//! * Hooks are on unless `hooksConfig.enabled` is false; `hooksConfig.disabled` lists commands that do
//!   not run. In a folder that the user has not trusted, Gemini CLI runs no hooks.
//! * Standard output must be JSON. Text for the model is in `hookSpecificOutput.additionalContext`.
//! * Standard input is one JSON object with `session_id`, `transcript_path`, `cwd`, `hook_event_name`
//!   and `timestamp`. The environment has `GEMINI_SESSION_ID`. The transcript has the answer before
//!   `AfterAgent` runs.
//! * The file may have comments. Hob edits strict JSON only and refuses such a file.
//!
//! **OpenCode** has no hooks; see the module `plugin_file`.

use std::path::{Path, PathBuf};

use hob_files::owned;
use hob_transcript::AgentClient;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json_edit::HookEntry;
use super::json_scan;

/// Where a client looks for hooks.
struct ClientDescription {
    /// The environment variable that names the configuration folder, or a folder above it.
    config_variable: &'static str,
    /// The configuration folder below the one that the variable names; empty for that one itself.
    below_variable: &'static str,
    /// The configuration folder below the user's home, unless that variable names another.
    config_folder: &'static str,
    /// The file in the configuration folder in which the client looks for hooks.
    hooks_file: &'static str,
}

/// Returns where a client looks for hooks.
fn describe(client: AgentClient) -> &'static ClientDescription {
    match client {
        AgentClient::Claude => &ClientDescription {
            config_variable: "CLAUDE_CONFIG_DIR",
            below_variable: "",
            config_folder: ".claude",
            hooks_file: "settings.json",
        },
        AgentClient::Codex => &ClientDescription {
            config_variable: "CODEX_HOME",
            below_variable: "",
            config_folder: ".codex",
            hooks_file: "hooks.json",
        },
        AgentClient::Gemini => &ClientDescription {
            config_variable: "GEMINI_CLI_HOME",
            below_variable: ".gemini",
            config_folder: ".gemini",
            hooks_file: "settings.json",
        },
        // OpenCode has no hooks, but runs plugins.
        AgentClient::Opencode => &ClientDescription {
            config_variable: "XDG_CONFIG_HOME",
            below_variable: "opencode",
            config_folder: ".config/opencode",
            hooks_file: "plugins/hob.js",
        },
    }
}

/// The configuration folders of the clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientFolders {
    /// `$CLAUDE_CONFIG_DIR`, else `~/.claude`.
    pub claude: PathBuf,
    /// `.claude.json` in `$CLAUDE_CONFIG_DIR`, else in the user's home.
    pub claude_state: PathBuf,
    /// `$CODEX_HOME`, else `~/.codex`.
    pub codex: PathBuf,
    /// `$GEMINI_CLI_HOME/.gemini`, else `~/.gemini`.
    #[serde(default)]
    pub gemini: PathBuf,
    /// `$XDG_CONFIG_HOME/opencode`, else `~/.config/opencode`.
    #[serde(default)]
    pub opencode: PathBuf,
}

impl ClientFolders {
    /// Returns the configuration folders of this user's clients.
    pub fn from_environment() -> anyhow::Result<ClientFolders> {
        let folder = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let home = folder("HOME")
            .ok_or_else(|| anyhow::anyhow!("cannot determine your home folder: set HOME"))?;
        let config_folder = |client: AgentClient| {
            let described = describe(client);
            match (folder(described.config_variable), described.below_variable) {
                (Some(named), "") => named,
                (Some(named), below) => named.join(below),
                (None, _) => home.join(described.config_folder),
            }
        };
        let claude_variable = describe(AgentClient::Claude).config_variable;
        Ok(ClientFolders {
            claude_state: folder(claude_variable).unwrap_or(home.clone()).join(".claude.json"),
            claude: config_folder(AgentClient::Claude),
            codex: config_folder(AgentClient::Codex),
            gemini: config_folder(AgentClient::Gemini),
            opencode: config_folder(AgentClient::Opencode),
        })
    }

    /// Returns the folder of a client. If it exists, the client is probably in use.
    pub fn folder(&self, client: AgentClient) -> &Path {
        match client {
            AgentClient::Claude => &self.claude,
            AgentClient::Codex => &self.codex,
            AgentClient::Gemini => &self.gemini,
            AgentClient::Opencode => &self.opencode,
        }
    }

    /// Returns the file from which the client reads hooks.
    pub fn settings_file(&self, client: AgentClient) -> PathBuf {
        self.folder(client).join(describe(client).hooks_file)
    }
}

/// Returns sentences about settings that keep installed hooks from running and that only the user
/// may change.
pub fn notes(
    client: AgentClient,
    folders: &ClientFolders,
    text: Option<&str>,
    entries: &[HookEntry],
) -> Vec<String> {
    if entries.is_empty() {
        return Vec::new();
    }
    match client {
        AgentClient::Claude => claude_notes(text.unwrap_or_default()),
        AgentClient::Codex => codex_notes(folders, text.unwrap_or_default(), entries),
        AgentClient::Gemini => gemini_notes(text.unwrap_or_default(), entries),
        AgentClient::Opencode => Vec::new(),
    }
}

fn gemini_notes(text: &str, entries: &[HookEntry]) -> Vec<String> {
    let settings: Value =
        serde_json::from_str(&text[json_scan::body_start(text)..]).unwrap_or_default();
    let config = &settings["hooksConfig"];
    if config["enabled"] == false {
        let note = "Gemini CLI runs no hooks, because `hooksConfig.enabled` is false; remove that \
                    setting.";
        return vec![note.to_owned()];
    }
    let disabled = config["disabled"].as_array().into_iter().flatten();
    let disabled: Vec<&str> = disabled.filter_map(Value::as_str).collect();
    if entries.iter().any(|entry| disabled.contains(&entry.command_line.as_str())) {
        let note =
            "A hook of Hob is disabled in Gemini CLI; enable it with `/hooks` in Gemini CLI.";
        return vec![note.to_owned()];
    }
    Vec::new()
}

fn claude_notes(text: &str) -> Vec<String> {
    let Some(root) = json_scan::root(text) else { return Vec::new() };
    // Of duplicate keys, the last one counts.
    let disabled = root.members(text, "disableAllHooks").last().copied();
    match disabled.map(|at| &text[root.items[at].value.clone()]) {
        Some("true") => {
            vec![
                "Claude Code runs no hooks, because `disableAllHooks` is set; remove that setting."
                    .to_owned(),
            ]
        }
        _ => Vec::new(),
    }
}

fn codex_notes(folders: &ClientFolders, text: &str, entries: &[HookEntry]) -> Vec<String> {
    let config = codex_config(folders);
    let mut notes = codex_file_notes(text);
    notes.extend(codex_config_notes(&config));
    notes.extend(codex_trust_notes(&config, folders, entries));
    notes
}

/// Returns Codex's `config.toml`. Codex itself reports one that cannot be read; here it is empty.
pub fn codex_config(folders: &ClientFolders) -> toml::Table {
    let config = owned::read_to_string(folders.codex.join("config.toml")).unwrap_or_default();
    config.parse().unwrap_or_default()
}

/// Returns whether the client runs this entry of its settings. Codex runs only what the user has trusted.
pub fn runs(client: AgentClient, folders: &ClientFolders, entry: &HookEntry) -> bool {
    client != AgentClient::Codex
        || codex_trust(&codex_config(folders), folders, entry) == Trust::Reviewed
}

/// Returns notes about the parts of `hooks.json` that Codex does not accept.
fn codex_file_notes(text: &str) -> Vec<String> {
    let mut notes = Vec::new();
    if json_scan::body_start(text) > 0 {
        let note = "Codex does not read a hooks.json with a byte order mark; remove it.";
        notes.push(note.to_owned());
    }
    let root = json_scan::root(text);
    for key in root.iter().flat_map(|root| &root.items).filter_map(|item| item.key.clone()) {
        let key = json_scan::string(text, key).unwrap_or_default();
        if !matches!(key.as_str(), "hooks" | "description") {
            notes.push(format!(
                "Codex ignores a hooks.json with the unknown key `{key}`; remove the key."
            ));
        }
    }
    notes
}

/// Returns notes about settings in Codex's `config.toml` that turn hooks off or repeat them.
fn codex_config_notes(config: &toml::Table) -> Vec<String> {
    let is_off = |key| {
        let value = config.get("features").and_then(|features| features.get(key));
        value.and_then(toml::Value::as_bool) == Some(false)
    };
    let mut notes = Vec::new();
    if is_off("hooks") || is_off("codex_hooks") {
        let note = "Codex's config.toml turns hooks off under `[features]`; remove that line.";
        notes.push(note.to_owned());
    }
    let hooks = config.get("hooks").and_then(toml::Value::as_table);
    if hooks.is_some_and(|hooks| hooks.keys().any(|key| key != "state")) {
        let note = "Codex's config.toml also holds hooks; Codex runs both and warns about it.";
        notes.push(note.to_owned());
    }
    notes
}

/// Returns notes about hooks that the user has disabled or not reviewed yet.
fn codex_trust_notes(
    config: &toml::Table,
    folders: &ClientFolders,
    entries: &[HookEntry],
) -> Vec<String> {
    let trusts: Vec<Trust> =
        entries.iter().map(|entry| codex_trust(config, folders, entry)).collect();
    let mut notes = Vec::new();
    if trusts.contains(&Trust::Disabled) {
        let note = "A hook of Hob is disabled in Codex; enable it with `/hooks` in Codex.";
        notes.push(note.to_owned());
    }
    if trusts.contains(&Trust::Unknown) {
        let note = "Codex runs new hooks only after you have reviewed them: start Codex, enter \
                    `/hooks`, and trust the hooks of Hob.";
        notes.push(note.to_owned());
    }
    notes
}

fn codex_trust(config: &toml::Table, folders: &ClientFolders, entry: &HookEntry) -> Trust {
    let hooks = config.get("hooks").and_then(toml::Value::as_table);
    let states = hooks.and_then(|hooks| hooks.get("state")).and_then(toml::Value::as_table);
    let state = codex_file_names(folders).iter().find_map(|file| {
        let (event, group) = (snake_case(&entry.event), entry.group_index);
        states?.get(&format!("{file}:{event}:{group}:{}", entry.handler_index))
    });
    match state {
        Some(state) if state.get("enabled").and_then(toml::Value::as_bool) == Some(false) => {
            Trust::Disabled
        }
        Some(state) if state.get("trusted_hash").is_some() => Trust::Reviewed,
        _ => Trust::Unknown,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// There is a hash. Only Codex knows whether it is that of the current hook.
    Reviewed,
    Disabled,
    Unknown,
}

/// Returns the names under which Codex may store trust: it resolves links in `$CODEX_HOME`, but not
/// in its default folder.
fn codex_file_names(folders: &ClientFolders) -> Vec<String> {
    let resolved = folders.codex.canonicalize().ok();
    [Some(folders.codex.clone()), resolved]
        .into_iter()
        .flatten()
        .map(|folder| folder.join("hooks.json").display().to_string())
        .collect()
}

fn snake_case(event: &str) -> String {
    let mut result = String::new();
    for character in event.chars() {
        if character.is_ascii_uppercase() && !result.is_empty() {
            result.push('_');
        }
        result.push(character.to_ascii_lowercase());
    }
    result
}
