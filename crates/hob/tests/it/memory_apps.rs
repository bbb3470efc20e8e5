//! The memory as apps see it: their own sessions, over HTTP and over the socket.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use hob_testkit::{TestHome, program};
use serde_json::{Value, json};

use crate::memory_mcp::two_projects;
use crate::memory_setup::*;

/// Over HTTP an app speaks for itself; the owner's memory and another app's are not there.
#[test]
fn mcp_over_http_shows_an_app_only_its_memory() {
    let (server, home, alpha, _) = two_projects();
    let tokens = [home.app("one"), home.app("two")];
    let post = |token: Option<&str>, method: &str, params: Value| {
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let authorization = token.map(|token| format!("authorization: Bearer {token}\r\n"));
        write!(
            stream,
            "POST /mcp HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\n{}content-length: {}\r\n\r\n{body}",
            authorization.unwrap_or_default(),
            body.len()
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap();
        (status.to_owned(), serde_json::from_str::<Value>(body).unwrap_or_default())
    };
    let handshake = json!({"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
    assert_eq!(post(None, "initialize", handshake.clone()).0, "401");
    assert_eq!(post(Some("hob_wrong"), "tools/list", json!({})).0, "401");
    let (status, answer) = post(Some(&tokens[0]), "initialize", handshake);
    assert!(status == "200" && answer["result"]["serverInfo"].is_object(), "{status} {answer}");
    let call = |token: &str, name: &str, arguments: Value| {
        let (_, answer) =
            post(Some(token), "tools/call", json!({"name": name, "arguments": arguments}));
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    };
    for (n, token) in tokens.iter().enumerate() {
        let note = json!({"text": format!("the crane of app {n} is blue"), "project": alpha});
        let captured = call(token, "memory_capture", note);
        assert_eq!(captured["structuredContent"]["duplicate"], false, "{captured}");
    }
    for (n, token) in tokens.iter().enumerate() {
        for project in [json!("*"), json!(alpha), Value::Null] {
            let arguments = json!({"cue": "crane harbour lighthouse", "project": project});
            let result = call(token, "memory_recall", arguments);
            let found = texts(result["structuredContent"]["hits"].as_array().unwrap());
            assert_eq!(found, [format!("the crane of app {n} is blue")], "{project}");
        }
        assert_eq!(call(token, "memory_stats", json!({}))["structuredContent"]["turns"], 1);
        for name in ["alpha", "beta"] {
            let turns = call(token, "memory_timeline", json!({"session_id": name}));
            assert_eq!(turns["structuredContent"]["turns"], json!([]));
            let forgotten = call(token, "memory_forget", json!({"session_id": name}));
            assert_eq!(forgotten["structuredContent"]["count"], 0);
        }
    }
    // An app forgets and restores its own.
    let recall = || {
        let result = call(&tokens[0], "memory_recall", json!({"cue": "crane", "project": "*"}));
        result["structuredContent"]["hits"].as_array().unwrap().clone()
    };
    let id = recall()[0]["record_id"].clone();
    for (undo, left) in [(false, 0), (true, 1)] {
        let arguments = json!({"record_id": id, "undo": undo});
        let other = call(&tokens[1], "memory_forget", arguments.clone());
        assert_eq!(other["structuredContent"]["count"], 0);
        let own = call(&tokens[0], "memory_forget", arguments);
        assert_eq!(own["structuredContent"]["count"], 1);
        assert_eq!(recall().len(), left);
    }
    let owned = export(&home);
    for row in &owned {
        let id = &row["record_id"];
        let corrected = call(&tokens[0], "memory_correct", json!({"record_id": id, "text": "x"}));
        assert_eq!(corrected["isError"], true, "{corrected}");
        let forgotten = call(&tokens[0], "memory_forget", json!({"record_id": id}));
        assert_eq!(forgotten["structuredContent"]["count"], 0);
    }
    let mut owner = Bridge::new(&home, &alpha);
    let found = owner.recalled(json!({"cue": "crane", "project": "*"}));
    assert!(
        !found.iter().any(|text| text.contains("app ")),
        "nor does the owner's recall mix: {found:?}"
    );
    assert_eq!(export(&home).len(), owned.len());
}

/// An agent that an app runs can reach the socket like anybody else of this user; through it, too, it
/// speaks for its app.
#[test]
fn agent_of_an_app_is_not_the_owner_on_the_socket() {
    let home = TestHome::new();
    home.configure(&TestHome::scripted_agent("claude", "claude-tui", &[]));
    let token = home.app("tests");
    let server = home.serve();
    let path = transcript(&home, "t.jsonl", &[said("s", 0, "user", "the owners own words")]);
    assert_eq!(capture(&home, &["--cwd", "/"], &path)["inserted"], 1);
    assert_eq!(
        recall(&home, &home.user_home(), &["owners", "--project", "*"])["hits"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let (hob, hob_home) = (program("hob"), home.hob_home());
    let run = |name: &str, command: &str| {
        let out = home.user_home().join(name);
        let command = format!(
            "HOB_HOME={} {} {command} > {} 2>&1",
            hob_home.display(),
            hob.display(),
            out.display()
        );
        let prompt = format!("[[tool Bash {}]] [[say done]]", json!({"command": command}));
        let answer = server.post("/run", Some(&token), &json!({"prompt": prompt}));
        assert_eq!(answer.status, 200, "{}", answer.text);
        fs::read_to_string(out).unwrap_or_default()
    };
    let stolen = run("stolen", "recall --json --project '*' owners");
    assert!(!stolen.contains("own words"), "an app's agent reads the owner's memory: {stolen}");
    let forgotten = run("forgotten", "forget --json --session-id s");
    assert_eq!(
        exported_texts(&home),
        ["the owners own words"],
        "nor does it forget it: {forgotten}"
    );
    let started = run("started", "session-start --cwd /");
    assert!(!started.contains("own words"), "nor is it told at its start: {started}");
}
