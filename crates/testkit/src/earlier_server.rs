//! A server of the first build (0.1.0, protocol 2) as clients see it: it holds the lock of the home, and answers the calls that
//! build knew, in its words.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::server::TestHome;

/// What the stand-in recalls, and what it says at the start of a session.
pub const EARLIER_HIT: &str = "the harbour server listens on port 7717";
pub const EARLIER_BRIEFING: &str = "Earlier work in this project: the harbour server.";

/// A stand-in for a server of the first build. Dropping it frees the home.
pub struct EarlierServer {
    /// The process that the lock names. It is none of the tests, whose children would pass for agents of the server.
    process: Child,
    _lock: File,
    socket: PathBuf,
    calls: Arc<Mutex<Vec<Value>>>,
    /// The socket of a server that accepts connections and never answers.
    _silent: Option<UnixListener>,
}

impl EarlierServer {
    /// Starts a stand-in that answers.
    pub fn start(home: &TestHome) -> EarlierServer {
        let Occupied { process, lock, socket, listener } = occupy(home);
        let calls: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (pid, noted) = (process.id(), calls.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let noted = noted.clone();
                std::thread::spawn(move || serve(stream, pid, &noted));
            }
        });
        EarlierServer { process, _lock: lock, socket, calls, _silent: None }
    }

    /// Starts a stand-in that accepts connections and never answers.
    pub fn silent(home: &TestHome) -> EarlierServer {
        let Occupied { process, lock, socket, listener } = occupy(home);
        let calls = Arc::default();
        EarlierServer { process, _lock: lock, socket, calls, _silent: Some(listener) }
    }

    /// Returns the process that the lock and the greeting name.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns the texts of the turns that were stored, in their order.
    pub fn captured(&self) -> Vec<String> {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let captures = calls.iter().filter(|call| call["call"] == "capture");
        let turns =
            captures.flat_map(|call| call["batch"]["turns"].as_array().into_iter().flatten());
        turns.map(|turn| turn["text"].as_str().expect("a text").to_owned()).collect()
    }
}

impl Drop for EarlierServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

/// A home whose lock and socket are taken.
struct Occupied {
    process: Child,
    lock: File,
    socket: PathBuf,
    listener: UnixListener,
}

/// Takes the lock and the socket of a home.
fn occupy(home: &TestHome) -> Occupied {
    let folder = home.hob_home();
    fs::create_dir_all(&folder).expect("the home");
    let process = Command::new("sleep").arg("600").spawn().expect("a process");
    let mut lock = File::create(folder.join("hob.lock")).expect("the file of the lock");
    lock.try_lock().expect("nobody serves this home");
    write!(lock, "{}", process.id()).expect("the file of the lock");
    let socket = folder.join("hob.sock");
    let _ = fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).expect("a socket");
    Occupied { process, lock, socket, listener }
}

/// Answers one connection until it ends.
fn serve(mut stream: UnixStream, pid: u32, calls: &Mutex<Vec<Value>>) -> io::Result<()> {
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut body)?;
        let call: Value = serde_json::from_slice(&body)?;
        let answer = answer(&call, pid);
        calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
        let body = answer.to_string();
        stream.write_all(&(body.len() as u32).to_be_bytes())?;
        stream.write_all(body.as_bytes())?;
        if answer == "mcp" {
            return serve_mcp(stream);
        }
    }
}

/// Answers a call as the first build did. Its types had these fields, and passed over others.
fn answer(call: &Value, pid: u32) -> Value {
    match call["call"].as_str().unwrap_or_default() {
        "hello" => match call["protocol"].as_u64() {
            Some(0..=2) => {
                json!({"hello": {"protocol": 2, "version": "0.1.0", "pid": pid, "http": null}})
            }
            other => {
                json!({"error": format!("this hob (0.1.0) speaks protocol 2, not {other:?}: restart `hob serve`")})
            }
        },
        "capture" => match count_turns(&call["batch"]) {
            Some(turns) => {
                json!({"captured": {"inserted": turns, "duplicates": 0, "forgotten": 0}})
            }
            None => json!({"error": "unknown call: missing field"}),
        },
        "tool" if call["name"].is_string() => json!({"result": recalled()}),
        "session_start" if call["cwd"].is_string() && call["budget_tokens"].is_u64() => {
            json!({"text": EARLIER_BRIEFING})
        }
        "mcp" => json!("mcp"),
        "unseal" => json!({"refused": "there is no record"}),
        other => json!({"error": format!("unknown call: unknown variant `{other}`")}),
    }
}

/// Returns the number of turns of a batch; `None` if a field is missing that the first build needed.
fn count_turns(batch: &Value) -> Option<usize> {
    let has_texts =
        |value: &Value, fields: &[&str]| fields.iter().all(|field| value[field].is_string());
    let turns = batch["turns"].as_array()?;
    let fits = has_texts(batch, &["session", "client", "source"])
        && has_texts(&batch["place"], &["project", "worktree"])
        && turns.iter().all(|turn| has_texts(turn, &["role", "text", "ts"]));
    fits.then_some(turns.len())
}

fn recalled() -> Value {
    json!({"hits": [{"record_id": "r1", "text": EARLIER_HIT, "role": "assistant", "session_id": "s1", "project": "/p",
        "ts": "2026-01-02T03:04:05Z", "score": 0.9, "reason": "words"}], "budget_used": 12, "omitted": 0, "partial": false})
}

/// Answers MCP, one message a line.
fn serve_mcp(stream: UnixStream) -> io::Result<()> {
    let mut answers = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({"protocolVersion": "2025-03-26", "capabilities": {"tools": {}},
                "serverInfo": {"name": "hob", "version": "0.1.0"}}),
            "tools/list" => {
                json!({"tools": [{"name": "memory_recall", "inputSchema": {"type": "object"}}]})
            }
            "tools/call" => json!({"content": [{"type": "text", "text": recalled().to_string()}],
                "structuredContent": recalled()}),
            _ => continue,
        };
        writeln!(answers, "{}", json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))?;
    }
    Ok(())
}
