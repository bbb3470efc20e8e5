//! The bridge between an agent's standard streams and the server: it passes lines on.
//!
//! One runs beside every agent, so it is small: two threads and no protocol of its own. It remembers
//! the handshake, so that a server that was restarted meets it again, and which requests wait for an
//! answer, so that none waits for ever. Where no server is there it answers the little it can.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hob_mcp::alone;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::socket::client::Connection;
use crate::socket::{Answer, Call, client};

/// The id under which the handshake is said again. The answer is not the agent's.
const REPLAY: &str = "hob: handshake again";

/// What matters of a line here.
#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<Value>,
}

/// The bridge. Cloning shares it.
#[derive(Clone)]
pub struct Bridge {
    shared: Arc<Shared>,
}

struct Shared {
    socket: PathBuf,
    cwd: Option<String>,
    state: Mutex<State>,
    /// Apart from the rest, and never held while a line is on its way: the server may have to be heard
    /// before it can be told more.
    waiting: Mutex<Vec<Waiting>>,
}

#[derive(Default)]
struct State {
    server: Option<UnixStream>,
    /// Counts connections, so that what an old one's reader finds does not touch the new one.
    generation: u64,
    /// The lines of the handshake.
    handshake: Vec<Vec<u8>>,
}

/// A request that has no answer yet.
struct Waiting {
    id: Value,
    line: Vec<u8>,
    /// The connection it was sent over.
    generation: u64,
    /// Whether it has been sent to a second server already.
    again: bool,
}

impl Bridge {
    pub fn new(socket: PathBuf, cwd: Option<String>) -> Bridge {
        Bridge {
            shared: Arc::new(Shared {
                socket,
                cwd,
                state: Mutex::default(),
                waiting: Mutex::default(),
            }),
        }
    }

    /// Passes lines on until the agent closes its side.
    pub fn run(&self, mut from_agent: impl BufRead) {
        loop {
            let mut line = Vec::new();
            match from_agent.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if line.iter().all(u8::is_ascii_whitespace) => {}
                Ok(_) => {
                    if line.last() != Some(&b'\n') {
                        line.push(b'\n');
                    }
                    self.pass_on(line);
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass_on(&self, line: Vec<u8>) {
        let message = serde_json::from_slice::<Message>(&line).ok();
        let method = message.as_ref().and_then(|message| message.method.as_deref());
        let request = message.as_ref().filter(|message| message.method.is_some());
        let id = request.and_then(|message| message.id.clone());
        if matches!(method, Some("notifications/cancelled")) {
            // Nobody waits for it any more, so it is not asked again either.
            if let Some(id) = message.as_ref().and_then(|message| message.params.as_ref()) {
                self.answered(&id["requestId"]);
            }
        }
        let mut state = self.state();
        if let Some(id) = &id {
            let generation = state.generation;
            let waiting = Waiting { id: id.clone(), line: line.clone(), generation, again: false };
            self.waiting().push(waiting);
        }
        // Connecting says the handshake that came before this line.
        let sent = self.send(&mut state, &line, id.as_ref());
        if matches!(method, Some("initialize")) {
            state.handshake = vec![line.clone()];
        } else if matches!(method, Some("notifications/initialized")) {
            state.handshake.push(line.clone());
        }
        // What is no request needs no answer; alone there is nobody to complain to.
        if let (Err(error), Some(id), Some(message)) = (sent, id, message)
            && self.answered(&id)
        {
            say(&self.answer_alone(&id, &message, &error));
        }
    }

    /// Sends a line to the server; where that has gone, to the one that is there now.
    fn send(&self, state: &mut State, line: &[u8], id: Option<&Value>) -> io::Result<()> {
        let had_one = state.server.is_some();
        let sent = self.write(state, line, id);
        match sent {
            Err(_) if had_one => {
                state.server = None;
                self.write(state, line, id)
            }
            sent => sent,
        }
        .inspect_err(|_| state.server = None)
    }

    fn write(&self, state: &mut State, line: &[u8], id: Option<&Value>) -> io::Result<()> {
        self.connect_if_needed(state)?;
        if let Some(id) = id {
            let generation = state.generation;
            for request in self.waiting().iter_mut().filter(|request| request.id == *id) {
                request.generation = generation;
            }
        }
        let server = state.server.as_mut();
        server.ok_or(io::ErrorKind::NotConnected)?.write_all(line)
    }

    /// Takes a request off the list; `false` when it has its answer already.
    fn answered(&self, id: &Value) -> bool {
        let mut waiting = self.waiting();
        let before = waiting.len();
        waiting.retain(|request| request.id != *id);
        waiting.len() < before
    }

    fn connect_if_needed(&self, state: &mut State) -> io::Result<()> {
        if state.server.is_some() {
            return Ok(());
        }
        let mut stream = connect(&self.shared.socket, self.shared.cwd.clone())?;
        for line in &state.handshake {
            stream.write_all(&replayed(line))?;
        }
        state.generation += 1;
        let reader = stream.try_clone()?;
        let (bridge, generation) = (self.clone(), state.generation);
        std::thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(move || bridge.listen(reader, generation))?;
        state.server = Some(stream);
        Ok(())
    }

    /// Passes on what the server says until it goes away.
    fn listen(&self, stream: UnixStream, generation: u64) {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) && line.ends_with(b"\n") {
            let message = serde_json::from_slice::<Message>(&line).ok();
            let answer = message.filter(|message| message.method.is_none());
            let id = answer.and_then(|message| message.id);
            if id.as_ref().and_then(Value::as_str) != Some(REPLAY) {
                if let Some(id) = id {
                    self.answered(&id);
                }
                say(&line);
            }
            line.clear();
        }
        self.lost(generation);
    }

    /// A server is gone. What waits for it is asked again where another one is there already: every
    /// tool bears to be called twice.
    fn lost(&self, generation: u64) {
        let mut state = self.state();
        if state.generation == generation {
            state.server = None;
        }
        let lost: Vec<(Value, Vec<u8>, bool)> = self
            .waiting()
            .iter_mut()
            .filter(|request| request.generation <= generation)
            .map(|request| {
                let again = std::mem::replace(&mut request.again, true);
                (request.id.clone(), request.line.clone(), again)
            })
            .collect();
        for (id, line, again) in lost {
            let sent = match again {
                true => Err(io::Error::other("it went away twice")),
                false => self.send(&mut state, &line, Some(&id)),
            };
            let Err(error) = sent else { continue };
            if let (true, Ok(message)) = (self.answered(&id), serde_json::from_slice(&line)) {
                say(&self.answer_alone(&id, &message, &error));
            }
        }
    }

    /// What can be said without a server.
    fn answer_alone(&self, id: &Value, message: &Message, error: &io::Error) -> Vec<u8> {
        let wanted = || message.params.as_ref()?.get("protocolVersion")?.as_str();
        let result = match message.method.as_deref().unwrap_or_default() {
            "initialize" => alone::initialize(wanted()),
            "ping" => json!({}),
            "tools/list" => {
                let tools: Value = serde_json::from_str(alone::TOOLS).unwrap_or_default();
                json!({"tools": tools})
            }
            "tools/call" => {
                let text = format!(
                    "hob is not running: nobody answers on {} ({error}). Start it with `hob serve`.",
                    self.shared.socket.display()
                );
                json!({"content": [{"type": "text", "text": text}], "isError": true})
            }
            other => {
                let error =
                    json!({"code": -32601, "message": format!("{other} is not known here")});
                return line(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
        };
        line(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }
}

fn connect(socket: &Path, cwd: Option<String>) -> io::Result<UnixStream> {
    let mut connection = Connection::open(socket, client::DEADLINE)?;
    match connection.call(&Call::Mcp { cwd }, client::DEADLINE)? {
        Answer::Mcp => connection.into_stream(),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A line of the handshake for another server: its answer must not reach the agent again.
fn replayed(handshake: &[u8]) -> Vec<u8> {
    match serde_json::from_slice::<Value>(handshake) {
        Ok(mut message) if message.get("id").is_some() => {
            message["id"] = json!(REPLAY);
            line(&message)
        }
        _ => handshake.to_vec(),
    }
}

fn line(message: &Value) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// A whole line to the agent. An agent that no longer listens is about to close its side as well.
fn say(line: &[u8]) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(line).and_then(|()| stdout.flush());
}
