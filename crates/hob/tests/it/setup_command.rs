//! `hob setup` and `hob service`: everything in place with one command, and taken back byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hob_testkit::TestHome;
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
    let all = ["hooksclaude", "mcpclaude", "hookscodex", "mcpcodex", "import", "service"];
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
