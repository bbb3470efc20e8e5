//! What the campaigns share: a home with the scripted agent, sessions and their logs.

use std::fs;
use std::io;

use hob_testkit::wire::{Asked, Reply};
use hob_testkit::{HobServer, TestHome, Wire, wait_until};
use serde_json::{Value, json};

/// Whether the full counts are wanted.
pub fn campaign() -> bool {
    std::env::var_os("HOB_CAMPAIGN").is_some()
}

/// A home with the scripted agent over ACP, room for many sessions, and whatever else is to be set.
pub fn home(more: &str) -> TestHome {
    let home = TestHome::new();
    let agent = TestHome::scripted_agent("scripted", "acp", &["acp"]);
    home.configure(&format!("{more}\n[sessions]\nmax_live = 300\n{agent}"));
    home
}

/// Makes a session and returns its name.
#[track_caller]
pub fn session(server: &HobServer, token: &str, more: Value) -> String {
    let mut body = json!({"agent": "scripted"});
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    let answer = server.post("/sessions", Some(token), &body);
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["session_id"].as_str().expect("a name").to_owned()
}

/// Asks and waits for the answer.
#[track_caller]
pub fn turn(server: &HobServer, token: &str, id: &str, prompt: &str) -> Value {
    let body = json!({"prompt": prompt});
    let answer = server.post(&format!("/sessions/{id}/turn"), Some(token), &body);
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

/// Asks and does not wait. Returns the turn's number.
#[track_caller]
pub fn turn_left(server: &HobServer, token: &str, id: &str, prompt: &str) -> u64 {
    let path = format!("/sessions/{id}/turn");
    let reply = call(
        server,
        &Asked {
            method: "POST",
            path: &path,
            token: Some(token),
            headers: vec![("prefer", "respond-async".to_owned())],
            body: Some(json!({"prompt": prompt}).to_string()),
        },
    );
    assert_eq!(reply.status(), 202, "{}", reply.body);
    reply.json()["turn_index"].as_u64().expect("a number")
}

/// One request on a connection of its own.
#[track_caller]
pub fn call(server: &HobServer, asked: &Asked<'_>) -> Reply {
    try_call(server.address(), asked).expect("an answer")
}

pub fn try_call(address: &str, asked: &Asked<'_>) -> io::Result<Reply> {
    Wire::connect(address)?.call(asked)
}

/// The log of a session after a number, all pages.
pub fn log(server: &HobServer, token: &str, id: &str, after: u64) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    loop {
        let last = all.last().and_then(|event| event["seq"].as_u64()).unwrap_or(after);
        let answer = server.get(&format!("/sessions/{id}/events?after={last}"), Some(token));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let page = answer.json();
        all.extend(page["events"].as_array().expect("events").iter().cloned());
        if page["more"] != true {
            return all;
        }
    }
}

/// Waits for an event of this kind, and returns it.
#[track_caller]
pub fn wait_for_event(server: &HobServer, token: &str, id: &str, kind: &str) -> Value {
    wait_until(&format!("an event {kind:?}"), || {
        log(server, token, id, 0).into_iter().find(|event| event["event"] == kind)
    })
}

/// A line of `/proc/PID/status` in MB.
pub fn memory(pid: i32, line: &str) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':'));
    let kilobytes = line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kilobytes.unwrap_or_default() / 1024.0
}
