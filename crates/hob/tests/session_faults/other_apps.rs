//! One app tries to reach resources of another, on every route, with names that exist. It learns nothing, not
//! even that they exist, and changes nothing.

use std::collections::BTreeMap;

use hob_testkit::wire::{Reply, WireRequest};
use hob_testkit::{HobServer, Random, TestHome, Wire, is_campaign, wait_until};
use serde_json::{Value, json};

use crate::setup::home;

/// A word that is in everything the first app has, and nowhere else.
pub const PLANTED: &str = "planted-violet-harbour";

/// The first app's resources: a session in every state, and a file.
pub struct Estate {
    pub token: String,
    /// By their states.
    pub sessions: BTreeMap<&'static str, String>,
    pub request: String,
    pub file: String,
    pub file_path: String,
}

impl Estate {
    pub fn new(server: &HobServer, home: &TestHome, name: &str) -> Estate {
        let token = home.app(name);
        let client = server.client(&token);
        let body = json!({"agent": "acp", "meta": {"purpose": PLANTED}, "permissions": "ask"});
        let mut sessions = BTreeMap::new();
        for state in ["idle", "running", "asking", "closed"] {
            let id = client.create(&body);
            let command = json!({"command": format!("echo {PLANTED} | tee note.txt")});
            client.ask(&id, &format!("[[say {PLANTED}]] [[tool Bash {command}]]"));
            sessions.insert(state, id);
        }
        client.start_turn(&sessions["running"], &format!("[[say {PLANTED}]] [[hang]]"));
        client.start_turn(&sessions["asking"], &format!("[[permission {PLANTED}]]"));
        let asked = client.wait_for_event(&sessions["asking"], "permission");
        let request = asked["request_id"].as_str().expect("a request").to_owned();
        let path = format!("/sessions/{}", sessions["closed"]);
        assert_eq!(server.call("DELETE", &path, Some(&token), None).status, 200);
        let upload = server.upload(Some(&token), &format!("{PLANTED}.txt"), PLANTED.as_bytes());
        let word = |name: &str| upload.json()[name].as_str().expect("a word").to_owned();
        let (file, file_path) = (word("file_id"), word("path"));
        Estate { token, sessions, request, file, file_path }
    }

    /// Breaks off what runs, so that the server can end at once.
    pub fn settle(&self, server: &HobServer) {
        for state in ["running", "asking"] {
            let path = format!("/sessions/{}/cancel", self.sessions[state]);
            assert_eq!(server.call("POST", &path, Some(&self.token), None).status, 200);
        }
    }

    /// All that can be seen of it, to be compared later.
    pub fn look(&self, server: &HobServer) -> Vec<Value> {
        let see = |id: &String| {
            let seen = server.get(&format!("/sessions/{id}"), Some(&self.token)).json();
            assert_eq!(seen["ok"], true, "{seen}");
            json!([seen, server.client(&self.token).log(id)])
        };
        self.sessions.values().map(see).collect()
    }
}

/// An operation of the API's own description that takes a name of something.
#[derive(Debug)]
struct Operation {
    method: String,
    path: String,
    /// An example of its body.
    body: Option<Value>,
    /// Whether its body may name files.
    takes_files: bool,
}

/// All operations that take a session, a turn, a request, a file or an app.
fn operations(server: &HobServer) -> Vec<Operation> {
    let document = server.get("/openapi.json", None).json();
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let name = schema["$ref"].as_str().unwrap_or_default().rsplit('/').next();
            let schema = &document["components"]["schemas"][name.unwrap_or_default()];
            let takes_files = schema["properties"]["files"].is_object();
            // The console's files and the models belong to no app.
            let of_all = path.starts_with("/assets/") || path.starts_with("/v1/models/");
            if (path.contains('{') && !of_all) || takes_files {
                let body = schema.is_object().then(|| schema["example"].clone());
                let method = method.to_uppercase();
                found.push(Operation { method, path: path.clone(), body, takes_files });
            }
        }
    }
    found
}

fn choose<T: Clone>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize].clone()
}

/// A correct request that names a resource of another app.
struct Trespass {
    method: String,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Option<Value>,
    allowed: &'static [u16],
}

impl Trespass {
    fn new(
        operation: &Operation,
        estate: &Estate,
        own_session: &str,
        random: &mut Random,
    ) -> Trespass {
        let sessions: Vec<&String> = estate.sessions.values().collect();
        let theirs = choose(random, &sessions).clone();
        // After many wrong tokens, /admin refuses more of them for a while.
        let mut allowed: &[u16] =
            if operation.path.starts_with("/admin") { &[401, 404, 429] } else { &[401, 404] };
        let mut body = operation.body.clone();
        let names_file = operation.takes_files && random.below(2) == 0;
        if let Some(body) = body.as_mut().filter(|_| names_file) {
            body["files"] = json!([estate.file]);
        }
        let options = ["yes", "no", "yes-always", "allow_once", "reject_once"];
        if let Some(option) = body.as_mut().and_then(|body| body.get_mut("option")) {
            *option = json!(choose(random, &options));
        }
        let mut id = theirs;
        // An operation without a session in its path is allowed as such, and so is one on a session
        // of one's own; then only the file is another's.
        let own = !operation.path.contains('{') || (names_file && random.below(2) == 0);
        if own && operation.takes_files {
            id = own_session.to_owned();
            body.as_mut().expect("a body")["files"] = json!([estate.file]);
            allowed = &[400];
        }
        let number = choose(random, &["1", "2", "3", "0", "4294967295"]);
        let requests = [estate.request.as_str(), "1", "2"];
        let path = operation
            .path
            .replace("{id}", &id)
            .replace("{n}", number)
            .replace("{request_id}", choose(random, &requests))
            .replace("{call_id}", "toolu_1")
            .replace("{item_id}", "msg_1")
            .replace("{memory_id}", "mem_1")
            .replace("{version_id}", "memver_1")
            .replace("{artifact_id}", "artifact_1")
            .replace("{turn}", &format!("turn_{id}_1"))
            .replace("{app}", "first");
        assert!(!path.contains('{'), "{path} takes something new: teach this test about it");
        let path = match random.below(4) {
            0 if path.ends_with("/events") => format!("{path}?after={}", random.below(10)),
            _ => path,
        };
        let mut headers = Vec::new();
        let all = [
            ("accept", "text/event-stream".to_owned()),
            ("accept", "application/json".to_owned()),
            ("prefer", "respond-async".to_owned()),
            ("last-event-id", random.below(5).to_string()),
            ("idempotency-key", "the-first-apps-key".to_owned()),
        ];
        for header in all {
            if random.below(3) == 0 {
                headers.push(header);
            }
        }
        Trespass { method: operation.method.clone(), path, headers, body, allowed }
    }

    fn try_it(&self, wire: &mut Wire, token: &str) -> Reply {
        let asked = WireRequest {
            method: &self.method,
            path: &self.path,
            token: Some(token),
            headers: self.headers.clone(),
            body: self.body.as_ref().map(Value::to_string),
        };
        let reply =
            wire.call(&asked).unwrap_or_else(|e| panic!("{} {}: {e}", self.method, self.path));
        let what = format!("{} {} {:?} {:?}", self.method, self.path, self.headers, self.body);
        assert!(self.allowed.contains(&reply.status()), "{what}: {reply:?}");
        assert!(!reply.body.contains(PLANTED), "{what}: {reply:?}");
        reply
    }
}

#[test]
fn sessions_and_files_of_another_app_do_not_exist() {
    let count = if is_campaign() { 10_000 } else { 300 };
    let home = home("");
    let server = home.serve();
    let estate = Estate::new(&server, &home, "first");
    let second = home.app("second");
    let own_session = server.client(&second).session();
    server.client(&second).ask(&own_session, "hello");
    // A key of the first app's is no key of the second's.
    let key = [("idempotency-key", "the-first-apps-key")];
    let keyed = server.client(&estate.token).turn_with(&estate.sessions["idle"], &key, "say hello");
    assert_eq!(keyed.status, 200, "{}", keyed.text);
    let before = estate.look(&server);
    let operations = operations(&server);
    assert!(operations.len() >= 12, "{operations:#?}");
    let mut random = Random::new(5);
    let mut wire = Wire::connect(server.address()).unwrap();
    let mut answers: BTreeMap<(String, u16), usize> = BTreeMap::new();
    for _ in 0..count {
        let index = random.below(operations.len() as u64) as usize;
        let operation = &operations[index];
        let trespass = Trespass::new(operation, &estate, &own_session, &mut random);
        // Without a token, or with a wrong one, everything is 401.
        let token = match random.below(20) {
            0 => "hob_nobodys",
            _ => &second,
        };
        let reply = match token {
            "hob_nobodys" => {
                let is_admin = trespass.path.starts_with("/admin");
                let allowed: &[u16] = if is_admin { &[401, 429] } else { &[401] };
                Trespass { allowed, ..trespass }.try_it(&mut wire, token)
            }
            _ => trespass.try_it(&mut wire, token),
        };
        let name = format!("{} {}", operation.method, operation.path);
        *answers.entry((name, reply.status())).or_default() += 1;
        if reply.head.header("connection") == Some("close") {
            wire = Wire::connect(server.address()).unwrap();
        }
    }
    println!("tenants: {count} requests over {} operations:", operations.len());
    for ((operation, status), count) in &answers {
        println!("tenants:   {operation} {status} {count} times");
    }
    assert_eq!(estate.look(&server), before, "nothing has changed");
    // The permission request still waits for an answer.
    let path = format!("/sessions/{}/permissions/{}", estate.sessions["asking"], estate.request);
    let answer = server.post(&path, Some(&estate.token), &json!({"option": "allow_once"}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let done = wait_for_turn(&server, &estate.token, &estate.sessions["asking"], 2);
    assert!(done["text"].as_str().is_some_and(|text| text.contains(": yes")), "{done}");
    assert!(std::fs::read_to_string(&estate.file_path).unwrap().contains(PLANTED));
    let list = server.get("/sessions", Some(&second)).json();
    assert_eq!(list["count"], 1, "{list}");
    estate.settle(&server);
    assert!(server.stop().success());
}

fn wait_for_turn(server: &HobServer, token: &str, id: &str, turn: u64) -> Value {
    wait_until("a turn is over", || {
        let turn = server.get(&format!("/sessions/{id}/turns/{turn}"), Some(token)).json();
        (turn["state"] != "running" && turn["state"] != "queued").then_some(turn)
    })
}

/// Sessions are remembered for their own app only; another app finds nothing of them under any name.
#[test]
fn memory_of_another_app_does_not_exist() {
    let home = home("");
    let server = home.serve();
    let estate = Estate::new(&server, &home, "first");
    let second = home.app("second");
    let tool = |token: &str, name: &str, arguments: Value| -> Value {
        let params = json!({"name": name, "arguments": arguments});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let headers = [
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
        ];
        let reply = server.client(token).call("POST", "/mcp", &headers, &body);
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()["result"].clone()
    };
    let cue = json!({"cue": PLANTED, "project": "*"});
    let turns =
        |token: &str| tool(token, "memory_stats", json!({}))["structuredContent"]["turns"].as_u64();
    // A question and an answer of each session; what runs is not over.
    let all = Some(2 * estate.sessions.len() as u64);
    wait_until("the first app remembers", || (turns(&estate.token) == all).then_some(()));
    let found = tool(&estate.token, "memory_recall", cue.clone()).to_string();
    assert!(found.contains(PLANTED), "{found}");
    let mut tries = vec![
        ("memory_recall", cue),
        ("memory_recall", json!({"cue": "harbour"})),
        ("memory_stats", json!({})),
    ];
    for id in estate.sessions.values() {
        let seen = server.get(&format!("/sessions/{id}"), Some(&estate.token)).json();
        let cwd = seen["cwd"].clone();
        tries.push(("memory_timeline", json!({"session_id": id})));
        tries.push(("memory_timeline", json!({"project": cwd})));
        tries.push(("memory_recall", json!({"cue": "planted", "project": cwd})));
        tries.push(("memory_recall", json!({"cue": "planted", "session_id": id, "project": "*"})));
        tries.push(("memory_forget", json!({"session_id": id})));
    }
    for (name, arguments) in tries {
        let answer = tool(&second, name, arguments.clone()).to_string();
        assert!(!answer.contains(PLANTED), "{name} {arguments}: {answer}");
    }
    assert_eq!(turns(&estate.token), all, "nothing is gone");
    assert_eq!(turns(&second), Some(0));
    estate.settle(&server);
    assert!(server.stop().success());
}
