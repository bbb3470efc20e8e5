//! Transcripts, hooks, and `hob mcp` as an agent drives it, for the tests of the memory.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use hob_testkit::leak::files_below;
use hob_testkit::{TestHome, wait_until};
use serde_json::{Value, json};

pub fn json_of(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// The n-th record of a Claude Code transcript, linked to the one before it.
pub fn said(session: &str, n: usize, role: &str, text: &str) -> Value {
    let parent = n.checked_sub(1).map(|before| format!("{session}-{before}"));
    json!({
        "type": role, "uuid": format!("{session}-{n}"), "parentUuid": parent, "sessionId": session,
        "timestamp": format!("2026-01-02T03:{:02}:{:02}Z", n / 60 % 60, n % 60),
        "message": {"role": role, "content": text},
    })
}

/// A record as the seeds have them: without any id, session or time.
pub fn bare(role: &str, text: &str) -> Value {
    json!({"type": role, "message": {"role": role, "content": text}})
}

/// A rollout of Codex: each turn once as an item of the history and once as an event.
pub fn codex(session: &str, cwd: &str, turns: &[(&str, String)]) -> Vec<Value> {
    let at = |n: usize| format!("2026-02-03T04:00:{:02}.000Z", n % 60);
    let meta = json!({"id": session, "timestamp": at(0), "cwd": cwd, "originator": "codex_cli_rs",
        "cli_version": "0.50.0"});
    let mut lines = vec![json!({"timestamp": at(0), "type": "session_meta", "payload": meta})];
    for (n, (role, text)) in turns.iter().enumerate() {
        let (part, event) = match *role {
            "user" => ("input_text", "user_message"),
            _ => ("output_text", "agent_message"),
        };
        let item =
            json!({"type": "message", "role": role, "content": [{"type": part, "text": text}]});
        let told = json!({"type": event, "message": text});
        lines.push(json!({"timestamp": at(n), "type": "response_item", "payload": item}));
        lines.push(json!({"timestamp": at(n), "type": "event_msg", "payload": told}));
    }
    lines
}

pub fn lines(records: &[Value]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}

/// Writes a transcript below the user's folder.
pub fn transcript(home: &TestHome, name: &str, records: &[Value]) -> PathBuf {
    let path = home.user_home().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, lines(records)).unwrap();
    path
}

/// Creates a folder below the user's that is in no repository.
pub fn folder(home: &TestHome, name: &str) -> PathBuf {
    let path = home.user_home().join(name);
    fs::create_dir_all(&path).unwrap();
    path.canonicalize().unwrap()
}

/// `hob capture-transcript` with these arguments before the path, and its answer.
pub fn capture(home: &TestHome, arguments: &[&str], path: &Path) -> Value {
    let mut command = home.command(&["capture-transcript"]);
    json_of(&command.args(arguments).arg(path).output().unwrap())
}

/// Runs a command with this on its standard input.
pub fn feed(mut command: Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that has seen enough closes early, which is its right.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// `hob capture-turn` for one event of a hook; it has to be silent and successful.
pub fn hook(home: &TestHome, event: &Value) {
    let output = feed(home.command(&["capture-turn"]), event.to_string().as_bytes());
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

/// Everything that is remembered.
pub fn export(home: &TestHome) -> Vec<Value> {
    let output = home.run(&["export"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

/// The exported texts in their order.
pub fn exported_texts(home: &TestHome) -> Vec<String> {
    texts(&export(home))
}

pub fn texts(rows: &[Value]) -> Vec<String> {
    rows.iter().map(|row| row["text"].as_str().unwrap().to_owned()).collect()
}

/// `hob recall --json` in a folder.
pub fn recall(home: &TestHome, folder: &Path, arguments: &[&str]) -> Value {
    let mut command = home.command(&["recall", "--json"]);
    json_of(&command.args(arguments).current_dir(folder).output().unwrap())
}

pub fn deferrals(home: &TestHome) -> Vec<PathBuf> {
    let mut files = files_below(&home.hob_home().join("deferred-captures"));
    files.sort();
    files
}

pub fn wait_for_drain(home: &TestHome) {
    wait_until("everything deferred is drained", || deferrals(home).is_empty().then_some(()));
}

/// Longer than the thirty seconds after which a bridge gives up on the server.
const ANSWER: Duration = Duration::from_secs(40);

/// A running `hob mcp`, after its handshake. Dropping it ends it.
pub struct Bridge {
    child: Child,
    stdin: Option<ChildStdin>,
    /// The bridge's output by line, read on a thread of its own so that waiting has a timeout.
    lines: Receiver<String>,
    last: u64,
}

impl Bridge {
    pub fn new(home: &TestHome, folder: &Path) -> Bridge {
        let mut command = home.command(&["mcp"]);
        command.current_dir(folder);
        Bridge::start(command)
    }

    /// Starts a bridge and begins with the handshake of an earlier version of the protocol.
    pub fn start(command: Command) -> Bridge {
        let mut bridge = Bridge::silent(command);
        assert_eq!(bridge.initialize("2025-03-26"), "2025-03-26");
        bridge
    }

    /// Starts a bridge without a handshake.
    pub fn silent(mut command: Command) -> Bridge {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("hob mcp starts");
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut read = stdout.lines().map_while(Result::ok);
            read.all(|line| said.send(line).is_ok());
        });
        Bridge { stdin: child.stdin.take(), lines, child, last: 0 }
    }

    /// Does the handshake of an earlier version of the protocol, and returns the version that was negotiated.
    pub fn initialize(&mut self, version: &str) -> String {
        let answer = self.request(
            "initialize",
            json!({"protocolVersion": version, "capabilities": {},
                "clientInfo": {"name": "subagent-reuse-test", "version": "0.0"}}),
        );
        assert!(answer["result"]["serverInfo"].is_object(), "{answer}");
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        answer["result"]["protocolVersion"].as_str().expect("a version").to_owned()
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn send(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{message}\n").as_bytes()).expect("the bridge reads");
    }

    /// Sends a request without waiting for its answer.
    pub fn ask(&mut self, method: &str, params: Value) {
        self.last += 1;
        let id = self.last;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    /// The next message of the bridge.
    pub fn next_message(&mut self) -> Value {
        let line = self.lines.recv_timeout(ANSWER).expect("the bridge answers in time");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"))
    }

    /// Closes the input and returns what the bridge says until it ends.
    pub fn finish(mut self) -> Vec<String> {
        drop(self.stdin.take());
        self.lines.iter().collect()
    }

    /// The answer to the latest request.
    pub fn answer(&mut self) -> Value {
        let answer = self.next_message();
        assert_eq!(answer["id"], self.last, "{answer}");
        answer
    }

    pub fn request(&mut self, method: &str, params: Value) -> Value {
        self.ask(method, params);
        self.answer()
    }

    /// A tool's whole result.
    pub fn tool(&mut self, name: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({"name": name, "arguments": arguments}));
        assert!(answer["result"].is_object(), "{name} {answer}");
        answer["result"].clone()
    }

    /// The structured content of a tool that has to succeed.
    pub fn call(&mut self, name: &str, arguments: Value) -> Value {
        let result = self.tool(name, arguments);
        assert_ne!(result["isError"], true, "{name} {result}");
        result["structuredContent"].clone()
    }

    /// The words of a tool that has to fail.
    pub fn refused(&mut self, name: &str, arguments: Value) -> String {
        let result = self.tool(name, arguments);
        assert_eq!(result["isError"], true, "{name} {result}");
        result["content"][0]["text"].as_str().expect("words").to_owned()
    }

    /// The texts that a recall gives.
    pub fn recalled(&mut self, arguments: Value) -> Vec<String> {
        texts(self.call("memory_recall", arguments)["hits"].as_array().unwrap())
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
