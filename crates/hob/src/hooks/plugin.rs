//! Hob's plugin in a client. It brings the hooks and the MCP server that the client's settings can hold, too.
//!
//! If both are there, the settings win: the plugin's hooks stay quiet for each event that the settings handle. That
//! check is made whenever a hook runs, so it does not matter which of the two came first.
//!
//! **Claude Code** lists plugins under `enabledPlugins` in `settings.json`, and the installed ones in
//! `plugins/installed_plugins.json` (2.1.325). **Codex** lists them as `[plugins."NAME@MARKETPLACE"]` in `config.toml`
//! (0.166.0). **Gemini CLI** copies an extension to `extensions/NAME`, and lists in `extension-enablement.json` the folders
//! in which it is off (0.61.0). The plugin of **OpenCode** is the file that `hob hooks install` writes.

use std::fs;
use std::path::Path;

use hob_transcript::AgentClient;
use serde_json::Value;

use super::clients::{self, ClientFolders};
use super::command::PROGRAM_NAME;
use super::file::SettingsFile;
use super::json_edit::{self, HookEntry};

/// The name of Hob's plugin. Its id is `hob@MARKETPLACE`.
const NAME: &str = "hob";

/// Returns whether a plugin finds a `hob` to run. Without one, its hooks do nothing.
pub fn finds_hob() -> bool {
    is_on_path(PROGRAM_NAME)
}

/// Returns the id of Hob's plugin if the client has it and it is enabled for all projects.
pub fn enabled(client: AgentClient, folders: &ClientFolders) -> Option<String> {
    if client == AgentClient::Codex {
        let config = clients::codex_config(folders);
        let plugins = config.get("plugins")?.as_table()?;
        let is_enabled = |plugin: &toml::Value| {
            plugin.get("enabled").and_then(toml::Value::as_bool) != Some(false)
        };
        let found = plugins.iter().find(|(id, plugin)| is_ours(id) && is_enabled(plugin));
        return found.map(|(id, _)| id.clone());
    }
    if client == AgentClient::Opencode {
        return None;
    }
    let read = |path: &Path| -> Option<Value> {
        serde_json::from_str(SettingsFile::read(path).ok()?.text().ok()??).ok()
    };
    if client == AgentClient::Gemini {
        let extensions = folders.gemini.join("extensions");
        let manifest = read(&extensions.join(NAME).join("gemini-extension.json"))?;
        let switches = read(&extensions.join("extension-enablement.json")).unwrap_or_default();
        let mut overrides = switches[NAME]["overrides"].as_array().into_iter().flatten();
        let is_off = overrides.any(|rule| rule.as_str().is_some_and(|rule| rule.starts_with('!')));
        return (manifest["name"] == NAME && !is_off).then(|| NAME.to_owned());
    }
    let settings = read(&folders.settings_file(client))?;
    let installed = read(&folders.folder(client).join("plugins/installed_plugins.json"))?;
    let is_installed = |id: &str| installed["plugins"].get(id).is_some();
    let mut plugins = settings["enabledPlugins"].as_object()?.iter();
    let found = plugins.find(|(id, on)| is_ours(id) && **on == true && is_installed(id));
    found.map(|(id, _)| id.clone())
}

/// Returns whether the client's settings run a `hob` for this event, so that the plugin need not.
pub fn settings_handle(client: AgentClient, folders: &ClientFolders, event: &str) -> bool {
    let Ok(loaded) = SettingsFile::read(&folders.settings_file(client)) else { return false };
    let Ok(entries) = loaded.text().map(json_edit::survey) else { return false };
    let handles = |entry: &HookEntry| {
        entry.event == event
            && entry.matches_everything()
            && exists(&entry.command.program)
            && clients::runs(client, folders, entry)
    };
    entries.is_ok_and(|entries| entries.iter().any(handles))
}

/// Returns whether a program is there, given by its path or by its name.
pub fn exists(program: &str) -> bool {
    if program.contains('/') { Path::new(program).is_file() } else { is_on_path(program) }
}

pub fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .any(|folder| fs::metadata(folder.join(program)).is_ok_and(|metadata| metadata.is_file()))
}

fn is_ours(id: &str) -> bool {
    id.split_once('@').is_some_and(|(name, _)| name == NAME)
}
