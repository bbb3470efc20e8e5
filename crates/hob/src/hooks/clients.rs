//! What each client reads, and where.
//!
//! **Claude Code** reads `settings.json` in `$CLAUDE_CONFIG_DIR` (else `~/.claude`). It is strict
//! JSON: a comment or a trailing comma makes Claude Code drop the whole file (issues 83190 and 9906
//! of anthropics/claude-code), so such a file counts as broken here, too.
//!
//! **Codex** (openai/codex at 343074d, `codex-rs/hooks/src/engine/discovery.rs` and
//! `codex-rs/config/src/hook_config.rs`; <https://developers.openai.com/codex/hooks>) reads
//! `hooks.json` in `$CODEX_HOME` (else `~/.codex`) and `[hooks]` in the `config.toml` beside it; if
//! both hold hooks it runs both and warns. We write `hooks.json`, which has the shape of Claude
//! Code's, because nobody else's settings are in it. Facts that matter here:
//!
//! * Only `description` and `hooks` may stand at the top; any other key makes Codex drop the file.
//! * Hooks are on unless `[features] hooks = false`. Older versions needed `codex_hooks = true`,
//!   which is still read as another name of that key.
//! * A hook is skipped until its user has looked at it and trusts it (`/hooks` in Codex). That is
//!   stored in `config.toml` as `[hooks.state."<file>:<event>:<group>:<handler>"] trusted_hash`. We
//!   do not write it: it is the user's consent. As the key counts positions, we only ever append,
//!   so that the trust in other hooks stays valid.
//! * `SessionEnd` may take three seconds at most; a larger timeout is cut with a warning. Versions
//!   without that event ignore it.
//! * Standard input is one JSON object with `session_id`, `transcript_path` (may be null), `cwd`
//!   and `hook_event_name`; `SessionStart` adds `source`, `model` and `permission_mode`;
//!   `UserPromptSubmit` adds `prompt` and `turn_id`; `Stop` adds `turn_id`, `stop_hook_active` and
//!   `last_assistant_message`; `SessionEnd` adds `reason`.
//! * Plain standard output of `SessionStart` and `UserPromptSubmit` goes to the model; that of
//!   `Stop` must be empty or JSON, else Codex reports that the hook failed.

use std::fs;
use std::path::{Path, PathBuf};

use hob_transcript::AgentClient;

use super::json_edit::Entry;
use super::json_scan;

/// The configuration folders of the clients.
#[derive(Debug, Clone)]
pub struct Places {
    /// `$CLAUDE_CONFIG_DIR`, else `~/.claude`.
    pub claude: PathBuf,
    /// `$CODEX_HOME`, else `~/.codex`.
    pub codex: PathBuf,
}

impl Places {
    /// Where this user's clients keep their configuration.
    pub fn from_environment() -> anyhow::Result<Places> {
        let folder = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let home =
            folder("HOME").ok_or_else(|| anyhow::anyhow!("there is no home folder: set HOME"))?;
        let config_folder = |client: AgentClient| {
            let described = client.description();
            folder(described.config_variable).unwrap_or_else(|| home.join(described.config_folder))
        };
        Ok(Places {
            claude: config_folder(AgentClient::Claude),
            codex: config_folder(AgentClient::Codex),
        })
    }

    /// The folder of a client; that it exists is the best sign that the client is in use.
    pub fn folder(&self, client: AgentClient) -> &Path {
        match client {
            AgentClient::Claude => &self.claude,
            AgentClient::Codex => &self.codex,
        }
    }

    /// The file in which the client looks for hooks.
    pub fn settings_file(&self, client: AgentClient) -> PathBuf {
        self.folder(client).join(client.description().hooks_file)
    }
}

/// What keeps installed hooks from running and is not ours to change.
pub fn notes(
    client: AgentClient,
    places: &Places,
    text: Option<&str>,
    entries: &[Entry],
) -> Vec<String> {
    if entries.is_empty() {
        return Vec::new();
    }
    match client {
        AgentClient::Claude => claude_notes(text.unwrap_or_default()),
        AgentClient::Codex => codex_notes(places, text.unwrap_or_default(), entries),
    }
}

fn claude_notes(text: &str) -> Vec<String> {
    let Some(root) = json_scan::root(text) else { return Vec::new() };
    // Of repeated keys the last one counts.
    let disabled = root.members(text, "disableAllHooks").last().copied();
    match disabled.map(|at| &text[root.items[at].value.clone()]) {
        Some("true") => {
            vec!["`disableAllHooks` is set, so Claude Code runs no hooks at all.".to_owned()]
        }
        _ => Vec::new(),
    }
}

fn codex_notes(places: &Places, text: &str, entries: &[Entry]) -> Vec<String> {
    let mut notes = Vec::new();
    if json_scan::body_start(text) > 0 {
        notes.push("Codex does not read a hooks.json with a byte order mark.".to_owned());
    }
    let root = json_scan::root(text);
    for key in root.iter().flat_map(|root| &root.items).filter_map(|item| item.key.clone()) {
        let key = json_scan::string(text, key).unwrap_or_default();
        if !matches!(key.as_str(), "hooks" | "description") {
            notes.push(format!("Codex drops a hooks.json with the unknown key `{key}`."));
        }
    }
    // A config.toml that cannot be read is Codex's to complain about.
    let config = fs::read_to_string(places.codex.join("config.toml")).unwrap_or_default();
    let config: toml::Table = config.parse().unwrap_or_default();
    let is_off = |key| {
        let value = config.get("features").and_then(|features| features.get(key));
        value.and_then(toml::Value::as_bool) == Some(false)
    };
    if is_off("hooks") || is_off("codex_hooks") {
        notes.push("Hooks are switched off in Codex's config.toml, under `[features]`.".to_owned());
    }
    let hooks = config.get("hooks").and_then(toml::Value::as_table);
    if hooks.is_some_and(|hooks| hooks.keys().any(|key| key != "state")) {
        notes.push(
            "Codex's config.toml holds hooks, too; Codex runs both and warns about it.".to_owned(),
        );
    }
    let states = hooks.and_then(|hooks| hooks.get("state")).and_then(toml::Value::as_table);
    let files = codex_file_names(places);
    let trust = |entry: &Entry| {
        let state = files.iter().find_map(|file| {
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
    };
    let trusts: Vec<Trust> = entries.iter().map(trust).collect();
    if trusts.contains(&Trust::Disabled) {
        notes.push("A hook of Hob is disabled in Codex; `/hooks` in Codex enables it.".to_owned());
    }
    if trusts.contains(&Trust::Unknown) {
        notes.push(
            "Codex runs new hooks only after you have reviewed them: start Codex, enter `/hooks`, \
             and trust those of Hob."
                .to_owned(),
        );
    }
    notes
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// There is a hash; whether it is that of the present hook, only Codex can tell.
    Reviewed,
    Disabled,
    Unknown,
}

/// Codex resolves links in `$CODEX_HOME`, but not in its default folder.
fn codex_file_names(places: &Places) -> Vec<String> {
    let resolved = places.codex.canonicalize().ok();
    [Some(places.codex.clone()), resolved]
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
