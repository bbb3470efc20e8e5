//! What the tests of clusters share: a cluster with the scripted agents, and requests to a node that is said.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use hob_testkit::wire::{Asked, Reply, StreamEvent};
use hob_testkit::{Cluster, ClusterOptions, Postgres, TestHome, Wire, wait_until};
use serde_json::{Value, json};

/// Whether the full counts are wanted.
pub fn campaign() -> bool {
    std::env::var_os("HOB_CAMPAIGN").is_some()
}

/// One database server for all tests that do it no harm; it ends with this process.
pub fn postgres() -> &'static Arc<RwLock<Postgres>> {
    static SERVER: OnceLock<Arc<RwLock<Postgres>>> = OnceLock::new();
    SERVER.get_or_init(|| Arc::new(RwLock::new(Postgres::start())))
}

/// Held by a test that needs the machine for itself.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nodes whose agents `acp` and `claude` are scripted; `more` stands at the beginning of `config.toml`.
pub fn options(nodes: usize, more: &str) -> ClusterOptions {
    let acp = TestHome::scripted_agent("acp", "acp", &["acp"]);
    let claude = TestHome::scripted_agent("claude", "claude-tui", &[]);
    ClusterOptions {
        nodes,
        lease_secs: 2,
        config: format!("{more}\n{acp}{claude}"),
        apart: false,
        proxied: false,
    }
}

/// A cluster and an app on it.
pub struct Nodes {
    pub cluster: Cluster,
    pub token: String,
}

/// A cluster on the common database server.
pub fn nodes(options: &ClusterOptions) -> Nodes {
    let cluster = Cluster::on(postgres(), options);
    let token = cluster.app("tests");
    Nodes { cluster, token }
}

pub const ASYNC: (&str, &str) = ("prefer", "respond-async");
pub const STREAM: (&str, &str) = ("accept", "text/event-stream");

impl Nodes {
    /// A request of this app to one node.
    #[track_caller]
    pub fn call(
        &self,
        node: usize,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Reply {
        self.try_call(node, &self.token, method, path, headers, body).expect("an answer")
    }

    pub fn try_call(
        &self,
        node: usize,
        token: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> io::Result<Reply> {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let body = (!body.is_null()).then(|| body.to_string());
        let asked = Asked { method, path, token: Some(token), headers, body };
        Wire::connect(&self.cluster.address(node))?.call(&asked)
    }

    #[track_caller]
    pub fn get(&self, node: usize, path: &str) -> Reply {
        self.call(node, "GET", path, &[], &Value::Null)
    }

    #[track_caller]
    pub fn post(&self, node: usize, path: &str, body: &Value) -> Reply {
        self.call(node, "POST", path, &[], body)
    }

    /// Makes a session on a node.
    #[track_caller]
    pub fn create(&self, node: usize, body: &Value) -> String {
        let reply = self.post(node, "/sessions", body);
        assert_eq!(reply.status(), 200, "{}", reply.body);
        reply.json()["session_id"].as_str().expect("a name").to_owned()
    }

    /// A session of the scripted ACP agent, made on a node.
    #[track_caller]
    pub fn session(&self, node: usize) -> String {
        self.create(node, &json!({"agent": "acp"}))
    }

    #[track_caller]
    pub fn turn(&self, node: usize, id: &str, headers: &[(&str, &str)], prompt: &str) -> Reply {
        let body = json!({"prompt": prompt});
        self.call(node, "POST", &format!("/sessions/{id}/turn"), headers, &body)
    }

    /// What the agent said in a turn that has to succeed.
    #[track_caller]
    pub fn said(&self, node: usize, id: &str, prompt: &str) -> String {
        let reply = self.turn(node, id, &[], prompt);
        assert_eq!(reply.status(), 200, "{prompt}: {}", reply.body);
        reply.json()["text"].as_str().expect("a text").to_owned()
    }

    /// Asks for a turn and does not wait for it.
    #[track_caller]
    pub fn background(&self, node: usize, id: &str, prompt: &str) -> u64 {
        let reply = self.turn(node, id, &[ASYNC], prompt);
        assert_eq!(reply.status(), 202, "{}", reply.body);
        reply.json()["turn_index"].as_u64().expect("a number")
    }

    /// A turn as a node tells it.
    #[track_caller]
    pub fn at(&self, node: usize, id: &str, turn: u64) -> Value {
        let reply = self.get(node, &format!("/sessions/{id}/turns/{turn}"));
        assert_eq!(reply.status(), 200, "{}", reply.body);
        reply.json()
    }

    /// A turn once a node says that it is in this state.
    #[track_caller]
    pub fn wait_for(&self, node: usize, id: &str, turn: u64, state: &str) -> Value {
        wait_until(&format!("turn {turn} is {state}"), || {
            Some(self.at(node, id, turn)).filter(|at| at["state"] == state)
        })
    }

    pub fn look(&self, node: usize, id: &str) -> Value {
        self.get(node, &format!("/sessions/{id}")).json()
    }

    /// Starts a turn that waits for the file `go`, and returns once the agent is at it.
    #[track_caller]
    pub fn gated(&self, node: usize, id: &str) -> u64 {
        let turn = self.background(node, id, "[[say begun]] [[until go]] [[say gone on]]");
        wait_until("the turn has begun", || {
            (self.at(node, id, turn)["events"] != json!([])).then_some(())
        });
        turn
    }

    /// Lets a gated turn go on.
    pub fn let_go(&self, node: usize, id: &str) {
        let look = self.look(node, id);
        let folder = look["cwd"].as_str().unwrap_or_else(|| panic!("no folder: {look}"));
        std::fs::write(std::path::Path::new(folder).join("go"), "").unwrap();
    }

    /// The whole log as a node tells it.
    #[track_caller]
    pub fn log(&self, node: usize, id: &str) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let last = all.last().and_then(|event| event["seq"].as_u64()).unwrap_or(0);
            let reply = self.get(node, &format!("/sessions/{id}/events?after={last}"));
            assert_eq!(reply.status(), 200, "{}", reply.body);
            let page = reply.json();
            all.extend(page["events"].as_array().expect("events").iter().cloned());
            if page["more"] != true {
                return all;
            }
        }
    }

    /// The log of a session as a stream of one node, after a number.
    pub fn follow(&self, node: usize, id: &str, after: u64) -> impl Iterator<Item = StreamEvent> {
        let path = format!("/sessions/{id}/events");
        let last = ("last-event-id", after.to_string());
        self.stream(node, "GET", &path, vec![(STREAM.0, STREAM.1.to_owned()), last], None)
    }

    /// A turn as a stream of one node.
    pub fn stream_turn(
        &self,
        node: usize,
        id: &str,
        prompt: &str,
    ) -> impl Iterator<Item = StreamEvent> {
        let path = format!("/sessions/{id}/turn");
        let body = json!({"prompt": prompt}).to_string();
        self.stream(node, "POST", &path, vec![(STREAM.0, STREAM.1.to_owned())], Some(body))
    }

    fn stream(
        &self,
        node: usize,
        method: &str,
        path: &str,
        headers: Vec<(&str, String)>,
        body: Option<String>,
    ) -> impl Iterator<Item = StreamEvent> + use<> {
        let mut wire = Wire::connect(&self.cluster.address(node)).expect("a connection");
        wire.stream().set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
        let asked = Asked { method, path, token: Some(&self.token), headers, body };
        wire.ask(&asked).expect("it is asked");
        let head = wire.head().expect("a head");
        assert_eq!(head.status, 200, "{head:?}");
        wire.events()
    }

    /// Which node holds a session, as the ledger says; `None` when nobody does.
    pub fn holder(&self, id: &str) -> Option<String> {
        let statement =
            format!("SELECT coalesce(holder, '') FROM hob.heads WHERE session = '{id}'");
        Some(self.cluster.sql(&statement)).filter(|holder| !holder.is_empty())
    }
}

/// The numbers of a log have no gap and begin with 1.
#[track_caller]
pub fn assert_gapless(log: &[Value]) {
    let numbers: Vec<u64> = log.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=log.len() as u64).collect::<Vec<u64>>());
}

/// An error has the one shape, this status and code.
#[track_caller]
pub fn assert_error(reply: &Reply, status: u16, code: &str) {
    assert_eq!(reply.status(), status, "{}", reply.body);
    let body = reply.json();
    assert_eq!((&body["ok"], &body["code"]), (&json!(false), &json!(code)), "{}", reply.body);
}

/// No two nodes ever wrote to one session in turns: the fence never decreases along the log.
#[track_caller]
pub fn assert_fences(cluster: &Cluster) {
    let wrong = cluster.sql(
        "SELECT session, seq, before, fence FROM (
             SELECT session, seq, fence, lag(fence, 1, 0::bigint) OVER (PARTITION BY session ORDER BY seq) AS before
             FROM hob.events) e WHERE fence < before LIMIT 10",
    );
    assert_eq!(wrong, "", "events of an earlier holder after those of a later one");
}
