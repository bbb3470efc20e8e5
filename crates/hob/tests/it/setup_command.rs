//! `hob setup` and `hob service`: everything in place with one command, and taken back byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hob_testkit::{EarlierServer, TestHome, program};
use serde_json::Value;

use crate::memory_setup::{json_of, lines, said};

const CLAUDE_SETTINGS: &str = "{\n    \"model\": \"opus\",\n    \"hooks\": {}\n}";
const CLAUDE_STATE: &str = "{\n  \"numStartups\": 12,\n  \"projects\": {}\n}\n";
const CODEX_CONFIG: &str = "# mine\nmodel = \"gpt\"";

/// A home with Claude Code and Codex, and a `systemctl` that notes how it is called.
struct Machine {
    home: TestHome,
    calls: PathBuf,
}

impl Machine {
    fn new() -> Machine {
        let home = TestHome::new();
        let user = home.user_home();
        let project = user.join(".claude/projects/-work");
        fs::create_dir_all(&project).unwrap();
        fs::create_dir_all(user.join(".codex")).unwrap();
        fs::write(user.join(".claude/settings.json"), CLAUDE_SETTINGS).unwrap();
        fs::write(user.join(".claude.json"), CLAUDE_STATE).unwrap();
        fs::write(user.join(".codex/config.toml"), CODEX_CONFIG).unwrap();
        let records = [
            said("s1", 0, "user", "which port does the harbour server listen on"),
            said("s1", 1, "assistant", "the harbour server listens on port 7717"),
        ];
        fs::write(project.join("s1.jsonl"), lines(&records)).unwrap();
        let bin = user.join("bin");
        fs::create_dir_all(&bin).unwrap();
        let calls = user.join("systemctl.log");
        let script = format!(
            "#!/bin/sh\necho \"$*\" >> '{calls}'\ncase \"$*\" in *is-active*) grep -q 'enable --now' '{calls}';; esac\n",
            calls = calls.display()
        );
        fs::write(bin.join("systemctl"), script).unwrap();
        fs::set_permissions(bin.join("systemctl"), fs::Permissions::from_mode(0o755)).unwrap();
        Machine { home, calls }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.command(arguments);
        let path = format!("{}:/usr/bin:/bin", self.home.user_home().join("bin").display());
        command.env("PATH", path).stdin(std::process::Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// All files of the user outside of Hob's home.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        fn collect(folder: &Path, skipped: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                if path == skipped {
                    continue;
                }
                if path.is_dir() {
                    found.insert(path.clone(), Vec::new());
                    collect(&path, skipped, found);
                } else {
                    found.insert(path.clone(), fs::read(&path).unwrap());
                }
            }
        }
        let mut found = BTreeMap::new();
        collect(&self.home.user_home(), &self.home.hob_home(), &mut found);
        found.remove(&self.calls);
        found
    }

    fn text(&self, below: &str) -> String {
        fs::read_to_string(self.home.user_home().join(below)).unwrap()
    }
}

fn states(answer: &Value) -> Vec<(String, String)> {
    let text = |step: &Value, field: &str| step[field].as_str().unwrap_or_default().to_owned();
    let steps = answer["steps"].as_array().unwrap().iter();
    steps.map(|s| (text(s, "step") + &text(s, "client"), text(s, "state"))).collect()
}

fn expect(states: &[(&str, &str)]) -> Vec<(String, String)> {
    states.iter().map(|(step, state)| ((*step).to_owned(), (*state).to_owned())).collect()
}

#[test]
fn setup_does_everything_once_and_undo_restores_every_byte() {
    let machine = Machine::new();
    let before = machine.files();
    let planned = json_of(&machine.run(&["setup", "--dry-run", "--json"]));
    assert!(states(&planned).iter().all(|(_, state)| state == "planned"), "{planned}");
    assert_eq!(machine.files(), before);
    assert!(!machine.home.hob_home().exists(), "a dry run creates no home");

    let done = machine.run(&["setup", "--yes", "--json"]);
    assert!(done.status.success(), "{done:?}");
    let done = json_of(&done);
    let all = ["hooksclaude", "mcpclaude", "hookscodex", "mcpcodex", "service", "import"];
    assert_eq!(states(&done), expect(&all.map(|step| (step, "done"))), "{done}");
    let hit = done["recall"]["hit"]["text"].as_str().unwrap();
    assert!(hit.contains("harbour"), "{done}");
    let state: Value = serde_json::from_str(&machine.text(".claude.json")).unwrap();
    assert_eq!(state["mcpServers"]["hob"]["args"][0], "mcp");
    assert_eq!(state["numStartups"], 12);
    assert!(machine.text(".claude/settings.json").contains("capture-turn"));
    assert!(machine.text(".codex/config.toml").contains("[mcp_servers.hob]"));
    let unit = machine.text(".config/systemd/user/hob.service");
    let home = machine.home.hob_home();
    assert!(unit.contains(&format!("Environment=\"HOB_HOME={}\"", home.display())), "{unit}");
    let calls = fs::read_to_string(&machine.calls).unwrap();
    assert!(calls.contains("enable --now hob.socket hob.service"), "{calls}");

    let again = json_of(&machine.run(&["setup", "--yes", "--json"]));
    for (step, state) in states(&again) {
        assert_eq!(state, if step == "import" { "done" } else { "unchanged" }, "{again}");
    }
    let status = machine.run(&["service", "status", "--json"]);
    assert!(status.status.success(), "{status:?}");

    let undone = machine.run(&["setup", "--undo", "--yes", "--json"]);
    assert!(undone.status.success(), "{undone:?}");
    assert_eq!(machine.files(), before);
    let undone = json_of(&machine.run(&["setup", "--undo", "--yes", "--json"]));
    assert!(states(&undone).iter().all(|(_, state)| state == "unchanged"), "{undone}");
    assert!(machine.home.hob_home().join("memory.db").exists(), "the memory stays");
}

/// What the user has added stays after an undo, also under Hob's name.
#[test]
fn undo_leaves_entries_of_the_user() {
    let machine = Machine::new();
    let user = machine.home.user_home();
    let own = r#"{"mcpServers":{"hob":{"type":"stdio","command":"hob","args":["mcp"],"env":{}}}}"#;
    fs::write(user.join(".claude.json"), own).unwrap();
    let done = json_of(&machine.run(&["setup", "--yes", "--json"]));
    assert!(states(&done).contains(&("mcpclaude".to_owned(), "skipped".to_owned())), "{done}");
    let codex = user.join(".codex/config.toml");
    let added = fs::read_to_string(&codex).unwrap() + "\n# about the interface\n[tui]\nx = 1\n";
    fs::write(&codex, &added).unwrap();
    // Later the folders of the clients are named by other variables.
    let mut undo = machine.command(&["setup", "--undo", "--yes", "--json"]);
    undo.env("CLAUDE_CONFIG_DIR", user.join("elsewhere")).env("CODEX_HOME", user.join("other"));
    assert!(undo.status().unwrap().success());
    assert_eq!(machine.text(".claude.json"), own);
    assert_eq!(machine.text(".claude/settings.json"), CLAUDE_SETTINGS);
    let left = fs::read_to_string(&codex).unwrap();
    assert!(left.contains("# about the interface\n[tui]") && !left.contains("hob"), "{left}");
}

fn state_of(answer: &Value, wanted: &str) -> String {
    let found = states(answer).into_iter().find(|(step, _)| step == wanted);
    found.unwrap_or_else(|| panic!("no step {wanted}: {answer}")).1
}

/// Units and hooks of one home are not touched by commands for another one.
#[test]
fn another_home_leaves_units_and_hooks_alone() {
    let machine = Machine::new();
    assert!(machine.run(&["setup", "--yes"]).status.success());
    let before = machine.files();
    let other = machine.home.user_home().join("other-hob");
    let run = |arguments: &[&str]| {
        let mut command = machine.command(arguments);
        command.env("HOB_HOME", &other).output().unwrap()
    };
    let usual = machine.home.hob_home().display().to_string();
    let installed = run(&["service", "install"]);
    assert_eq!(installed.status.code(), Some(1), "{installed:?}");
    let text = String::from_utf8_lossy(&installed.stderr).into_owned();
    assert!(text.contains(&usual) && text.contains("left unchanged"), "{text}");
    assert_eq!(json_of(&run(&["service", "uninstall", "--json"]))["changed"], false);
    let planned = json_of(&run(&["setup", "--dry-run", "--json"]));
    assert_eq!(state_of(&planned, "service"), "skipped", "{planned}");
    assert!(planned.to_string().contains(&usual), "{planned}");
    let undone = run(&["setup", "--undo", "--yes", "--json"]);
    assert!(undone.status.success(), "{undone:?}");
    let undone = json_of(&undone);
    assert_eq!(state_of(&undone, "hooksclaude"), "skipped", "{undone}");
    fs::remove_dir_all(&other).ok();
    assert_eq!(machine.files(), before);

    // A setup for the other home that finds hooks does not take them away with its undo.
    assert!(run(&["setup", "--yes"]).status.success());
    assert!(run(&["setup", "--undo", "--yes"]).status.success());
    fs::remove_dir_all(&other).unwrap();
    assert_eq!(machine.files(), before);
}

/// Folders that variables named at the setup are found at the undo without them.
#[test]
fn undo_follows_the_record_and_shows_it_first() {
    let machine = Machine::new();
    let user = machine.home.user_home();
    let (claude, codex) = (user.join("claude-config"), user.join("codex-home"));
    fs::create_dir_all(&claude).unwrap();
    fs::create_dir_all(&codex).unwrap();
    let before = machine.files();
    let mut setup = machine.command(&["setup", "--yes", "--json"]);
    setup.env("CLAUDE_CONFIG_DIR", &claude).env("CODEX_HOME", &codex);
    let done = setup.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert!(claude.join(".claude.json").exists() && codex.join("config.toml").exists());
    let after = machine.files();

    let planned = json_of(&machine.run(&["setup", "--undo", "--dry-run", "--json"]));
    let all = ["mcpclaude", "mcpcodex", "hooksclaude", "hookscodex", "service"];
    assert_eq!(states(&planned), expect(&all.map(|step| (step, "planned"))), "{planned}");
    assert_eq!(machine.files(), after, "a dry run changes nothing");
    let undone = machine.run(&["setup", "--undo", "--yes", "--json"]);
    assert!(undone.status.success(), "{undone:?}");
    assert_eq!(machine.files(), before);
    let again = machine.run(&["setup", "--undo"]);
    let text = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(again.status.success() && text.contains("nothing to undo"), "{again:?}");
}

/// Entries that the user has changed stay, in JSON and in TOML alike, and the undo says so.
#[test]
fn changed_entries_stay_in_either_format() {
    let machine = Machine::new();
    let user = machine.home.user_home();
    assert!(machine.run(&["setup", "--yes"]).status.success());
    let state = machine
        .text(".claude.json")
        .replace("\"args\":[\"mcp\"]", "\"args\":[\"mcp\"],\"timeout\":5");
    fs::write(user.join(".claude.json"), &state).unwrap();
    let config = machine.text(".codex/config.toml") + "\ntool_timeout_sec = 5\n";
    fs::write(user.join(".codex/config.toml"), &config).unwrap();
    let planned = json_of(&machine.run(&["setup", "--dry-run", "--json"]));
    let undone = machine.run(&["setup", "--undo", "--yes", "--json"]);
    assert!(undone.status.success(), "{undone:?}");
    let undone = json_of(&undone);
    for step in ["mcpclaude", "mcpcodex"] {
        assert_eq!(state_of(&planned, step), "skipped", "{planned}");
        assert_eq!(state_of(&undone, step), "skipped", "{undone}");
    }
    assert_eq!(machine.text(".claude.json"), state);
    assert_eq!(machine.text(".codex/config.toml"), config);
}

#[test]
fn damaged_record_is_an_error_in_words() {
    let machine = Machine::new();
    assert!(machine.run(&["setup", "--yes"]).status.success());
    let before = machine.files();
    fs::write(machine.home.hob_home().join("setup.json"), "{\"folders\": [").unwrap();
    for arguments in
        [&["setup", "--undo", "--yes"][..], &["setup", "--yes"], &["service", "uninstall"]]
    {
        let refused = machine.run(arguments);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(text.contains("setup.json is damaged"), "{text}");
    }
    assert_eq!(machine.files(), before);
}

/// The service does not have the passphrase of this shell, and the user is told before it is installed and after.
#[test]
fn wrapped_key_is_warned_about() {
    let machine = Machine::new();
    let run = |arguments: &[&str]| {
        let mut command = machine.command(arguments);
        json_of(&command.env("HOB_PASSPHRASE", "open sesame").output().unwrap())
    };
    for answer in [run(&["setup", "--dry-run", "--json"]), run(&["setup", "--yes", "--json"])] {
        let steps = answer["steps"].as_array().unwrap();
        let service = steps.iter().find(|step| step["step"] == "service").unwrap();
        let detail = service["detail"].as_str().unwrap();
        assert!(detail.contains("systemctl --user edit hob.service"), "{answer}");
        assert!(!answer.to_string().contains("open sesame"), "{answer}");
    }
    // The key file says so, too, when the variable is not set.
    assert!(machine.run(&["service", "uninstall"]).status.success());
    let installed = machine.run(&["service", "install"]);
    let text = String::from_utf8_lossy(&installed.stderr).into_owned();
    assert!(text.contains("does not have it"), "{installed:?}");
}

/// A `hob` at another place takes over what the earlier one has set up.
#[test]
fn moved_program_updates_its_entries() {
    let machine = Machine::new();
    assert!(machine.run(&["setup", "--yes"]).status.success());
    let moved = machine.home.user_home().join("bin/hob");
    let program = hob_testkit::program("hob");
    fs::hard_link(&program, &moved).or_else(|_| fs::copy(&program, &moved).map(drop)).unwrap();
    let mut command = Command::new(&moved);
    let usual = machine.command(&[]);
    command.args(["setup", "--yes", "--json"]).env_clear().stdin(std::process::Stdio::null());
    command.envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = json_of(&command.output().unwrap());
    assert!(states(&done).contains(&("mcpcodex".to_owned(), "done".to_owned())), "{done}");
    let calls = fs::read_to_string(&machine.calls).unwrap();
    assert!(
        calls.trim_end().lines().any(|call| call.ends_with("try-restart hob.service")),
        "{calls}"
    );
    for file in [".claude.json", ".codex/config.toml", ".claude/settings.json"] {
        let text = machine.text(file);
        assert!(text.contains(moved.to_str().unwrap()), "{text}");
        assert!(!text.contains(program.to_str().unwrap()), "{text}");
    }
    assert!(machine.run(&["setup", "--undo", "--yes"]).status.success());
    assert_eq!(machine.text(".claude.json"), CLAUDE_STATE);
    assert_eq!(machine.text(".codex/config.toml"), CODEX_CONFIG);
}

#[test]
fn setup_asks_first_and_leaves_broken_files_alone() {
    let machine = Machine::new();
    let before = machine.files();
    let unasked = machine.run(&["setup"]);
    assert_eq!(unasked.status.code(), Some(1), "{unasked:?}");
    assert!(String::from_utf8_lossy(&unasked.stderr).contains("--yes"), "{unasked:?}");
    assert_eq!(machine.files(), before);

    let user = machine.home.user_home();
    fs::write(user.join(".claude.json"), "{ broken").unwrap();
    fs::write(user.join(".codex/config.toml"), "model = ").unwrap();
    let answer = machine.run(&["setup", "--yes", "--json"]);
    assert_eq!(answer.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    let found = states(&answer);
    for (step, state) in [("mcpclaude", "failed"), ("mcpcodex", "failed"), ("hooksclaude", "done")]
    {
        assert!(found.contains(&(step.to_owned(), state.to_owned())), "{answer}");
    }
    assert_eq!(machine.text(".claude.json"), "{ broken");
    assert_eq!(machine.text(".codex/config.toml"), "model = ");
}

/// A service whose server is of an earlier build is started again before the import opens the databases.
#[test]
fn setup_starts_a_service_of_an_earlier_build_again() {
    let machine = Machine::new();
    assert!(machine.run(&["setup", "--yes"]).status.success());
    let server = EarlierServer::start(&machine.home);
    let planned = json_of(&machine.run(&["setup", "--dry-run", "--json"]));
    assert_eq!(state_of(&planned, "service"), "planned", "{planned}");
    let done = json_of(&machine.run(&["setup", "--yes", "--json"]));
    let steps: Vec<String> = states(&done).into_iter().map(|(step, _)| step).collect();
    assert!(steps.ends_with(&["service".to_owned(), "import".to_owned()]), "{done}");
    assert_eq!(state_of(&done, "service"), "done", "{done}");
    let restarts = || {
        let calls = fs::read_to_string(&machine.calls).unwrap();
        calls.lines().filter(|call| call.ends_with("try-restart hob.service")).count()
    };
    assert_eq!(restarts(), 1);
    assert!(machine.run(&["service", "install"]).status.success());
    assert_eq!(restarts(), 2, "`hob service install` does it, too");
    drop(server);
    assert!(machine.run(&["service", "install"]).status.success());
    assert_eq!(restarts(), 2);
}

#[test]
fn machine_without_service_manager_is_told_to_serve() {
    let machine = Machine::new();
    let bin = machine.home.user_home().join("bin/systemctl");
    fs::write(&bin, "#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n").unwrap();
    let installed = machine.run(&["service", "install"]);
    let text = String::from_utf8_lossy(&installed.stdout).into_owned();
    assert!(installed.status.success() && text.contains("hob serve"), "{installed:?}");
    assert_eq!(machine.run(&["service", "status"]).status.code(), Some(1));
    let setup = machine.run(&["setup", "--yes"]);
    let text = String::from_utf8_lossy(&setup.stdout).into_owned();
    assert!(setup.status.success() && text.contains("hob serve"), "{setup:?}");
    assert!(!machine.home.user_home().join(".config/systemd").exists());
}

#[test]
fn units_of_others_stay() {
    let machine = Machine::new();
    let folder = machine.home.user_home().join(".config/systemd/user");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("hob.service"), "[Service]\nExecStart=/mine\n").unwrap();
    let refused = machine.run(&["service", "install"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(machine.run(&["service", "uninstall"]).status.success());
    assert_eq!(machine.text(".config/systemd/user/hob.service"), "[Service]\nExecStart=/mine\n");
}

/// A plugin brings hooks and MCP server, so that `hob setup` adds neither. The MCP entry of another home it does add.
#[test]
fn setup_leaves_hooks_and_server_to_an_enabled_plugin() {
    let machine = Machine::new();
    let user = machine.home.user_home();
    let write = |path: &str, text: &str| {
        fs::create_dir_all(user.join(path).parent().unwrap()).unwrap();
        fs::write(user.join(path), text).unwrap();
    };
    write(".claude/settings.json", r#"{"enabledPlugins":{"hob@hob":true}}"#);
    write(".claude/plugins/installed_plugins.json", r#"{"plugins":{"hob@hob":[{}]}}"#);
    write(".codex/config.toml", "[plugins.\"hob@hob\"]\nenabled = true\n");
    let plan = |home: &Path| {
        let mut command = machine.command(&["setup", "--dry-run", "--json"]);
        json_of(&command.env("HOB_HOME", home).output().unwrap())
    };
    let (own, other) = (user.join(".hob"), user.join("other"));
    let steps = ["hooksclaude", "mcpclaude", "hookscodex", "mcpcodex"];
    let found = |home: &Path| steps.map(|step| state_of(&plan(home), step));
    assert_eq!(found(&own), ["planned"; 4], "without `hob` on the PATH the plugins do nothing");

    std::os::unix::fs::symlink(program("hob"), user.join("bin/hob")).unwrap();
    assert_eq!(found(&own), ["unchanged"; 4]);
    assert_eq!(found(&other), ["unchanged", "planned", "unchanged", "planned"]);
    let before = machine.files();
    let installed = machine.run(&["hooks", "install", "--json"]);
    let installed = json_of(&installed);
    let clients = installed["clients"].as_array().unwrap();
    assert_eq!(clients.len(), 2, "{installed}");
    for client in clients {
        assert_eq!((&client["state"], &client["plugin"]), (&"plugin".into(), &"hob@hob".into()));
    }
    assert_eq!(machine.files(), before);
    assert!(machine.run(&["hooks", "status"]).status.success());
}

/// Gemini CLI has hooks and MCP servers in one file. OpenCode gets a plugin, in folders that need not exist.
#[test]
fn setup_connects_gemini_and_opencode_and_undo_restores_every_byte() {
    for settings in [Some("{\n\t\"theme\": \"Dark\"\n}\n"), Some("{}"), None] {
        let machine = Machine::new();
        let user = machine.home.user_home();
        fs::create_dir_all(user.join(".gemini")).unwrap();
        if let Some(text) = settings {
            fs::write(user.join(".gemini/settings.json"), text).unwrap();
        }
        // A program on the PATH is enough.
        std::os::unix::fs::symlink("/bin/true", user.join("bin/opencode")).unwrap();
        let before = machine.files();
        let done = machine.run(&["setup", "--yes", "--json"]);
        assert!(done.status.success(), "{done:?}");
        let done = json_of(&done);
        for step in ["hooksgemini", "mcpgemini", "hooksopencode"] {
            assert_eq!(state_of(&done, step), "done", "{done}");
        }
        assert!(states(&done).iter().all(|(step, _)| step != "mcpopencode"), "{done}");
        let text = machine.text(".gemini/settings.json");
        let gemini: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(gemini["mcpServers"]["hob"]["args"][0], "mcp", "{text}");
        assert_eq!(gemini["hooks"]["AfterAgent"][0]["hooks"][0]["timeout"], 10_000, "{text}");
        let script = machine.text(".config/opencode/plugins/hob.js");
        assert!(script.contains(program("hob").to_str().unwrap()), "{script}");

        let again = json_of(&machine.run(&["setup", "--yes", "--json"]));
        for step in ["hooksgemini", "mcpgemini", "hooksopencode"] {
            assert_eq!(state_of(&again, step), "unchanged", "{again}");
        }
        let undone = machine.run(&["setup", "--undo", "--yes", "--json"]);
        assert!(undone.status.success(), "{undone:?}");
        assert_eq!(machine.files(), before, "{settings:?}");
    }
}
