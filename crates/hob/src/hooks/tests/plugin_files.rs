//! The plugins of the repository have the hooks that Hob installs, and know when the settings have them, too.

use std::fs;
use std::path::{Path, PathBuf};

use hob_transcript::AgentClient;
use serde_json::{Value, json};

use crate::hooks::hook_spec::hooks_for;
use crate::hooks::{ClientFolders, plugin};

/// The folders of the clients below a new temporary folder, which is removed at the end.
struct Folders {
    root: PathBuf,
    folders: ClientFolders,
}

impl Folders {
    fn new(name: &str) -> Folders {
        let root = std::env::temp_dir().join(format!("hob-plugin-{name}-{}", std::process::id()));
        let folders = ClientFolders {
            claude: root.join(".claude"),
            claude_state: root.join(".claude.json"),
            codex: root.join(".codex"),
            gemini: root.join(".gemini"),
            opencode: root.join(".config/opencode"),
        };
        fs::create_dir_all(folders.claude.join("plugins")).unwrap();
        fs::create_dir_all(&folders.codex).unwrap();
        fs::write(root.join("hob"), "").unwrap();
        Folders { root, folders }
    }

    fn write(&self, path: &str, value: &Value) {
        fs::write(self.root.join(path), value.to_string()).unwrap();
    }

    /// Writes settings with one hook of Hob.
    fn write_hook(&self, path: &str, event: &str, group: &Value) {
        let mut group = group.clone();
        let program = self.root.join("hob").display().to_string();
        let command =
            group["command"].as_str().map_or(format!("{program} capture-turn"), str::to_owned);
        group["hooks"] = json!([{"type": "command", "command": command}]);
        self.write(path, &json!({"hooks": {event: [group]}}));
    }

    fn handles(&self, client: AgentClient, event: &str) -> bool {
        plugin::settings_handle(client, &self.folders, event)
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[test]
fn plugins_have_the_hooks_that_hob_installs() {
    let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
    let clients = [
        ("claude-code", AgentClient::Claude),
        ("codex", AgentClient::Codex),
        ("gemini", AgentClient::Gemini),
    ];
    for (folder, client) in clients {
        let file = fs::read_to_string(plugins.join(folder).join("hooks/hooks.json")).unwrap();
        let file: Value = serde_json::from_str(&file).unwrap();
        let hooks = file["hooks"].as_object().unwrap();
        let specs = hooks_for(client);
        assert_eq!(hooks.len(), specs.len(), "{folder}");
        for spec in specs {
            let command = format!(
                "command -v hob >/dev/null 2>&1 || exit 0; exec hob {} --from-plugin {}",
                spec.subcommand.name(),
                client.as_str()
            );
            let hook = json!({"type": "command", "command": command, "timeout": spec.timeout});
            assert_eq!(hooks[spec.event], json!([{"hooks": [hook]}]), "{folder}");
        }
    }
}

#[test]
fn plugin_of_claude_is_found_if_it_is_installed_and_enabled() {
    let found = Folders::new("claude-enabled");
    let enabled = || plugin::enabled(AgentClient::Claude, &found.folders);
    assert_eq!(enabled(), None);
    found
        .write(".claude/settings.json", &json!({"enabledPlugins": {"a@hob": true, "hob@x": true}}));
    assert_eq!(enabled(), None, "it is not installed");
    found.write(".claude/plugins/installed_plugins.json", &json!({"plugins": {"hob@x": [{}]}}));
    assert_eq!(enabled().as_deref(), Some("hob@x"));
    found.write(".claude/settings.json", &json!({"enabledPlugins": {"hob@x": false}}));
    assert_eq!(enabled(), None, "it is disabled");
}

#[test]
fn plugin_of_codex_is_found_if_it_is_enabled() {
    let found = Folders::new("codex-enabled");
    let enabled = || plugin::enabled(AgentClient::Codex, &found.folders);
    assert_eq!(enabled(), None);
    let config = found.folders.codex.join("config.toml");
    fs::write(&config, "[plugins.\"hob@hob\"]\nenabled = true\n").unwrap();
    assert_eq!(enabled().as_deref(), Some("hob@hob"));
    fs::write(&config, "[plugins.\"hob@hob\"]\nenabled = false\n").unwrap();
    assert_eq!(enabled(), None);
}

#[test]
fn extension_of_gemini_is_found_if_no_folder_turns_it_off() {
    let found = Folders::new("gemini-enabled");
    let enabled = || plugin::enabled(AgentClient::Gemini, &found.folders);
    assert_eq!(enabled(), None);
    fs::create_dir_all(found.folders.gemini.join("extensions/hob")).unwrap();
    let manifest = ".gemini/extensions/hob/gemini-extension.json";
    found.write(manifest, &json!({"name": "hob", "version": "0.1.0"}));
    assert_eq!(enabled().as_deref(), Some("hob"));
    let switches = ".gemini/extensions/extension-enablement.json";
    found.write(switches, &json!({"hob": {"overrides": ["/home/me/*"]}}));
    assert_eq!(enabled().as_deref(), Some("hob"));
    found.write(switches, &json!({"hob": {"overrides": ["!/home/me/*"]}}));
    assert_eq!(enabled(), None);
}

#[test]
fn settings_handle_an_event_if_their_hook_runs() {
    let (client, file) = (AgentClient::Claude, ".claude/settings.json");
    let found = Folders::new("handle");
    assert!(!found.handles(client, "Stop"), "there are no settings");
    found.write_hook(file, "Stop", &json!({}));
    assert!(found.handles(client, "Stop"));
    assert!(!found.handles(client, "SessionEnd"), "the settings have no hook for it");
    found.write_hook(file, "Stop", &json!({"matcher": "*"}));
    assert!(found.handles(client, "Stop"));
    found.write_hook(file, "Stop", &json!({"matcher": "resume"}));
    assert!(!found.handles(client, "Stop"), "the hook does not always run");
    found.write_hook(file, "Stop", &json!({"command": "/no/hob capture-turn"}));
    assert!(!found.handles(client, "Stop"), "its program is not there");
    fs::write(found.root.join(file), "{").unwrap();
    assert!(!found.handles(client, "Stop"), "the client reads no broken file");
}

/// Codex runs a hook only after the user has trusted it.
#[test]
fn settings_of_codex_handle_an_event_if_their_hook_is_trusted() {
    let client = AgentClient::Codex;
    let found = Folders::new("handle-codex");
    found.write_hook(".codex/hooks.json", "Stop", &json!({}));
    assert!(!found.handles(client, "Stop"));
    let hooks = found.folders.codex.join("hooks.json").display().to_string();
    let trust = format!("[hooks.state.\"{hooks}:stop:0:0\"]\ntrusted_hash = \"x\"\n");
    fs::write(found.folders.codex.join("config.toml"), trust).unwrap();
    assert!(found.handles(client, "Stop"));
}
