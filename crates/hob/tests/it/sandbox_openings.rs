//! Settings of an agent that open its sandbox to what developers need: sockets, ports and Git's credentials.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use hob_testkit::TestHome;

use crate::api::*;
use crate::backend::Backend;
use crate::console::{ADMIN, serve};

/// Starts a server whose agent `acp` has further lines in its entry.
fn api_with(home: TestHome, lines: &str) -> Api {
    let agent = TestHome::scripted_agent("acp", "acp", &["acp"]);
    home.configure(&format!("{agent}{lines}\n"));
    let token = home.app("tests");
    let server = serve(&home);
    Api::new(Backend::File, server, home, &token)
}

/// Runs Python in the agent, and returns what it printed or the name of its error.
fn python(api: &Api, id: &str, code: &str) -> String {
    let code =
        format!("try:\n {code}\n print('done')\nexcept Exception as e:\n print(type(e).__name__)");
    api.shell(id, &format!("python3 -c \"{code}\""))
}

#[test]
fn agent_connects_only_to_the_ports_of_its_entry() {
    let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (open, closed) = (listen(), listen());
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let api = api_with(TestHome::new(), &format!("ports = [{}]", port(&open)));
    let created = api.post("/sessions", &serde_json::json!({"agent": "acp"}));
    if hob_child::landlock_version().unwrap_or_default() < 4 {
        assert_ne!(created.status, 200, "without the kernel's help the setting is not ignored");
        return;
    }
    let id = created.json()["session_id"].as_str().unwrap().to_owned();
    let connect =
        |port: u16| format!("import socket; socket.create_connection(('127.0.0.1', {port}), 5)");
    assert_eq!(python(&api, &id, &connect(port(&open))), "done");
    assert_eq!(python(&api, &id, &connect(port(&closed))), "PermissionError");
    let sendto = |port: u16| {
        format!("import socket; socket.socket().sendto(b'x', 0x20000000, ('127.0.0.1', {port}))")
    };
    assert_eq!(python(&api, &id, &sendto(port(&closed))), "PermissionError", "TCP Fast Open");
    for (name, kind, protocol) in
        [("Multipath TCP", 1, 262), ("SCTP", 1, 132), ("SCTP by its type", 5, 0)]
    {
        let socket = format!("import socket; socket.socket(socket.AF_INET, {kind}, {protocol})");
        assert_eq!(python(&api, &id, &socket), "PermissionError", "{name}");
    }
    let udp = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 53))";
    assert_eq!(python(&api, &id, udp), "done", "names are resolved");
    let serve = "import socket; socket.create_server(('127.0.0.1', 0))";
    assert_eq!(python(&api, &id, serve), "done", "it may listen");
}

#[test]
fn agent_uses_the_sockets_of_its_entry() {
    let home = TestHome::new();
    let folder = tempfile::tempdir().unwrap();
    let (open, other) = (folder.path().join("docker.sock"), folder.path().join("other.sock"));
    let _listeners = [&open, &other].map(|path| UnixListener::bind(path).unwrap());
    let api = api_with(home, &format!("sockets = [{open:?}, \"$HOB_TEST_NOT_SET\"]"));
    let id = api.session();
    let connect = |path: &std::path::Path| {
        format!("import socket; socket.socket(socket.AF_UNIX).connect('{}')", path.display())
    };
    assert_eq!(python(&api, &id, &connect(&open)), "done");
    let layers = api.describe(&id)["sandbox"]["layers"].clone();
    if layers.as_array().unwrap().contains(&"namespaces".into()) {
        assert_ne!(python(&api, &id, &connect(&other)), "done");
    }
}

/// Git in an agent gets the credential of a host that the entry names, and a sentence with the setting for others.
#[test]
fn git_in_an_agent_gets_the_credentials_of_named_hosts() {
    let home = TestHome::new();
    fs::write(home.user_home().join(".gitconfig"), "[credential]\n\thelper = store\n").unwrap();
    let credentials = "https://ada:the-token@git.example\nhttps://ada:other-token@other.example\n";
    fs::write(home.user_home().join(".git-credentials"), credentials).unwrap();
    let api = api_with(home, "git_hosts = [\"git.example\", \"unknown.example\"]");
    let id = api.session();
    let fill = |host: &str| {
        let request = format!("printf 'protocol=https\\nhost={host}\\n\\n'");
        api.shell(&id, &format!("{request} | git credential fill 2>&1"))
    };
    let filled = fill("git.example");
    assert!(filled.contains("username=ada") && filled.contains("password=the-token"), "{filled}");
    let refused = fill("other.example");
    assert!(refused.contains("add \"other.example\" to `git_hosts`"), "{refused}");
    assert!(!refused.contains("other-token"), "{refused}");
    let missing = fill("unknown.example");
    assert!(missing.contains("your Git has no credential for unknown.example"), "{missing}");
    let stored = api.shell(&id, "cat ~/.git-credentials 2>&1");
    assert!(!stored.contains("token"), "{stored}");
    // An address that needs an SSH key is used with the credential.
    let url = api.shell(&id, "git ls-remote --get-url git@git.example:ada/shop.git");
    assert_eq!(url, "https://git.example/ada/shop.git");
    let audit = api.server.get("/admin/audit", Some(ADMIN)).text;
    assert!(audit.contains("git_credential") && !audit.contains("the-token"), "{audit}");
    let outside = api.home.command(&["git-credential", "get"]).output().unwrap();
    let said = String::from_utf8_lossy(&outside.stderr).into_owned();
    assert!(said.contains("for agents"), "{said}");
}

/// A tool that fails because of the sandbox leaves a notice, once for each setting.
#[test]
fn denial_of_the_sandbox_names_the_setting() {
    let api = api("");
    fs::create_dir_all(api.home.user_home().join(".ssh")).unwrap();
    fs::write(api.home.user_home().join(".ssh/id"), "the key").unwrap();
    let id = api.session();
    let command = serde_json::json!({"command": "cat ~/.ssh/id 2>&1; true"});
    for _ in 0..2 {
        assert_eq!(api.turn(&id, &format!("[[tool Bash {command}]] [[say done]]")).status, 200);
    }
    let events = api.get(&format!("/sessions/{id}/events?limit=200")).json();
    let events = events["events"].as_array().unwrap().clone();
    let notices: Vec<_> = events.iter().filter(|event| event["event"] == "notice").collect();
    assert_eq!(notices.len(), 1, "{notices:?}");
    let text = notices[0]["message"].as_str().unwrap();
    assert!(text.contains("add \"~/.ssh\" to `readable` in [agents.acp]"), "{text}");
}
