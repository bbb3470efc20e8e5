//! What the tests of sessions share: a server with the scripted agents, and an app's view of it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hob_testkit::leak::processes_with;
use hob_testkit::server::Answer;
use hob_testkit::{HobServer, TestHome, program, wait_until};
use serde_json::{Value, json};

/// Nothing that is waited for on a connection takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server and an app on it. The server comes first: it ends before its home is removed.
pub struct Api {
    pub server: HobServer,
    pub home: TestHome,
    pub token: String,
}

/// A server whose agents `acp` and `claude` are scripted; `extra` stands at the beginning of
/// `config.toml`.
pub fn api(extra: &str) -> Api {
    let home = TestHome::new();
    configure(&home, extra);
    let token = home.app("tests");
    let server = crate::serve(&home);
    Api { server, home, token }
}

pub fn configure(home: &TestHome, extra: &str) {
    let acp = TestHome::scripted_agent("acp", "acp", &["acp"]);
    let claude = TestHome::scripted_agent("claude", "claude-tui", &[]);
    home.configure(&format!("{extra}\n{acp}{claude}{}", crate::store()));
}

/// A settings table with these lines.
pub fn sessions(lines: &str) -> String {
    format!("[sessions]\n{lines}\n")
}

pub const STREAM: (&str, &str) = ("accept", "text/event-stream");
pub const ASYNC: (&str, &str) = ("prefer", "respond-async");

impl Api {
    /// A request of this app.
    pub fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.call_as(&self.token, method, path, headers, body)
    }

    pub fn call_as(
        &self,
        token: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.server.request(method, path, Some(token), headers, text.as_bytes())
    }

    pub fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], &Value::Null)
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, &[], body)
    }

    /// Makes a session and returns its name.
    pub fn create(&self, body: &Value) -> String {
        self.create_as(&self.token, body)
    }

    pub fn create_as(&self, token: &str, body: &Value) -> String {
        let answer = self.call_as(token, "POST", "/sessions", &[], body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["session_id"].as_str().expect("a name").to_owned()
    }

    /// A session of the scripted ACP agent.
    pub fn session(&self) -> String {
        self.create(&json!({"agent": "acp"}))
    }

    pub fn look(&self, id: &str) -> Value {
        self.get(&format!("/sessions/{id}")).json()
    }

    /// The folder a session works in.
    pub fn workspace(&self, id: &str) -> PathBuf {
        self.look(id)["cwd"].as_str().expect("a folder").into()
    }

    pub fn close(&self, id: &str) -> Answer {
        self.call("DELETE", &format!("/sessions/{id}"), &[], &Value::Null)
    }

    pub fn cancel(&self, id: &str) -> Answer {
        self.post(&format!("/sessions/{id}/cancel"), &Value::Null)
    }

    pub fn turn(&self, id: &str, prompt: &str) -> Answer {
        self.turn_with(id, &[], prompt)
    }

    pub fn turn_with(&self, id: &str, headers: &[(&str, &str)], prompt: &str) -> Answer {
        self.call("POST", &format!("/sessions/{id}/turn"), headers, &json!({"prompt": prompt}))
    }

    /// What the agent said in a turn that has to succeed.
    pub fn said(&self, id: &str, prompt: &str) -> String {
        let answer = self.turn(id, prompt);
        assert_eq!(answer.status, 200, "{prompt}: {}", answer.text);
        answer.json()["text"].as_str().expect("a text").to_owned()
    }

    /// Lets a shell command run in the agent and returns what it printed.
    pub fn shell(&self, id: &str, command: &str) -> String {
        let prompt = format!("[[tool Bash {}]] [[say done]]", json!({"command": command}));
        let answer = self.turn(id, &prompt);
        assert_eq!(answer.status, 200, "{command}: {}", answer.text);
        let events = answer.json()["events"].clone();
        let mut updates = events.as_array().unwrap().iter().map(|e| &e["params"]["update"]);
        let update = updates.find(|update| update["sessionUpdate"] == "tool_call_update");
        let text = update.expect("a result")["content"][0]["content"]["text"].as_str();
        text.expect("its text").to_owned()
    }

    /// Asks for a turn and does not wait for it.
    pub fn background(&self, id: &str, prompt: &str) -> u64 {
        let answer = self.turn_with(id, &[ASYNC], prompt);
        assert_eq!(answer.status, 202, "{}", answer.text);
        answer.json()["turn_index"].as_u64().expect("a number")
    }

    /// A turn as it is now.
    pub fn at(&self, id: &str, turn: u64) -> Value {
        let answer = self.get(&format!("/sessions/{id}/turns/{turn}"));
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    }

    /// A turn once it is in this state.
    pub fn wait_for(&self, id: &str, turn: u64, state: &str) -> Value {
        let mut last = Value::Null;
        wait_until(&format!("turn {turn} is {state}"), || {
            last = self.at(id, turn);
            (last["state"] == state).then(|| last.clone())
        })
    }

    /// Starts a turn that waits for the file `go`, and returns once the agent is at it.
    pub fn gated(&self, id: &str) -> u64 {
        let turn = self.background(id, "[[say begun]] [[until go]] [[say gone on]]");
        wait_until("the turn has begun", || {
            let at = self.at(id, turn);
            (!at["events"].as_array().unwrap().is_empty()).then_some(())
        });
        turn
    }

    /// Lets a gated turn go on.
    pub fn let_go(&self, id: &str) {
        std::fs::write(self.workspace(id).join("go"), "").unwrap();
    }

    /// The whole log.
    pub fn log(&self, id: &str) -> Vec<Value> {
        let answer = self.get(&format!("/sessions/{id}/events"));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let body = answer.json();
        assert_eq!((&body["ok"], &body["more"]), (&json!(true), &json!(false)));
        body["events"].as_array().expect("a list").clone()
    }

    /// The kinds of all events but messages.
    pub fn audit(&self, id: &str) -> Vec<String> {
        let kinds = self.log(id).into_iter().map(|e| e["event"].as_str().unwrap().to_owned());
        kinds.filter(|kind| kind != "message").collect()
    }

    /// Opens a stream.
    pub fn stream(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Sse {
        Sse::open(self.server.address(), &self.token, method, path, headers, body)
    }

    /// A turn as a stream.
    pub fn stream_turn(&self, id: &str, prompt: &str) -> Sse {
        let body = json!({"prompt": prompt});
        self.stream("POST", &format!("/sessions/{id}/turn"), &[STREAM], &body)
    }

    /// The log as a stream, from some event on.
    pub fn follow(&self, id: &str, after: u64) -> Sse {
        let last = after.to_string();
        let headers = [STREAM, ("last-event-id", last.as_str())];
        self.stream("GET", &format!("/sessions/{id}/events"), &headers, &Value::Null)
    }

    /// Agents and what they started; the server itself and the shims aside.
    pub fn processes(&self) -> Vec<i32> {
        processes_of(&self.home)
    }

    pub fn wait_for_no_process(&self) {
        wait_until("no process of an agent is left", || self.processes().is_empty().then_some(()));
    }

    /// The same home with the next server.
    pub fn after(self, end: impl FnOnce(HobServer)) -> Api {
        let Api { server, home, token } = self;
        end(server);
        let server = crate::serve(&home);
        Api { server, home, token }
    }

    /// Where the scripted agent keeps its conversations.
    pub fn conversations(&self) -> PathBuf {
        self.home.user_home().join(".hob-scripted")
    }
}

pub fn processes_of(home: &TestHome) -> Vec<i32> {
    let hob = program("hob").display().to_string();
    let mut found = processes_with(&format!("HOME={}", home.user_home().display()));
    found.retain(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).next() != Some(hob.as_bytes())
    });
    found
}

/// An error has the one shape, this status and code, and these words.
#[track_caller]
pub fn assert_error(answer: &Answer, status: u16, code: &str, words: &str) {
    assert_eq!(answer.status, status, "{}", answer.text);
    let body = answer.json();
    assert_eq!(body["ok"], false, "{}", answer.text);
    assert_eq!(body["code"], code, "{}", answer.text);
    assert!(body["error"].as_str().unwrap().contains(words), "{}", answer.text);
}

/// The numbers of a log have no gap and begin with 1.
#[track_caller]
pub fn assert_gapless(log: &[Value]) {
    let numbers: Vec<u64> = log.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=log.len() as u64).collect::<Vec<u64>>());
}

/// The permission bits of a file or folder.
pub fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct SseEvent {
    pub id: u64,
    pub event: String,
    pub data: String,
}

impl SseEvent {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|_| panic!("{self:?}"))
    }
}

/// An open stream of events. Dropping it hangs up.
pub struct Sse {
    reader: BufReader<TcpStream>,
    pub status: u16,
    pub head: String,
}

impl Sse {
    pub fn open(
        address: &str,
        token: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Sse {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let headers: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        // The body of HTTP/1.0 is what comes until the end, in no pieces.
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n{headers}\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).expect("a head"), 0, "{head}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Sse { reader, status, head: head.to_lowercase() }
    }

    /// A stream of the admin's, whose events have no numbers.
    pub fn open_as(address: &str, token: &str, path: &str) -> Sse {
        let stream = Sse::open(address, token, "GET", path, &[STREAM], &Value::Null);
        assert_eq!(stream.status, 200, "{}", stream.head);
        stream
    }

    /// The next event of one.
    pub fn next_named(&mut self) -> (String, Value) {
        let (mut event, mut data) = (String::new(), String::new());
        let since = Instant::now();
        loop {
            assert!(since.elapsed() < PATIENCE, "the stream says nothing and does not end");
            let mut line = String::new();
            let count = self.reader.read_line(&mut line).expect("the stream goes on");
            assert_ne!(count, 0, "the stream ended");
            let line = line.trim_end_matches(['\r', '\n']);
            if line.is_empty() && !data.is_empty() {
                return (event, serde_json::from_str(&data).expect("JSON"));
            }
            match line.split_once(':') {
                Some(("event", value)) => event = value.trim_start().to_owned(),
                Some(("data", value)) => data.push_str(value.trim_start()),
                _ => {}
            }
        }
    }

    /// All events until this one, which is the last.
    pub fn until(&mut self, wanted: impl Fn(&SseEvent) -> bool) -> Vec<SseEvent> {
        let mut events = Vec::new();
        loop {
            let event = self.next().unwrap_or_else(|| panic!("the stream ended: {events:?}"));
            let last = wanted(&event);
            events.push(event);
            if last {
                return events;
            }
        }
    }
}

impl Iterator for Sse {
    type Item = SseEvent;

    fn next(&mut self) -> Option<SseEvent> {
        let (mut id, mut event, mut data) = (None, String::new(), Vec::new());
        let since = Instant::now();
        loop {
            // Signs of life are no events.
            assert!(since.elapsed() < PATIENCE, "the stream says nothing and does not end");
            let mut line = String::new();
            if self.reader.read_line(&mut line).expect("the stream goes on or ends") == 0 {
                return None;
            }
            let line = line.trim_end_matches(['\r', '\n']);
            match line
                .split_once(':')
                .map(|(name, value)| (name, value.strip_prefix(' ').unwrap_or(value)))
            {
                None if line.is_empty() && data.is_empty() => {}
                None if line.is_empty() => {
                    let id = id.unwrap_or_else(|| panic!("no id: {event} {data:?}"));
                    return Some(SseEvent { id, event, data: data.join("\n") });
                }
                Some(("id", value)) => id = value.parse().ok(),
                Some(("event", value)) => event = value.to_owned(),
                Some(("data", value)) => data.push(value.to_owned()),
                _ => {}
            }
        }
    }
}
