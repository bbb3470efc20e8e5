//! An agent of one app looks for data of the owner and of another app: in the home, in the process table, over
//! the socket, through Hob's own commands. The owner makes every attempt as well, so that nothing is missing for
//! another reason.

use std::fs;
use std::path::Path;
use std::process::Command;

use hob_child::{landlock_version, tree};
use hob_testkit::{HobServer, TestHome, program};
use serde_json::{Value, json};

use crate::other_apps::{Estate, PLANTED};
use crate::setup::home;

/// Words in the owner's memory. No prompt has them: an app's own prompts are remembered, too, and may come back.
const REMEMBERED: &str = "remembered-crimson-lantern";
const CONFIGURED: &str = "configured-amber-compass";
const SURROUNDING: &str = "surrounding-ivory-anchor";

/// A try, and a word that it finds for the owner.
struct Try {
    command: String,
    finds: Option<String>,
}

fn tries(
    server: &HobServer,
    home: &TestHome,
    estate: &Estate,
    others: &[tree::Process],
) -> Vec<Try> {
    let folder = home.hob_home();
    let at = |path: &str| folder.join(path).display().to_string();
    let pid = server.pid();
    let mut tries = Vec::new();
    let mut add = |command: String, finds: Option<&str>| {
        tries.push(Try { command, finds: finds.map(str::to_owned) });
    };
    let admin = fs::read_to_string(at("admin.token")).expect("the admin's token");
    add(format!("cat {}", at("admin.token")), Some(admin.trim()));
    add(format!("cat {}", at("config.toml")), Some(CONFIGURED));
    add(format!("od -c {} && printf was-%s read", at("key")), Some("was-read"));
    for file in ["hob.db", "hob.db-wal", "memory.db", "memory.db-wal", "key.pub"] {
        add(format!("head -c 16 {} >/dev/null && printf was-%s read", at(file)), Some("was-read"));
    }
    add(format!("cat {}/* && printf was-%s read", at("logs")), Some("was-read"));
    add(format!("ls {}", folder.display()), Some("hob.db"));
    let upload = Path::new(&estate.file_path).parent().expect("a folder").display();
    add(format!("cat {upload}/*"), Some(PLANTED));
    add(format!("ls -R {}", at("files")), Some(PLANTED));
    add(format!("grep -r violet {}", at("workspaces")), Some(PLANTED));
    for id in estate.sessions.values() {
        add(format!("cat {}/note.txt", at(&format!("workspaces/{id}"))), Some(PLANTED));
    }
    // Ways around the path.
    add(format!("cat ../{}/note.txt", estate.sessions["idle"]), None);
    add(format!("ln -s {} way-in && cat way-in/admin.token", folder.display()), None);
    add(format!("ln {} copied && cat copied", at("admin.token")), None);
    add(format!("cd {} && cat admin.token", folder.display()), None);
    add(format!("cat /proc/{pid}/cwd/admin.token /proc/{pid}/root{}", at("admin.token")), None);
    // The process table.
    add(format!("cat /proc/{pid}/environ"), Some(SURROUNDING));
    add(format!("for f in /proc/{pid}/fd/*; do readlink $f; cat $f | head -c 100; done"), None);
    add(format!("head -c 10 /proc/{pid}/mem; cat /proc/{pid}/maps && printf was-%s read"), None);
    for process in others {
        let pid = process.pid;
        add(format!("cat /proc/{pid}/environ /proc/{pid}/cwd/note.txt"), None);
        add(format!("kill -9 {pid} && printf was-%s killed"), None);
    }
    add(format!("kill -9 {pid} && printf was-%s killed"), None);
    // Hob's own commands.
    let hob = format!("HOB_HOME={} {}", folder.display(), program("hob").display());
    let plain = format!("{} ", program("hob").display());
    for hob in [hob, plain] {
        add(format!("{hob} recall --json --project '*' lighthouse"), None);
        add(format!("{hob} recall --json --project '*' violet"), None);
        add(format!("{hob} export"), None);
        add(format!("{hob} export --json"), None);
        add(format!("{hob} session-start --cwd /"), None);
        add(format!("{hob} sessions list"), None);
        add(format!("{hob} sessions list --json"), None);
        add(format!("{hob} app list --json"), None);
        add(format!("{hob} app create intruder --json"), None);
        add(format!("{hob} app revoke first"), None);
        add(format!("{hob} forget --session-id owners"), None);
        add(format!("{hob} key change"), None);
        add(format!("{hob} doctor --json"), None);
        add(format!("{hob} status --json"), None);
        let line = |id: u32, method: &str, params: Value| {
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
        };
        let info = json!({"name": "t", "version": "0"});
        let hello =
            json!({"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": info});
        let mut lines = vec![line(1, "initialize", hello)];
        for (id, word) in (2..).zip(["lighthouse", "violet"]) {
            let arguments = json!({"cue": word, "project": "*"});
            let recall = json!({"name": "memory_recall", "arguments": arguments});
            lines.push(line(id, "tools/call", recall));
        }
        add(format!("printf '%s\\n' '{}' | {hob} mcp", lines.join("' '")), None);
    }
    tries
}

/// Frames for the socket itself, and a program that sends them: any agent has an interpreter at hand.
fn over_the_socket(home: &TestHome, record: &str) -> String {
    let socket = home.hob_home().join("hob.sock");
    let calls = json!([
        {"call": "hello", "protocol": 1},
        {"call": "tool", "name": "memory_recall", "cwd": "/",
            "arguments": {"cue": "lighthouse", "project": "*"}},
        {"call": "tool", "name": "memory_timeline", "cwd": "/",
            "arguments": {"session_id": "owners"}},
        {"call": "tool", "name": "memory_forget", "cwd": "/",
            "arguments": {"session_id": "owners"}},
        {"call": "session_start", "cwd": "/", "session_id": "owners", "budget_tokens": 1500},
        {"call": "unseal", "record_id": record},
        {"call": "sessions"},
        {"call": "http", "method": "GET", "path": "/admin/sessions"},
    ]);
    format!(
        r#"import json, socket, struct
for call in json.loads('{calls}'):
    try:
        s = socket.socket(socket.AF_UNIX); s.settimeout(2); s.connect("{}")
        for c in ([call] if call["call"] == "hello" else [{{"call": "hello", "protocol": 1}}, call]):
            body = json.dumps(c).encode(); s.sendall(struct.pack(">I", len(body)) + body)
            n = struct.unpack(">I", s.recv(4))[0]; got = b""
            while len(got) < n: got += s.recv(n - len(got))
            print(got.decode())
    except Exception as error: print(type(error).__name__)
s = socket.socket(socket.AF_UNIX); s.settimeout(2)
try:
    s.connect("{}")
    s.sendall(b"GET /admin/sessions HTTP/1.1\r\nhost: x\r\n\r\n"); print(s.recv(65536))
except Exception as error: print(type(error).__name__)
"#,
        socket.display(),
        socket.display()
    )
}

/// Runs a command as an agent of the app does, and returns all it printed.
fn as_agent(server: &HobServer, token: &str, id: &str, command: &str) -> String {
    let command = json!({"command": format!("({command}) 2>&1")});
    let answer = server.client(token).turn(id, &format!("[[tool Bash {command}]] [[say done]]"));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let answer = answer.json();
    let events = answer["events"].as_array().expect("events");
    let outputs = events.iter().filter_map(|event| {
        let update = &event["params"]["update"];
        (update["sessionUpdate"] == "tool_call_update").then(|| update["content"].to_string())
    });
    outputs.collect::<Vec<String>>().join("\n")
}

fn as_owner(home: &TestHome, command: &str) -> String {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("({command}) 2>&1")]).env("HOME", home.user_home());
    let output = shell.current_dir(home.user_home()).output().expect("sh runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn prying_agent_finds_no_secret() {
    if landlock_version().is_none() {
        println!("skipped: this kernel has no Landlock");
        return;
    }
    let home = home(&format!("[agents.gemini]\nenv = {{ SECRET = \"{CONFIGURED}\" }}"));
    let server = home.serve_with(|command| {
        command.env("HOB_TEST_SURROUNDING", SURROUNDING);
    });
    let estate = Estate::new(&server, &home, "first");
    let transcript = home.user_home().join("owners.jsonl");
    let record = json!({"type": "user", "uuid": "11112222-3333-4444-5555-666677778888", "sessionId": "owners",
        "cwd": "/", "message": {"role": "user", "content": format!("the lighthouse is {REMEMBERED}")}});
    fs::write(&transcript, format!("{record}\n")).unwrap();
    let path = transcript.to_str().expect("a path");
    assert!(home.run(&["capture-transcript", path]).status.success());
    fs::remove_file(&transcript).unwrap();
    let second = home.app("second");
    let others = tree::descendants(server.pid());
    let id = server.client(&second).create(&json!({"agent": "acp", "permissions": "allow"}));
    let before = estate.look(&server);
    let tries = tries(&server, &home, &estate, &others);
    let admin = fs::read_to_string(home.hob_home().join("admin.token")).unwrap();
    let mut secrets = vec![PLANTED, REMEMBERED, CONFIGURED, SURROUNDING, admin.trim()];
    secrets.extend(["was-read", "was-killed", estate.token.as_str()]);
    let mut found = Vec::new();
    let mut pry = |command: &str, finds: Option<&&str>| {
        let output = as_agent(&server, &second, &id, command);
        let seen = secrets.iter().chain(finds).find(|secret| output.contains(**secret));
        if let Some(secret) = seen {
            found.push(format!("{command} finds {secret}: {}", &output[..output.len().min(2000)]));
        }
    };
    for Try { command, finds } in &tries {
        if let Some(word) = finds {
            let output = as_owner(&home, command);
            assert!(output.contains(word), "the owner finds it: {command}: {output}");
        }
        pry(command, finds.as_deref().as_ref());
    }
    let script = home.user_home().join("pry.py");
    let exported = String::from_utf8_lossy(&home.run(&["export"]).stdout).into_owned();
    let owned: Option<Value> = exported
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .find(|row: &Value| row["session_id"] == "owners");
    let record = owned.expect("the owner's record")["record_id"].clone();
    fs::write(&script, over_the_socket(&home, record.as_str().expect("a name"))).unwrap();
    pry(&format!("python3 {}", script.display()), None);
    println!("prying: {} tries, {} found something", tries.len() + 1, found.len());
    assert!(found.is_empty(), "{found:#?}");
    // And nothing was done.
    let apps = home.run(&["app", "list", "--json"]);
    let apps = String::from_utf8_lossy(&apps.stdout).into_owned();
    assert!(apps.contains("first") && !apps.contains("intruder"), "{apps}");
    let exported = home.run(&["export"]);
    assert!(String::from_utf8_lossy(&exported.stdout).contains(REMEMBERED), "{exported:?}");
    assert_eq!(estate.look(&server), before, "nothing has changed");
    estate.settle(&server);
    assert!(server.stop().success());
}
