//! An app's client of Hob's HTTP API, for one server or for the nodes of a cluster.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::http::{self, Answer};
use crate::random::Random;
use crate::wait::{wait_until, wait_until_ok};
use crate::wire::{Head, StreamEvent, Wire, WireRequest};

/// Asks for a turn as a stream of events.
pub const STREAM: (&str, &str) = ("accept", "text/event-stream");
/// Asks for a turn that goes on after the answer.
pub const ASYNC: (&str, &str) = ("prefer", "respond-async");

/// An app's view of one or several nodes. Every request goes to one of them, chosen at random.
pub struct Client {
    pub token: String,
    /// `127.0.0.1:PORT` of every node.
    addresses: Vec<String>,
    choice: Mutex<Random>,
}

impl Client {
    /// `seed` decides which node gets which request.
    pub fn new(addresses: Vec<String>, token: &str, seed: u64) -> Client {
        assert!(!addresses.is_empty(), "a client needs a server");
        Client { token: token.to_owned(), addresses, choice: Mutex::new(Random::new(seed)) }
    }

    /// Returns a client of the same nodes with another token.
    pub fn with_token(&self, token: &str) -> Client {
        Client::new(self.addresses.clone(), token, self.choose(1 << 32) + 1)
    }

    fn choose(&self, count: u64) -> u64 {
        self.choice.lock().unwrap_or_else(PoisonError::into_inner).below(count)
    }

    /// Returns the address of a node, chosen at random.
    pub fn address(&self) -> &str {
        &self.addresses[self.choose(self.addresses.len() as u64) as usize]
    }

    // Requests.

    #[track_caller]
    pub fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.try_call(method, path, headers, body).expect("the server answers")
    }

    /// Sends a request that may fail because the node does not answer. A `null` body is none.
    pub fn try_call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Result<Answer, ureq::Error> {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let url = format!("http://{}{path}", self.address());
        http::request(method, &url, Some(&self.token), headers, text.as_bytes())
    }

    /// Sends a request with another token.
    #[track_caller]
    pub fn call_as(
        &self,
        token: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        self.with_token(token).call(method, path, headers, body)
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], &Value::Null)
    }

    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, &[], body)
    }

    #[track_caller]
    pub fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, &[], &Value::Null)
    }

    /// Opens a stream of events.
    #[track_caller]
    pub fn stream(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> EventStream {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let body = (!body.is_null()).then(|| body.to_string());
        let mut wire = Wire::connect(self.address()).expect("the server accepts a connection");
        wire.ask(&WireRequest { method, path, token: Some(&self.token), headers, body })
            .expect("the server takes the request");
        let head = wire.head().expect("the server answers");
        EventStream { head, events: Box::new(wire.events()) }
    }

    // Sessions.

    /// Creates a session and returns its id.
    #[track_caller]
    pub fn create(&self, body: &Value) -> String {
        let answer = self.post("/sessions", body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["session_id"].as_str().expect("a session_id").to_owned()
    }

    /// Creates a session of another app and returns its id.
    #[track_caller]
    pub fn create_as(&self, token: &str, body: &Value) -> String {
        self.with_token(token).create(body)
    }

    /// Creates a session of the scripted ACP agent and returns its id.
    #[track_caller]
    pub fn session(&self) -> String {
        self.create(&json!({"agent": "acp"}))
    }

    /// Returns what `GET /sessions/{id}` answers.
    #[track_caller]
    pub fn describe(&self, id: &str) -> Value {
        self.get(&format!("/sessions/{id}")).json()
    }

    /// Returns the folder that a session works in.
    #[track_caller]
    pub fn workspace(&self, id: &str) -> PathBuf {
        let session = self.describe(id);
        session["cwd"].as_str().unwrap_or_else(|| panic!("no cwd: {session}")).into()
    }

    #[track_caller]
    pub fn close(&self, id: &str) -> Answer {
        self.delete(&format!("/sessions/{id}"))
    }

    #[track_caller]
    pub fn cancel(&self, id: &str) -> Answer {
        self.post(&format!("/sessions/{id}/cancel"), &Value::Null)
    }

    // Turns.

    /// Runs a turn and waits for its answer.
    #[track_caller]
    pub fn turn(&self, id: &str, prompt: &str) -> Answer {
        self.turn_with(id, &[], prompt)
    }

    #[track_caller]
    pub fn turn_with(&self, id: &str, headers: &[(&str, &str)], prompt: &str) -> Answer {
        self.call("POST", &format!("/sessions/{id}/turn"), headers, &json!({"prompt": prompt}))
    }

    /// Runs a turn that has to succeed and returns the agent's text.
    #[track_caller]
    pub fn ask(&self, id: &str, prompt: &str) -> String {
        let answer = self.turn(id, prompt);
        assert_eq!(answer.status, 200, "{prompt}: {}", answer.text);
        answer.json()["text"].as_str().expect("a text").to_owned()
    }

    /// Runs a shell command in the agent and returns what it printed.
    #[track_caller]
    pub fn shell(&self, id: &str, command: &str) -> String {
        let prompt = format!("[[tool Bash {}]] [[say done]]", json!({"command": command}));
        let answer = self.turn(id, &prompt);
        assert_eq!(answer.status, 200, "{command}: {}", answer.text);
        let events = answer.json()["events"].clone();
        let mut updates = events.as_array().unwrap().iter().map(|e| &e["params"]["update"]);
        let update = updates.find(|update| update["sessionUpdate"] == "tool_call_update");
        let text = update.expect("a tool result")["content"][0]["content"]["text"].as_str();
        text.expect("a text").to_owned()
    }

    /// Starts a turn without waiting for it and returns its number.
    #[track_caller]
    pub fn start_turn(&self, id: &str, prompt: &str) -> u64 {
        let answer = self.turn_with(id, &[ASYNC], prompt);
        assert_eq!(answer.status, 202, "{}", answer.text);
        answer.json()["turn_index"].as_u64().expect("a turn_index")
    }

    /// Returns a turn as it is now.
    #[track_caller]
    pub fn get_turn(&self, id: &str, turn: u64) -> Value {
        let answer = self.get(&format!("/sessions/{id}/turns/{turn}"));
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    }

    /// Waits until a turn is in `state` and returns it.
    #[track_caller]
    pub fn wait_for_turn(&self, id: &str, turn: u64, state: &str) -> Value {
        wait_until_ok(&format!("turn {turn} is {state}"), || {
            let turn = self.get_turn(id, turn);
            if turn["state"] == state { Ok(turn) } else { Err(turn) }
        })
    }

    /// Starts a turn that waits for the file `go`, and returns once the agent has said its first words.
    #[track_caller]
    pub fn start_gated_turn(&self, id: &str) -> u64 {
        let turn = self.start_turn(id, "[[say begun]] [[until go]] [[say gone on]]");
        wait_until("the turn has begun", || {
            (self.get_turn(id, turn)["events"] != json!([])).then_some(())
        });
        turn
    }

    /// Lets a gated turn go on.
    #[track_caller]
    pub fn open_gate(&self, id: &str) {
        std::fs::write(self.workspace(id).join("go"), "").expect("the file `go`");
    }

    /// Runs a turn as a stream.
    #[track_caller]
    pub fn stream_turn(&self, id: &str, prompt: &str) -> EventStream {
        let body = json!({"prompt": prompt});
        self.stream("POST", &format!("/sessions/{id}/turn"), &[STREAM], &body)
    }

    // Events.

    /// Returns the whole log of a session.
    #[track_caller]
    pub fn log(&self, id: &str) -> Vec<Value> {
        self.log_after(id, 0)
    }

    /// Returns all events of a session after `last`, page by page.
    #[track_caller]
    pub fn log_after(&self, id: &str, last: u64) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let last = all.last().and_then(|event| event["seq"].as_u64()).unwrap_or(last);
            let answer = self.get(&format!("/sessions/{id}/events?after={last}"));
            assert_eq!(answer.status, 200, "{}", answer.text);
            let page = answer.json();
            assert_eq!(page["ok"], true, "{}", answer.text);
            all.extend(page["events"].as_array().expect("events").iter().cloned());
            if page["more"] != true {
                return all;
            }
        }
    }

    /// Returns the kinds of all events that are not messages.
    #[track_caller]
    pub fn audit_kinds(&self, id: &str) -> Vec<String> {
        let kinds = self.log(id).into_iter().map(|e| e["event"].as_str().unwrap().to_owned());
        kinds.filter(|kind| kind != "message").collect()
    }

    /// Waits for an event of this kind and returns it.
    #[track_caller]
    pub fn wait_for_event(&self, id: &str, kind: &str) -> Value {
        wait_until(&format!("an event {kind:?}"), || {
            self.log(id).into_iter().find(|event| event["event"] == kind)
        })
    }

    /// Follows the log of a session as a stream, after `last`.
    #[track_caller]
    pub fn follow(&self, id: &str, last: u64) -> EventStream {
        let last = last.to_string();
        let headers = [STREAM, ("last-event-id", last.as_str())];
        self.stream("GET", &format!("/sessions/{id}/events"), &headers, &Value::Null)
    }
}

/// An open stream of events. Dropping it closes the connection.
pub struct EventStream {
    pub head: Head,
    events: Box<dyn Iterator<Item = StreamEvent> + Send>,
}

impl EventStream {
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// Returns all events up to the first that is `last`, which has to come.
    #[track_caller]
    pub fn until(&mut self, last: impl Fn(&StreamEvent) -> bool) -> Vec<StreamEvent> {
        let mut events = Vec::new();
        loop {
            let event = self.next().unwrap_or_else(|| panic!("the stream ended: {events:?}"));
            let is_last = last(&event);
            events.push(event);
            if is_last {
                return events;
            }
        }
    }
}

impl Iterator for EventStream {
    type Item = StreamEvent;

    fn next(&mut self) -> Option<StreamEvent> {
        self.events.next()
    }
}

/// Asserts an error answer: its shape, status, code, and a part of its text.
#[track_caller]
pub fn assert_error(answer: &Answer, status: u16, code: &str, part: &str) {
    assert_eq!(answer.status, status, "{}", answer.text);
    let body = answer.json();
    assert_eq!(body["ok"], false, "{}", answer.text);
    assert_eq!(body["code"], code, "{}", answer.text);
    assert!(body["error"].as_str().unwrap().contains(part), "{}", answer.text);
}

/// Asserts that the numbers of a log begin with 1 and have no gap.
#[track_caller]
pub fn assert_gapless(log: &[Value]) {
    let numbers: Vec<u64> = log.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=log.len() as u64).collect::<Vec<u64>>());
}
