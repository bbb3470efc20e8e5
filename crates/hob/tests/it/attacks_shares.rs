//! What one agent may take of what all share, and where a session may work. The attacks are described in SECURITY.md.

use std::fs;

use hob_testkit::TestHome;
use serde_json::json;

use crate::api::*;
use crate::backend::Backend;

/// An app could name the owner's keys or settings as the folder of a session: with a root around them, the agent could
/// read the keys and write what the owner's shell or service manager runs.
#[test]
fn sessions_work_in_no_folder_of_settings_or_credentials() {
    let home = TestHome::new();
    let user = home.user_home();
    for folder in [".ssh", ".claude/projects", ".config/systemd/user", ".local/bin", "project"] {
        fs::create_dir_all(user.join(folder)).unwrap();
    }
    fs::write(user.join(".ssh/id_ed25519"), "the key").unwrap();
    configure(&home, &sessions(&format!("roots = [{:?}]", user.display().to_string())));
    let token = home.app("tests");
    let api = Backend::File.start(home, &token);
    let user = user.canonicalize().unwrap();
    for folder in ["", ".ssh", ".claude", ".claude/projects", ".config/systemd/user", ".local/bin"]
    {
        let body = json!({"agent": "acp", "cwd": user.join(folder)});
        let answer = api.server.post("/sessions", Some(&api.token), &body);
        assert_eq!(answer.status, 400, "{folder}: {}", answer.text);
        assert!(answer.text.contains("settings or credentials"), "{}", answer.text);
    }
    let id = api.create(&json!({"agent": "acp", "cwd": user.join("project")}));
    assert_eq!(api.shell(&id, "touch made && echo made"), "made");
    assert!(!api.shell(&id, "cat ~/.ssh/id_ed25519 2>&1").contains("the key"));
    // The owner may start an agent at home. It can read most files there, and change none, neither by itself nor by Hob.
    let path = user.join(".bashrc");
    let command = "cat ~/.ssh/id_ed25519 2>&1; echo evil > ~/.bashrc; true";
    let request = json!({"sessionId": "s", "path": path, "content": "evil"});
    for script in [
        format!("[[tool Bash {}]] [[say done]]", json!({"command": command})),
        format!("[[request fs/write_text_file {request}]]"),
    ] {
        let mut hob = api.home.command(&["run", "--agent", "acp", "--permissions", "allow"]);
        let output = hob.args(["--json", &script]).current_dir(&user).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && !printed.contains("the key"), "{output:?}");
        assert!(!path.exists(), "{output:?}");
    }
}

/// The kernel counts some things for the user and not for a process: descriptors on their way through sockets, namespaces,
/// watchers of files. One agent could take all of them, and no other agent could start.
#[test]
fn agent_cannot_take_what_other_agents_need() {
    let api = api("");
    let id = api.session();
    let number = |text: &str| text.trim().parse::<u64>().unwrap_or_else(|_| panic!("{text:?}"));
    let hard_limit = |limits: &str, name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).expect("the limit");
        number(line.split_ascii_whitespace().nth(1).expect("the hard limit"))
    };
    let of_server = fs::read_to_string(format!("/proc/{}/limits", api.server.pid())).unwrap();
    let of_agent = api.shell(&id, "cat /proc/self/limits");
    let files = hard_limit(&of_agent, "Max open files");
    assert!(files * 2 <= hard_limit(&of_server, "Max open files"), "{of_agent}");
    let all = number(&fs::read_to_string("/proc/sys/kernel/pid_max").unwrap());
    assert!(hard_limit(&of_agent, "Max processes") * 32 <= all, "{of_agent}");
    let limit = |name: &str| api.shell(&id, &format!("cat /proc/sys/user/max_{name}"));
    let of_machine = |name: &str| {
        number(&fs::read_to_string(format!("/proc/sys/fs/inotify/max_user_{name}")).unwrap())
    };
    for kind in ["user_namespaces", "mnt_namespaces", "pid_namespaces", "net_namespaces"] {
        assert!(number(&limit(kind)) <= 32, "{kind}");
    }
    for name in ["instances", "watches"] {
        let taken = number(&limit(&format!("inotify_{name}")));
        assert!(taken * 4 <= of_machine(name), "{name}: {taken}");
    }
    // It cannot raise them either.
    api.shell(&id, "echo 9999 > /proc/sys/user/max_user_namespaces 2>&1; true");
    assert!(number(&limit("user_namespaces")) <= 32);
}
