//! A load generator that keeps many sessions busy at little cost: one thread, plain sockets, and it parses only
//! what it measures. The benchmarks start it; it prints one JSON object.
//!
//! `direct` reads the same agents over their own pipes, without Hob: the cost of the machine itself.
//!
//! ADDRESS may be several nodes, separated by commas. Sessions are created on the nodes in turn. Their turns go to the
//! same node, or with `elsewhere` to the next one.
//!
//!     hob-load turns|elsewhere ADDRESS TOKEN AGENT SESSIONS TURNS EVENTS EVERY_MS SPREAD_MS
//!     hob-load direct AGENT SESSIONS TURNS EVENTS EVERY_MS SPREAD_MS
//!     hob-load gets ADDRESS TOKEN PATH CONNECTIONS SECONDS

#![allow(clippy::disallowed_methods, reason = "the agents are started without anything in between")]

use std::cell::RefCell;
use std::io;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::unix::pipe;
use tokio::task::LocalSet;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| -> usize { text.parse().expect("a number") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let result = match words[..] {
        [
            place @ ("turns" | "elsewhere"),
            address,
            token,
            agent,
            sessions,
            turns,
            events,
            every,
            spread,
        ] => {
            let load = Load {
                addresses: address.split(',').map(str::to_owned).collect(),
                shift: usize::from(place == "elsewhere"),
                token: token.to_owned(),
                agent: agent.to_owned(),
                turns: number(turns),
                events: number(events),
                every_ms: number(every),
                spread: Duration::from_millis(number(spread) as u64),
                seen: RefCell::default(),
            };
            let all = turns_of_all(Rc::new(load), number(sessions));
            LocalSet::new().block_on(&runtime, all)
        }
        ["direct", agent, sessions, turns, events, every, spread] => {
            let load = Load {
                addresses: Vec::new(),
                shift: 0,
                token: String::new(),
                agent: agent.to_owned(),
                turns: number(turns),
                events: number(events),
                every_ms: number(every),
                spread: Duration::from_millis(number(spread) as u64),
                seen: RefCell::default(),
            };
            LocalSet::new().block_on(&runtime, direct_of_all(Rc::new(load), number(sessions)))
        }
        ["gets", address, token, path, connections, seconds] => {
            let request = request("GET", path, token, "", "");
            let until = Instant::now() + Duration::from_secs(number(seconds) as u64);
            let all = gets_of_all(address, request, number(connections), until);
            LocalSet::new().block_on(&runtime, all)
        }
        _ => {
            eprintln!("hob-load turns|gets …");
            std::process::exit(2);
        }
    };
    println!("{result}");
}

fn request(method: &str, path: &str, token: &str, more: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n{more}\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The load on a server.
struct Load {
    addresses: Vec<String>,
    /// How many nodes after the one that created a session its turns are sent to.
    shift: usize,
    token: String,
    agent: String,
    turns: usize,
    events: usize,
    every_ms: usize,
    /// The sessions start one after another over this time, as independent clients do.
    spread: Duration,
    seen: RefCell<Seen>,
}

/// The measurements of all sessions.
#[derive(Default)]
struct Seen {
    /// Microseconds from the agent's write to this client's read.
    late: Vec<i64>,
    turns: usize,
    errors: Vec<String>,
}

async fn turns_of_all(load: Rc<Load>, sessions: usize) -> Value {
    let begin = Instant::now();
    let mut names = Vec::new();
    for number in 0..sessions {
        let node = number % load.addresses.len();
        match load.create(&load.addresses[node]).await {
            // The node comes before the name.
            Ok(name) => {
                names.push(format!("{} {name}", (node + load.shift) % load.addresses.len()))
            }
            Err(error) => load.fail(format!("a session: {error}")),
        }
    }
    // One turn first, so that every agent is running.
    in_parallel(&load, &names, |load, name, _| async move {
        if let Err(error) = load.turn(&name, "[[say ready]]", 0).await {
            load.fail(format!("the first turn: {error}"));
        }
    })
    .await;
    let ready = begin.elapsed();
    load.seen.borrow_mut().turns = 0;
    let begin = Instant::now();
    in_parallel(&load, &names, |load, name, part| async move {
        tokio::time::sleep(load.spread.mul_f64(part)).await;
        let prompt = format!("[[stamps {} {}]]", load.events, load.every_ms);
        for _ in 0..load.turns {
            if let Err(error) = load.turn(&name, &prompt, load.events).await {
                load.fail(error.to_string());
            }
        }
    })
    .await;
    summary(&load, names.len(), ready, begin.elapsed())
}

/// Returns the measurements as JSON.
fn summary(load: &Load, sessions: usize, ready: Duration, wall: Duration) -> Value {
    let mut seen = load.seen.borrow_mut();
    seen.late.sort_unstable();
    let at = |part: f64| {
        let index = (seen.late.len() as f64 * part) as usize;
        let found = seen.late.get(index.min(seen.late.len().saturating_sub(1)));
        found.copied().unwrap_or_default() as f64 / 1000.0
    };
    json!({"sessions": sessions, "turns": seen.turns, "events": seen.late.len(),
        "errors": seen.errors.len(), "first_errors": seen.errors.iter().take(3).collect::<Vec<_>>(),
        "ready_s": ready.as_secs_f64(), "wall_s": wall.as_secs_f64(),
        "p50_ms": at(0.5), "p90_ms": at(0.9), "p99_ms": at(0.99), "max_ms": at(1.0)})
}

async fn direct_of_all(load: Rc<Load>, sessions: usize) -> Value {
    let begin = Instant::now();
    let names: Vec<String> = (0..sessions).map(|number| number.to_string()).collect();
    in_parallel(&load, &names, |load, _, part| async move {
        if let Err(error) = load.direct(part).await {
            load.fail(error.to_string());
        }
    })
    .await;
    summary(&load, sessions, Duration::ZERO, begin.elapsed())
}

async fn in_parallel<F: Future<Output = ()> + 'static>(
    load: &Rc<Load>,
    names: &[String],
    work: impl Fn(Rc<Load>, String, f64) -> F,
) {
    let tasks: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let part = index as f64 / names.len() as f64;
            tokio::task::spawn_local(work(load.clone(), name.clone(), part))
        })
        .collect();
    for task in tasks {
        let _ = task.await;
    }
}

impl Load {
    fn fail(&self, error: String) {
        self.seen.borrow_mut().errors.push(error);
    }

    async fn create(&self, address: &str) -> io::Result<String> {
        let body = json!({"agent": self.agent}).to_string();
        let mut stream = TcpStream::connect(address).await?;
        let close = "connection: close\r\n";
        stream.write_all(&request("POST", "/sessions", &self.token, close, &body)).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
        let value: Value = serde_json::from_str(body)?;
        let name = value["session_id"].as_str();
        name.map(str::to_owned).ok_or_else(|| io::Error::other(answer.clone()))
    }

    /// Starts an agent and runs all its turns.
    async fn direct(&self, part: f64) -> io::Result<()> {
        let mut child = Command::new(&self.agent)
            .arg("acp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(io::Error::other("no pipes"));
        };
        let mut stdin = pipe::Sender::from_owned_fd(stdin.into())?;
        let mut lines = BufReader::new(pipe::Receiver::from_owned_fd(stdout.into())?).lines();
        let mut ask = async |method: &str, params: Value| -> io::Result<Value> {
            let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            stdin.write_all(format!("{request}\n").as_bytes()).await?;
            while let Some(line) = lines.next_line().await? {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                if let Some(stamp) = stamp(line.as_bytes()) {
                    self.seen.borrow_mut().late.push(now.as_micros() as i64 - stamp);
                } else if line.contains("\"result\"") {
                    return Ok(serde_json::from_str::<Value>(&line)?["result"].clone());
                }
            }
            Err(io::Error::other("an agent has ended"))
        };
        ask("initialize", json!({"protocolVersion": 1})).await?;
        let session = ask("session/new", json!({"cwd": "/", "mcpServers": []})).await?;
        tokio::time::sleep(self.spread.mul_f64(part)).await;
        let text = format!("[[stamps {} {}]]", self.events, self.every_ms);
        for _ in 0..self.turns {
            let prompt = json!({"sessionId": session["sessionId"],
                "prompt": [{"type": "text", "text": text}]});
            ask("session/prompt", prompt).await?;
            self.seen.borrow_mut().turns += 1;
        }
        drop(stdin);
        child.wait().map(drop)
    }

    /// Runs a turn and reads its stream to the end.
    async fn turn(&self, session: &str, prompt: &str, events: usize) -> io::Result<()> {
        let body = json!({"prompt": prompt}).to_string();
        let more = "accept: text/event-stream\r\n";
        let (node, name) = session.split_once(' ').unwrap_or(("0", session));
        let path = format!("/sessions/{name}/turn");
        let address = node.parse().ok().and_then(|node: usize| self.addresses.get(node));
        let address = address.ok_or_else(|| io::Error::other("no such node"))?;
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        stream.write_all(&request("POST", &path, &self.token, more, &body)).await?;
        let mut lines = StreamLines::default();
        let mut piece = vec![0; 64 << 10];
        let mut stamps = 0;
        loop {
            let length = stream.read(&mut piece).await?;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            if length == 0 {
                return Err(io::Error::other(format!("a stream ended early: {lines:?}")));
            }
            let mut over = None;
            lines.take(&piece[..length], |kind, data| match kind {
                b"message" => {
                    if let Some(stamp) = stamp(data) {
                        stamps += 1;
                        self.seen.borrow_mut().late.push(now.as_micros() as i64 - stamp);
                    }
                }
                b"turn" => over = Some(find(data, b"\"state\":\"finished\"").is_some()),
                _ => {}
            });
            match over {
                Some(true) if stamps == events => {
                    self.seen.borrow_mut().turns += 1;
                    return Ok(());
                }
                Some(finished) => {
                    return Err(io::Error::other(format!(
                        "{stamps} of {events} events, finished: {finished}"
                    )));
                }
                None => {}
            }
        }
    }
}

/// The lines of a chunked event stream, without the lines of the chunks themselves.
#[derive(Debug, Default)]
struct StreamLines {
    rest: Vec<u8>,
    kind: Vec<u8>,
}

impl StreamLines {
    fn take(&mut self, bytes: &[u8], mut heard: impl FnMut(&[u8], &[u8])) {
        self.rest.extend_from_slice(bytes);
        let mut used = 0;
        while let Some(end) = self.rest[used..].iter().position(|byte| *byte == b'\n') {
            let line = &self.rest[used..used + end];
            if let Some(kind) = line.strip_prefix(b"event: ") {
                self.kind = kind.to_vec();
            } else if let Some(data) = line.strip_prefix(b"data: ") {
                heard(&self.kind, data);
            }
            used += end + 1;
        }
        self.rest.drain(..used);
    }
}

/// Returns the time in a message of the scripted agent.
fn stamp(data: &[u8]) -> Option<i64> {
    let text = &data[find(data, b"\"text\":\"")? + 8..];
    let end = text.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(&text[..end]).ok()?.parse().ok()
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}

async fn gets_of_all(address: &str, request: Vec<u8>, connections: usize, until: Instant) -> Value {
    let begin = Instant::now();
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            let (address, request) = (address.to_owned(), request.clone());
            tokio::task::spawn_local(async move { gets(&address, &request, until).await })
        })
        .collect();
    let (mut answered, mut errors) = (0, 0);
    for task in tasks {
        match task.await {
            Ok(Ok(count)) => answered += count,
            _ => errors += 1,
        }
    }
    json!({"requests": answered, "errors": errors,
        "per_second": answered as f64 / begin.elapsed().as_secs_f64()})
}

/// Repeats one request on one connection.
async fn gets(address: &str, request: &[u8], until: Instant) -> io::Result<usize> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 16 << 10];
    let mut count = 0;
    while Instant::now() < until {
        stream.write_all(request).await?;
        let mut have = 0;
        loop {
            let read = stream.read(&mut buffer[have..]).await?;
            have += read;
            if read == 0 || !buffer.starts_with(b"HTTP/1.1 200") {
                return Err(io::Error::other("no answer"));
            }
            if is_whole(&buffer[..have]) {
                break;
            }
        }
        count += 1;
    }
    Ok(count)
}

fn is_whole(answer: &[u8]) -> bool {
    let Some(head) = find(answer, b"\r\n\r\n") else { return false };
    let Some(at) = find(&answer[..head], b"content-length: ") else { return false };
    let digits = answer[at + 16..].iter().take_while(|byte| byte.is_ascii_digit());
    let length = digits.fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
    answer.len() >= head + 4 + length
}
