//! The bridge between an agent's standard streams and the server. It forwards MCP messages line by
//! line.
//!
//! One bridge runs per agent, so it is small: two threads and no MCP library. It keeps the lines of
//! the handshake, to repeat them to a restarted server, and the requests that have no answer yet,
//! so that none waits forever. Messages that are no requests or too long are refused and not forwarded. Without a server
//! it answers `initialize` and `tools/list` itself.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hob_mcp::message::{RpcMessage, read_message};
use hob_mcp::offline::OfflineServer;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};

use crate::mcp_lines::{AgentLine, next_line};
use crate::socket::client::Connection;
use crate::socket::{Answer, Call, client};

/// JSON-RPC's code of this error.
const METHOD_NOT_FOUND: i32 = -32601;
/// How long the bridge waits for answers after the agent has closed its side.
const MAX_WAIT_AT_END: Duration = Duration::from_secs(30);
/// How often it then checks that somebody still reads them.
const OUTPUT_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a server may take to accept the bridge to a client's tools. The server has just started the agent, so it runs;
/// a shorter time would leave the agent without its tools when the machine is busy.
const CLIENT_TOOLS_TIMEOUT: Duration = Duration::from_secs(30);
/// The request id of a repeated handshake. Its answer is not passed on to the agent.
const REPLAY_ID: &str = "hob: handshake again";

/// The bridge. Clones share one connection.
#[derive(Clone)]
pub struct Bridge {
    shared: Arc<Shared>,
}

struct Shared {
    socket: PathBuf,
    /// The call that switches a connection to MCP.
    call: Call,
    state: Mutex<BridgeState>,
    /// Has a lock of its own, which is never held while a line is being sent: the server may block
    /// until its own output is read.
    pending: Mutex<Pending>,
    /// Notified when an answer has been written.
    answered: Condvar,
}

#[derive(Default)]
struct Pending {
    /// The requests that have no answer yet.
    requests: Vec<PendingRequest>,
    /// The number of answers that are being written.
    writing: usize,
}

#[derive(Default)]
struct BridgeState {
    server: Option<UnixStream>,
    /// The number of the current connection, so that the reader of an old one does not close the
    /// new one.
    generation: u64,
    /// The lines of the handshake.
    handshake: Vec<Vec<u8>>,
}

/// A request that has no answer yet.
struct PendingRequest {
    id: Value,
    line: Vec<u8>,
    /// The number of the connection that carried it.
    generation: u64,
    /// Whether it was already repeated on a second connection.
    repeated: bool,
}

impl Bridge {
    /// Creates a bridge. `call` switches its connections to MCP.
    pub fn new(socket: PathBuf, call: Call) -> Bridge {
        Bridge {
            shared: Arc::new(Shared {
                socket,
                call,
                state: Mutex::default(),
                pending: Mutex::default(),
                answered: Condvar::new(),
            }),
        }
    }

    /// Forwards lines until the agent closes its side, and then the answers that are still to come.
    pub fn run(&self, mut from_agent: impl BufRead) {
        while let Some(line) = next_line(&mut from_agent) {
            match line {
                AgentLine::Message(line) => self.forward(line),
                AgentLine::TooLong(Some(refusal)) => send_to_agent(&json_line(&refusal.answer())),
                AgentLine::TooLong(None) => {}
            }
        }
        self.wait_for_answers();
    }

    fn state(&self) -> MutexGuard<'_, BridgeState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.shared.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every request has its answer, unless nobody reads it any more.
    fn wait_for_answers(&self) {
        let deadline = Instant::now() + MAX_WAIT_AT_END;
        let mut pending = self.pending();
        while pending.writing > 0 || !pending.requests.is_empty() {
            if Instant::now() >= deadline || is_output_closed() {
                return;
            }
            let waited = self.shared.answered.wait_timeout(pending, OUTPUT_CHECK_INTERVAL);
            pending = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn forward(&self, line: Vec<u8>) {
        let message = match read_message(&line) {
            Ok(message) => message,
            Err(refusal) => return send_to_agent(&json_line(&refusal.answer())),
        };
        let method = message.method.as_deref();
        // Only a request gets an answer.
        let id = method.and(message.id.clone());
        if matches!(method, Some("notifications/cancelled")) {
            // The agent no longer waits for the answer, so the request is not repeated either.
            let cancelled = &message.params["requestId"];
            self.pending().requests.retain(|request| request.id != *cancelled);
        }
        let mut state = self.state();
        if let Some(id) = &id {
            let generation = state.generation;
            let pending =
                PendingRequest { id: id.clone(), line: line.clone(), generation, repeated: false };
            self.pending().requests.push(pending);
        }
        // Connecting repeats the handshake, which came before this line.
        let sent = self.send(&mut state, &line, id.as_ref());
        if matches!(method, Some("initialize")) {
            state.handshake = vec![line.clone()];
        } else if matches!(method, Some("notifications/initialized")) {
            state.handshake.push(line.clone());
        }
        if let (Err(error), Some(id)) = (sent, id) {
            self.answer_once(&id, || self.answer_without_server(&id, &message, &error));
        }
    }

    /// Sends a line to the server. If the connection is broken, connects again and repeats the
    /// line.
    fn send(&self, state: &mut BridgeState, line: &[u8], id: Option<&Value>) -> io::Result<()> {
        let was_connected = state.server.is_some();
        let sent = self.write(state, line, id);
        match sent {
            Err(_) if was_connected => {
                state.server = None;
                self.write(state, line, id)
            }
            sent => sent,
        }
        .inspect_err(|_| state.server = None)
    }

    fn write(&self, state: &mut BridgeState, line: &[u8], id: Option<&Value>) -> io::Result<()> {
        self.connect_if_needed(state)?;
        if let Some(id) = id {
            let generation = state.generation;
            for request in self.pending().requests.iter_mut().filter(|request| request.id == *id) {
                request.generation = generation;
            }
        }
        let server = state.server.as_mut();
        server.ok_or(io::ErrorKind::NotConnected)?.write_all(line)
    }

    /// Answers a request, unless it has its answer already.
    fn answer_once(&self, id: &Value, answer: impl FnOnce() -> Vec<u8>) {
        if self.begin_answer(id) {
            send_to_agent(&answer());
        }
        self.end_answer();
    }

    /// Notes that a request is being answered. Returns `false` if it was not pending.
    fn begin_answer(&self, id: &Value) -> bool {
        let mut pending = self.pending();
        pending.writing += 1;
        let before = pending.requests.len();
        pending.requests.retain(|request| request.id != *id);
        pending.requests.len() < before
    }

    fn end_answer(&self) {
        self.pending().writing -= 1;
        self.shared.answered.notify_all();
    }

    fn connect_if_needed(&self, state: &mut BridgeState) -> io::Result<()> {
        if state.server.is_some() {
            return Ok(());
        }
        let mut stream = connect(&self.shared.socket, &self.shared.call)?;
        for line in &state.handshake {
            stream.write_all(&replayed(line))?;
        }
        state.generation += 1;
        let reader = stream.try_clone()?;
        let (bridge, generation) = (self.clone(), state.generation);
        std::thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(move || bridge.forward_answers(reader, generation))?;
        state.server = Some(stream);
        Ok(())
    }

    /// Forwards the lines of the server until the connection ends.
    fn forward_answers(&self, stream: UnixStream, generation: u64) {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) && line.ends_with(b"\n") {
            let message = read_message(&line).ok();
            let answer = message.filter(|message| message.method.is_none());
            let id = answer.and_then(|message| message.id);
            match id {
                Some(id) if id == REPLAY_ID => {}
                Some(id) => {
                    self.begin_answer(&id);
                    send_to_agent(&line);
                    self.end_answer();
                }
                None => send_to_agent(&line),
            }
            line.clear();
        }
        self.handle_disconnect(generation);
    }

    /// Handles the end of a connection: repeats its pending requests on a new connection, once. All
    /// tools are safe to call twice.
    fn handle_disconnect(&self, generation: u64) {
        let mut state = self.state();
        if state.generation == generation {
            state.server = None;
        }
        let lost: Vec<(Value, Vec<u8>, bool)> = self
            .pending()
            .requests
            .iter_mut()
            .filter(|request| request.generation <= generation)
            .map(|request| {
                let repeated = std::mem::replace(&mut request.repeated, true);
                (request.id.clone(), request.line.clone(), repeated)
            })
            .collect();
        for (id, line, repeated) in lost {
            let sent = match repeated {
                true => Err(io::Error::other("the connection broke twice")),
                false => self.send(&mut state, &line, Some(&id)),
            };
            let Err(error) = sent else { continue };
            if let Ok(message) = read_message(&line) {
                self.answer_once(&id, || self.answer_without_server(&id, &message, &error));
            }
        }
    }

    /// Returns the answer to a request while no server is running.
    fn answer_without_server(
        &self,
        id: &Value,
        message: &RpcMessage,
        error: &io::Error,
    ) -> Vec<u8> {
        let method = message.method.as_deref().unwrap_or_default();
        let params = &message.params;
        let result = if method == "tools/call" {
            Some(OfflineServer::failed_call(params, &self.shared.socket, error))
        } else {
            let server = match self.shared.call {
                Call::ClientTools { .. } => OfflineServer::client_gone(),
                _ => OfflineServer::memory(),
            };
            server.result(method, params)
        };
        match result {
            Some(result) => json_line(&json!({"jsonrpc": "2.0", "id": id, "result": result})),
            None => error_line(id, METHOD_NOT_FOUND, &format!("unknown method: {method}")),
        }
    }
}

fn connect(socket: &Path, call: &Call) -> io::Result<UnixStream> {
    let timeout = match call {
        Call::ClientTools { .. } => CLIENT_TOOLS_TIMEOUT,
        _ => client::CALL_TIMEOUT,
    };
    let mut connection = Connection::open(socket, timeout)?;
    match connection.call(call, timeout)? {
        Answer::Mcp => connection.into_stream(),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Returns a line of the handshake with an id by which its answer is recognised and dropped.
fn replayed(handshake: &[u8]) -> Vec<u8> {
    match serde_json::from_slice::<Value>(handshake) {
        Ok(mut message) if message.get("id").is_some() => {
            message["id"] = json!(REPLAY_ID);
            json_line(&message)
        }
        _ => handshake.to_vec(),
    }
}

/// Returns an error answer.
fn error_line(id: &Value, code: i32, text: &str) -> Vec<u8> {
    json_line(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}}))
}

fn json_line(message: &Value) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Returns whether nobody reads the standard output any more.
fn is_output_closed() -> bool {
    let stdout = io::stdout();
    let mut output = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let closed = PollFlags::POLLERR | PollFlags::POLLHUP;
    poll(&mut output, PollTimeout::ZERO).is_ok()
        && output[0].revents().is_some_and(|events| events.intersects(closed))
}

/// Sends a line to the agent. An error means that the agent is about to close its side, too.
fn send_to_agent(line: &[u8]) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(line).and_then(|()| stdout.flush());
}
