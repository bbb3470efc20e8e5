//! The memory of sessions, and how their agents reach it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use hob_testkit::{program, wait_until};
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::{Backend, backend_tests};
use crate::memory_setup::texts;

backend_tests!([file, cluster]: [
    turn_is_remembered_for_its_app_only,
    interrupted_turn_is_remembered_as_far_as_it_went,
    secrets_of_a_turn_are_masked_in_the_memory,
    mcp_servers_reach_the_agent,
]);

impl Api {
    /// Calls a tool of `/mcp` as an app.
    pub fn tool(&self, token: &str, name: &str, arguments: Value) -> Value {
        let params = json!({"name": name, "arguments": arguments});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let body = body.to_string();
        let mut stream = TcpStream::connect(self.server.address()).unwrap();
        write!(
            stream,
            "POST /mcp HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nauthorization: Bearer {token}\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        let answer: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{text}"));
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"]["structuredContent"].clone()
    }

    pub fn recalled(&self, token: &str, cue: &str) -> Vec<String> {
        let found = self.tool(token, "memory_recall", json!({"cue": cue, "project": "*"}));
        let mut found = texts(found["hits"].as_array().unwrap());
        found.sort();
        found
    }

    pub fn turns_of(&self, token: &str) -> u64 {
        self.tool(token, "memory_stats", json!({}))["turns"].as_u64().unwrap()
    }
}

/// A session's turns are stored once, in the memory of its app only.
fn turn_is_remembered_for_its_app_only(backend: Backend) {
    let api = backend.api("");
    let other = api.home.app("other");
    let id = api.session();
    let prompt = "where is the crane? [[say the crane stands in the harbour]]";
    assert_eq!(api.turn(&id, prompt).status, 200);
    wait_until("both are remembered", || (api.turns_of(&api.token) == 2).then_some(()));
    let found = api.recalled(&api.token, "crane");
    assert_eq!(found, ["the crane stands in the harbour", prompt]);
    assert_eq!(api.recalled(&other, "crane"), [""; 0]);
    assert_eq!(api.turns_of(&other), 0);
    let line = api.tool(&api.token, "memory_timeline", json!({"session_id": id}));
    let roles: Vec<&Value> =
        line["turns"].as_array().unwrap().iter().map(|turn| &turn["role"]).collect();
    assert_eq!(roles, ["user", "assistant"], "under the session's name, in order");
    let owner = api.home.run(&["recall", "--json", "--project", "*", "crane"]);
    assert!(!String::from_utf8_lossy(&owner.stdout).contains("harbour"), "nor the owner's");
    // A repeat is no turn, and a restart captures nothing twice.
    let key = [("idempotency-key", "k")];
    assert_eq!(api.turn_with(&id, &key, "more [[say words]]").status, 200);
    assert_eq!(api.turn_with(&id, &key, "more [[say words]]").status, 200);
    let api = api.restart_after(|server| server.kill());
    wait_until("four turns are remembered", || (api.turns_of(&api.token) == 4).then_some(()));
    let api = api.restart_after(|server| assert_eq!(server.stop().code(), Some(0)));
    assert_eq!(api.turns_of(&api.token), 4);
}

/// A prompt is remembered also when its answer never came.
fn interrupted_turn_is_remembered_as_far_as_it_went(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    assert_eq!(api.turn(&id, "where is the lantern? [[say half an answer]] [[crash]]").status, 502);
    wait_until("it is remembered", || (api.turns_of(&api.token) == 2).then_some(()));
    assert!(api.recalled(&api.token, "half answer").contains(&"half an answer".to_owned()));
}

/// Secrets in a conversation are masked before they are stored.
fn secrets_of_a_turn_are_masked_in_the_memory(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    assert_eq!(api.turn(&id, &format!("the lantern token is {secret}")).status, 200);
    wait_until("it is remembered", || (api.turns_of(&api.token) == 2).then_some(()));
    let found = api.recalled(&api.token, "lantern token");
    assert!(!found.is_empty() && found.iter().all(|text| !text.contains(secret)), "{found:?}");
}

/// The word `memory` gives the agent Hob's own memory; other servers are passed on.
fn mcp_servers_reach_the_agent(backend: Backend) {
    let api = backend.api("");
    let servers = json!({"own": "memory", "files": {"command": "mcp-files", "args": ["/w"],
        "env": {"A": "b"}}, "far": {"type": "http", "url": "http://127.0.0.1:9/mcp",
        "headers": {"h": "v"}}});
    let id = api.create(&json!({"agent": "acp", "mcp_servers": servers}));
    assert_eq!(api.turn(&id, "hi").status, 200);
    let file = fs::read_dir(api.conversations()).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(file).unwrap();
    let begun: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let given = begun["mcpServers"].as_array().unwrap();
    let named = |name: &str| given.iter().find(|server| server["name"] == name).unwrap();
    assert_eq!(given.len(), 3);
    assert_eq!(named("files")["env"], json!([{"name": "A", "value": "b"}]));
    assert_eq!(named("far")["headers"], json!([{"name": "h", "value": "v"}]));
    let own = named("own");
    assert_eq!(own["args"], json!(["mcp"]));
    assert_eq!(own["command"], program("hob").display().to_string());
    assert!(!text.contains(&api.token), "no token is given away");
    // Without any there is none.
    let plain = api.session();
    assert_eq!(api.turn(&plain, "hi").status, 200);
    // It works for the agent as it was given, and is its app's.
    api.tool(&api.token, "memory_capture", json!({"text": "the lantern is green"}));
    let other = api.home.app("other");
    api.tool(&other, "memory_capture", json!({"text": "the lantern is red"}));
    let variables: String = own["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| {
            format!("{}={} ", pair["name"].as_str().unwrap(), pair["value"].as_str().unwrap())
        })
        .collect();
    let handshake = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params":
        {"protocolVersion": "2025-03-26", "capabilities": {},
            "clientInfo": {"name": "t", "version": "0"}}});
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params":
        {"name": "memory_recall", "arguments": {"cue": "lantern", "project": "*"}}});
    let input = format!("{handshake}\n{ready}\n{call}\n");
    fs::write(api.workspace(&id).join("input"), input).unwrap();
    let command = format!(
        "(cat input; sleep 1) | {variables}{} mcp 2>&1 | tail -n 1",
        own["command"].as_str().unwrap()
    );
    let answer = api.shell(&id, &command);
    assert!(answer.contains("the lantern is green") && !answer.contains("is red"), "{answer}");
}

/// A hit says whose words it has: a note may be an agent's own, and a past transcript may be anybody's.
#[test]
fn hit_says_whose_words_it_has() {
    let api = api("");
    let origins = |cue: &str| -> Vec<(String, String)> {
        let found = api.tool(&api.token, "memory_recall", json!({"cue": cue, "project": "*"}));
        let hits = found["hits"].as_array().unwrap().iter();
        let hits = hits.filter(|hit| hit["text"].as_str().unwrap().contains(cue));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        hits.map(|hit| (text(&hit["role"]), text(&hit["origin"]))).collect()
    };
    api.tool(&api.token, "memory_capture", json!({"text": "The heron nests at pier nine."}));
    assert_eq!(origins("heron"), [("user".to_owned(), "note of tests".to_owned())]);
    let id = api.session();
    api.ask(&id, "the crane is at pier two [[say the crane is noted]]");
    let found = wait_until("the turn is remembered", || {
        let mut found = origins("crane");
        found.sort();
        (found.len() == 2).then_some(found)
    });
    let of = |role: &str, origin: &str| (role.to_owned(), origin.to_owned());
    assert_eq!(found, [of("assistant", "agent"), of("user", "user")]);
    let path = api.home.user_home().join("past.jsonl");
    let line = json!({"type": "user", "uuid": "u", "sessionId": "s", "cwd": "/w",
        "timestamp": "2026-01-01T00:00:00Z", "message": {"role": "user", "content": "an osprey at pier one"}});
    fs::write(&path, format!("{line}\n")).unwrap();
    assert!(api.home.run(&["import", path.to_str().unwrap()]).status.success());
    let owner = api.home.run(&["recall", "--json", "--project", "*", "osprey"]);
    let owner: Value = serde_json::from_slice(&owner.stdout).unwrap();
    assert_eq!(owner["hits"][0]["origin"], "import", "{owner}");
    let shown = api.home.run(&["recall", "--project", "*", "osprey"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("user (import)"), "{shown:?}");
}
