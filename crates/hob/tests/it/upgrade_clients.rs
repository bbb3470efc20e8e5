//! Hooks, bridges and servers of different builds next to each other: frames of the first build against this server, and
//! commands of this build against a server of the first one.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use hob_testkit::earlier_server::{EARLIER_BRIEFING, EARLIER_HIT};
use hob_testkit::{EarlierServer, TestHome};
use serde_json::{Value, json};

use crate::earlier_home::EarlierHome;
use crate::memory_setup::{
    Bridge, capture, deferrals, exported_texts, feed, folder, hook, json_of, said, transcript,
    wait_for_drain,
};

/// A client of the first build: it sends frames as that build wrote them.
struct EarlierClient(UnixStream);

impl EarlierClient {
    fn connect(home: &TestHome) -> EarlierClient {
        let stream = UnixStream::connect(home.hob_home().join("hob.sock")).unwrap();
        let mut client = EarlierClient(stream);
        let hello = client.call(r#"{"call":"hello","protocol":2}"#)["hello"].take();
        // The fields that the first build needed.
        assert!(hello["protocol"] == 2 && hello["pid"].is_u64(), "{hello}");
        assert!(hello["version"].is_string() && hello.get("http").is_some(), "{hello}");
        client
    }

    fn call(&mut self, body: &str) -> Value {
        self.0.write_all(&(body.len() as u32).to_be_bytes()).unwrap();
        self.0.write_all(body.as_bytes()).unwrap();
        let mut length = [0; 4];
        self.0.read_exact(&mut length).unwrap();
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut answer).unwrap();
        serde_json::from_slice(&answer).unwrap()
    }
}

/// What the hook of the first build sent: a prompt with its record's id, and an answer that the transcript did not have yet.
const CAPTURE: &str = r#"{"call":"capture","batch":{"session":"old","place":{"project":"/p","worktree":"/p"},"client":"claude","source":"hook","turns":[{"id":"0197a2f4-5d2e-7c3b-9a10-7f2b8c1d4e5f","role":"user","text":"how deep is the dock","ts":"2026-01-02T03:04:05Z","n":1,"tier":"episodic"},{"role":"assistant","text":"the dock is nine metres deep","ts":"2026-01-02T03:04:06Z","n":1,"answer":"ab0c1d2e3f405162738495a6b7c8d9eaab0c1d2e3f405162738495a6b7c8d9ea","tier":"episodic"}]}}"#;

/// A deferral file of the first build.
const DEFERRED: &str = r#"{"version":1,"session_id":"waits","deferred_at":"2026-01-02T04:00:00Z","cwd":"/p","place":{"project":"/p","worktree":"/p"},"client":"claude"}
{"text":"the crane lifts forty tons","cue":"the crane lifts forty tons","tier":"episodic","role":"user","ts":"2026-01-02T03:59:00Z","id":"w-1"}
{"text":"noted","cue":"the crane lifts forty tons","tier":"episodic","role":"assistant","ts":"2026-01-02T03:59:01Z","n":1}
"#;

#[test]
fn frames_and_files_of_the_first_build_are_understood() {
    let home = TestHome::new();
    let waiting = home.hob_home().join("deferred-captures");
    fs::create_dir_all(&waiting).unwrap();
    fs::write(waiting.join("waits-1767326400.jsonl"), DEFERRED).unwrap();
    let server = home.serve();
    let mut client = EarlierClient::connect(&home);
    let stored = |inserted, duplicates| json!({"captured": {"inserted": inserted, "duplicates": duplicates, "forgotten": 0}});
    assert_eq!(client.call(CAPTURE), stored(2, 0));
    assert_eq!(client.call(CAPTURE), stored(0, 2), "a repeated hook stores nothing twice");
    let start = r#"{"call":"session_start","cwd":"/p","session_id":null,"budget_tokens":1000}"#;
    let briefing = client.call(start);
    assert!(briefing["text"].as_str().unwrap().contains("dock"), "{briefing}");
    let tool = r#"{"call":"tool","name":"memory_recall","arguments":{"cue":"how deep is the dock"},"cwd":"/p"}"#;
    let found = client.call(tool);
    assert!(found["result"]["hits"].to_string().contains("nine metres"), "{found}");
    assert!(client.call(r#"{"call":"unseal","record_id":"none"}"#)["refused"].is_string());

    // The bridge: the connection goes on with a message a line.
    assert_eq!(client.call(r#"{"call":"mcp","cwd":"/p"}"#), "mcp");
    let mut lines = BufReader::new(client.0.try_clone().unwrap()).lines();
    let mut writer = client.0.try_clone().unwrap();
    let mut ask = |message: &str| -> Value {
        writeln!(client.0, "{message}").unwrap();
        serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap()
    };
    let handshake = ask(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}"#,
    );
    assert!(handshake["result"]["serverInfo"].is_object(), "{handshake}");
    writeln!(writer, r#"{{"jsonrpc":"2.0","method":"notifications/initialized"}}"#).unwrap();
    let answer = ask(
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"memory_recall","arguments":{"cue":"how deep is the dock"}}}"#,
    );
    assert!(answer["result"]["structuredContent"].to_string().contains("nine metres"), "{answer}");

    wait_for_drain(&home);
    let mut texts = exported_texts(&home);
    texts.sort();
    let expect = [
        "how deep is the dock",
        "noted",
        "the crane lifts forty tons",
        "the dock is nine metres deep",
    ];
    assert_eq!(texts, expect);
    drop(client);
    assert!(server.stop().success());
}

#[test]
fn hooks_and_bridge_of_this_build_use_an_earlier_server() {
    let home = TestHome::new();
    let server = EarlierServer::start(&home);
    let project = folder(&home, "work");
    let records =
        [said("s", 0, "user", "is the lock open"), said("s", 1, "assistant", "it is shut")];
    let path = transcript(&home, "t.jsonl", &records);
    hook(
        &home,
        &json!({"session_id": "s", "transcript_path": path, "cwd": project, "hook_event_name": "Stop"}),
    );
    assert_eq!(server.captured(), ["is the lock open", "it is shut"]);
    let whole = capture(&home, &["--cwd", project.to_str().unwrap()], &path);
    assert_eq!((&whole["status"], &whole["inserted"]), (&json!("captured"), &json!(2)));
    assert_eq!(server.captured().len(), 4);
    assert!(deferrals(&home).is_empty());
    assert!(!home.hob_home().join("memory.db").exists(), "the server has the databases");
    let input = json!({"cwd": project, "session_id": "next"}).to_string();
    let briefing = feed(home.command(&["session-start"]), input.as_bytes());
    assert!(briefing.status.success(), "{briefing:?}");
    assert_eq!(String::from_utf8_lossy(&briefing.stdout), EARLIER_BRIEFING);
    let mut bridge = Bridge::new(&home, &project);
    assert_eq!(bridge.recalled(json!({"cue": "harbour"})), [EARLIER_HIT]);
    drop(bridge);
    let found = home.command(&["recall", "harbour"]).current_dir(&project).output().unwrap();
    assert!(String::from_utf8_lossy(&found.stdout).contains(EARLIER_HIT), "{found:?}");
}

#[test]
fn server_of_an_earlier_build_is_reported() {
    let home = TestHome::new();
    let server = home.serve();
    let status = json_of(&home.run(&["status", "--json"]));
    assert_eq!(status["same_build"], true, "{status}");
    assert_eq!(status["build"].as_str().unwrap().len(), 16, "{status}");
    let said = String::from_utf8(home.run(&["status"]).stdout).unwrap();
    assert!(!said.contains("build of hob"), "{said}");
    assert!(server.stop().success());

    let server = EarlierServer::start(&home);
    let bin = home.user_home().join("bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join("git"), "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = home.command(arguments);
        let output =
            command.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let status: Value = serde_json::from_str(&run(&["status", "--json"])).unwrap();
    assert_eq!((&status["same_build"], &status["build"]), (&json!(false), &json!("")), "{status}");
    let expect = format!("the running server (pid {}) is an older build of hob", server.pid());
    for arguments in [&["status"][..], &[], &["doctor"], &["update", "--check"]] {
        let said = run(arguments);
        assert!(said.contains(&expect), "{arguments:?} {said}");
        assert!(said.contains("hob service install"), "{arguments:?} {said}");
    }
    let update: Value = serde_json::from_str(&run(&["update", "--check", "--json"])).unwrap();
    assert_eq!(update["same_build"], false, "{update}");
}

/// Databases that the earlier server uses stay as they are, also if it answers.
#[test]
fn import_next_to_an_earlier_server_is_refused() {
    let earlier = EarlierHome::new();
    let _server = EarlierServer::start(&earlier.home);
    let before = earlier.schemas();
    let path =
        transcript(&earlier.home, "s5.jsonl", &[said("s5", 0, "user", "the gangway is wet")]);
    let refused = earlier.home.run(&["import", path.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("hob stop") && said.contains("try again"), "{said}");
    assert_eq!(earlier.schemas(), before);
}
