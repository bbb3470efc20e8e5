//! The scripted agent as an ACP agent: JSON-RPC lines on the standard streams, protocol version 1.
//!
//! Sessions are kept below `$HOME/.hob-scripted`, so that `session/load` and `session/resume` work in
//! another process.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use uuid::Uuid;

use super::effects::{self, Interrupt, Lines};
use super::mcp;
use crate::agent::flag;
use crate::script::{self, Step};

/// Runs the agent. With `--replay early`, `late` or `split` it cannot resume a session but only load
/// it, and sends the replay before the response, after it, or on both sides of it. With `--settings` it has modes, an option
/// and a command; `{mode}` and `{model}` in a text are replaced by what holds. A new process begins with the defaults. With
/// `--models` it lists its models as earlier versions of the protocol did, and takes `session/set_model`.
pub fn run(arguments: &[String]) -> ExitCode {
    let replay = match flag(arguments, "--replay") {
        Some("early") => Some(Replay::Early),
        Some("late") => Some(Replay::Late),
        Some("split") => Some(Replay::Split),
        _ => None,
    };
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let offers = match (has("--settings"), has("--models")) {
        (true, _) => Some(Offers::Options),
        (_, true) => Some(Offers::Models),
        _ => None,
    };
    let (mode, model) = (MODES[0], MODELS[0]);
    let settings = Mutex::new(offers.map(|offers| AgentSettings { offers, mode, model }));
    let agent = Arc::new(Agent { replay, settings, ..Agent::default() });
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if let Ok(message) = serde_json::from_str::<Value>(&line) {
            agent.receive(&message);
        }
    }
    effects::linger_if_stubborn();
    ExitCode::SUCCESS
}

/// When the replay of a loaded session is sent. The protocol demands `Early`.
#[derive(Clone, Copy, PartialEq)]
enum Replay {
    Early,
    Late,
    Split,
}

/// The time between two updates of a late replay.
const LATE_UPDATE_INTERVAL: Duration = Duration::from_millis(40);

const MODES: [&str; 2] = ["ask", "code"];
const MODELS: [&str; 2] = ["small", "large"];

#[derive(Default)]
struct Agent {
    /// When a session is replayed, for an agent that cannot resume without a replay.
    replay: Option<Replay>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    /// Requests to the client that wait for an answer.
    waiting: Mutex<HashMap<u64, Sender<Value>>>,
    requests: Mutex<u64>,
    /// What `--settings` or `--models` offers.
    settings: Mutex<Option<AgentSettings>>,
    /// Whether cancels are ignored, since `[[deaf]]`.
    deaf: AtomicBool,
    output: Lines,
}

struct AgentSettings {
    offers: Offers,
    mode: &'static str,
    model: &'static str,
}

/// How the settings are offered.
#[derive(Clone, Copy, PartialEq)]
enum Offers {
    /// Modes, and the model as an option.
    Options,
    /// The models alone, in a list.
    Models,
}

impl AgentSettings {
    fn config_options(&self) -> Value {
        let offered = MODELS.map(|model| json!({"value": model, "name": model}));
        json!([{"id": "model", "name": "Model", "type": "select", "currentValue": self.model,
            "options": offered}])
    }
}

struct Session {
    id: String,
    interrupt: Interrupt,
    /// One turn at a time.
    turns: Mutex<usize>,
}

impl Agent {
    fn receive(self: &Arc<Agent>, message: &Value) {
        let params = &message["params"];
        let Some(method) = message["method"].as_str() else {
            return self.receive_answer(message);
        };
        let id = message.get("id").cloned();
        let reply = |result: Result<Value, (i64, &str)>| {
            let Some(id) = id.clone() else { return };
            self.output.send(&match result {
                Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                Err((code, message)) => {
                    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
                }
            });
        };
        let session = params["sessionId"].as_str().unwrap_or_default();
        match method {
            "initialize" => {
                let sessions = match self.replay {
                    Some(_) => json!({"close": {}, "list": {}}),
                    None => json!({"resume": {}, "close": {}, "list": {}}),
                };
                reply(Ok(json!({
                    "protocolVersion": 1,
                    "agentCapabilities": {
                        "loadSession": true,
                        "promptCapabilities": {"image": false, "embeddedContext": false},
                        "mcpCapabilities": {"http": true, "sse": false},
                        "sessionCapabilities": sessions,
                    },
                    "agentInfo": {"name": "hob-scripted-agent", "title": "Scripted", "version": "1"},
                    "authMethods": [],
                })));
            }
            "session/new" => {
                let session = self.open(&Uuid::new_v4().to_string(), 0);
                let record = json!({"cwd": params["cwd"], "mcpServers": params["mcpServers"]});
                session.append(&record);
                mcp::start_for_session(&params["mcpServers"]);
                reply(Ok(self.with_settings(json!({"sessionId": session.id}))));
                self.offer_commands(&session.id);
            }
            "session/load" | "session/resume" => match history(session) {
                None => reply(Err((-32002, "Resource not found"))),
                Some(turns) => {
                    mcp::start_for_session(&params["mcpServers"]);
                    self.open(session, turns.len());
                    let early = match (method, self.replay) {
                        ("session/resume", _) | (_, Some(Replay::Late)) => 0,
                        (_, Some(Replay::Split)) => turns.len() / 2,
                        _ => turns.len(),
                    };
                    let (before, after) = turns.split_at(early);
                    before.iter().for_each(|turn| self.replay_turn(session, turn));
                    reply(Ok(self.with_settings(json!({}))));
                    self.offer_commands(session);
                    if method == "session/load" {
                        let (agent, session) = (self.clone(), session.to_owned());
                        let after = after.to_vec();
                        std::thread::spawn(move || {
                            for turn in &after {
                                std::thread::sleep(LATE_UPDATE_INTERVAL);
                                agent.replay_turn(&session, turn);
                            }
                        });
                    }
                }
            },
            "session/prompt" => match self.session(session) {
                None => reply(Err((-32002, "Resource not found"))),
                Some(session) => {
                    // Here, so that a cancel that follows at once is not forgotten.
                    session.interrupt.clear();
                    let (agent, id, prompt) = (self.clone(), id.clone(), prompt_text(params));
                    std::thread::spawn(move || agent.turn(&session, id, &prompt));
                }
            },
            "session/cancel" => {
                let deaf = self.deaf.load(Ordering::Relaxed);
                if let Some(session) = self.session(session).filter(|_| !deaf) {
                    session.interrupt.raise();
                }
            }
            "session/set_mode" => reply(self.set_mode(&params["modeId"])),
            "session/set_model" => reply(self.set_model(&params["modelId"])),
            "session/set_config_option" => reply(self.set_option(params)),
            "session/close" => {
                let known = self.sessions().remove(session).is_some();
                reply(if known { Ok(json!({})) } else { Err((-32002, "Resource not found")) });
            }
            _ => reply(Err((-32601, "Method not found"))),
        }
    }

    fn settings(&self) -> std::sync::MutexGuard<'_, Option<AgentSettings>> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the modes and options to an answer that opens a session.
    fn with_settings(&self, mut answer: Value) -> Value {
        if let Some(AgentSettings { offers: Offers::Models, model, .. }) = &*self.settings() {
            let models = MODELS.map(|model| json!({"modelId": model, "name": model}));
            answer["models"] = json!({"currentModelId": model, "availableModels": models});
        } else if let Some(settings) = &*self.settings() {
            let modes = MODES.map(|mode| json!({"id": mode, "name": mode}));
            answer["modes"] = json!({"currentModeId": settings.mode, "availableModes": modes});
            answer["configOptions"] = settings.config_options();
        }
        answer
    }

    fn offer_commands(&self, session: &str) {
        if self.settings().is_some() {
            let commands = json!([{"name": "review", "description": "Reviews changes"}]);
            let update = json!({"sessionUpdate": "available_commands_update",
                "availableCommands": commands});
            self.update(session, update);
        }
    }

    fn set_mode(&self, mode: &Value) -> Result<Value, (i64, &'static str)> {
        let mut settings = self.settings();
        let settings = settings.as_mut().ok_or((-32601, "Method not found"))?;
        let found = MODES.into_iter().find(|known| mode == known);
        settings.mode = found.ok_or((-32602, "Invalid params: no such mode"))?;
        Ok(json!({}))
    }

    fn set_model(&self, model: &Value) -> Result<Value, (i64, &'static str)> {
        let mut settings = self.settings();
        let settings = settings.as_mut().filter(|settings| settings.offers == Offers::Models);
        let found = MODELS.into_iter().find(|known| model == known);
        settings.ok_or((-32601, "Method not found"))?.model =
            found.ok_or((-32602, "Invalid params: no such model"))?;
        Ok(json!({}))
    }

    fn set_option(&self, params: &Value) -> Result<Value, (i64, &'static str)> {
        let mut settings = self.settings();
        let settings = settings.as_mut().ok_or((-32601, "Method not found"))?;
        let found = MODELS.into_iter().find(|known| params["value"] == *known);
        let found = found.filter(|_| params["configId"] == "model");
        settings.model = found.ok_or((-32602, "Invalid params: no such option or value"))?;
        Ok(json!({"configOptions": settings.config_options()}))
    }

    /// Replaces `{mode}` and `{model}` in a text.
    fn settings_in(&self, text: &str) -> String {
        match &*self.settings() {
            Some(settings) => {
                text.replace("{mode}", settings.mode).replace("{model}", settings.model)
            }
            None => text.to_owned(),
        }
    }

    /// Says an earlier turn again.
    fn replay_turn(&self, session: &str, turn: &Value) {
        self.chunk(session, "user_message_chunk", &turn["prompt"]);
        self.chunk(session, "agent_message_chunk", &turn["reply"]);
    }

    fn receive_answer(&self, message: &Value) {
        let Some(id) = message["id"].as_u64() else { return };
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        if let Some(waiting) = waiting {
            let _ = waiting.send(message.clone());
        }
    }

    /// Plays one turn and answers the prompt.
    fn turn(&self, session: &Session, id: Option<Value>, prompt: &str) {
        let mut number = session.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let steps = script::turn(prompt, *number);
        *number += 1;
        let (mut reply, mut last_result) = (String::new(), String::new());
        let mut failure = None;
        let mut cancelled = false;
        for (index, step) in steps.iter().enumerate() {
            if session.interrupt.is_raised() || !effects::perform(step, &session.interrupt) {
                cancelled = true;
                break;
            }
            match step {
                Step::Say(text) => {
                    let text = self.settings_in(&text.replace("{result}", &last_result));
                    let text = with_history(&text, &session.id);
                    reply.push_str(&text);
                    self.chunk(&session.id, "agent_message_chunk", &json!(text));
                }
                Step::Request { method, params } => {
                    let mut params = params.clone();
                    params["sessionId"] = json!(session.id);
                    match self.request(session, method, params) {
                        Some(answer) => {
                            let answer = answer.get("result").unwrap_or(&answer["error"]);
                            reply.push_str(&answer.to_string());
                            let text = json!(answer.to_string());
                            self.chunk(&session.id, "agent_message_chunk", &text);
                        }
                        None => cancelled = true,
                    }
                }
                Step::Deaf => self.deaf.store(true, Ordering::Relaxed),
                Step::Thoughts { count, bytes } => {
                    let text = json!(script::long_text(*bytes));
                    (0..*count).for_each(|_| self.chunk(&session.id, "agent_thought_chunk", &text));
                }
                Step::Think(text) => self.chunk(&session.id, "agent_thought_chunk", &json!(text)),
                Step::Garbage(line) => self.output.send_raw(line),
                Step::Error { message, .. } => failure = Some(message.clone()),
                Step::Stamps { count, every_ms } => {
                    cancelled |= !self.stamps(session, *count, *every_ms);
                }
                Step::Permission(title) => cancelled |= !self.ask(session, title, index),
                Step::Tool { name, input, .. } => {
                    let call = format!("call-{number}-{index}");
                    self.update(
                        &session.id,
                        json!({"sessionUpdate": "tool_call", "toolCallId": call,
                        "title": name, "kind": "execute", "status": "pending", "rawInput": input}),
                    );
                    let outcome = effects::tool("", name, input, &session.interrupt);
                    let status = if outcome.is_some() { "completed" } else { "failed" };
                    let text = outcome.as_ref().map_or("", |(text, _)| text);
                    last_result = text.to_owned();
                    self.update(&session.id, json!({"sessionUpdate": "tool_call_update",
                        "toolCallId": call, "status": status,
                        "content": [{"type": "content", "content": {"type": "text", "text": text}}]}));
                    cancelled |= outcome.is_none();
                }
                _ => {}
            }
            if cancelled {
                break;
            }
        }
        session.append(&json!({"prompt": prompt, "reply": reply}));
        let id = id.unwrap_or(Value::Null);
        self.output.send(&match failure {
            Some(message) if !cancelled => {
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32603, "message": message}})
            }
            _ => {
                let reason =
                    if cancelled { "cancelled".to_owned() } else { script::stop_reason(&steps) };
                json!({"jsonrpc": "2.0", "id": id, "result": {"stopReason": reason,
                    "usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}}})
            }
        });
        for step in &steps {
            if let Step::Afterwards(count) = step {
                let text = json!("x".repeat(1 << 20));
                (0..*count).for_each(|_| self.chunk(&session.id, "agent_message_chunk", &text));
            }
        }
    }

    /// Writes the time again and again, at intervals that do not drift. Returns `false` when the turn was
    /// cancelled.
    fn stamps(&self, session: &Session, count: u64, every_ms: u64) -> bool {
        let begin = Instant::now();
        for number in 0..count {
            let due = begin + Duration::from_millis(number * every_ms);
            if session.interrupt.wait(due.saturating_duration_since(Instant::now())) {
                return false;
            }
            self.chunk(&session.id, "agent_message_chunk", &json!(script::stamp()));
        }
        true
    }

    /// Asks for permission. A title may be followed by ` :: ` and the command. Returns `false` when the turn was cancelled.
    fn ask(&self, session: &Session, words: &str, index: usize) -> bool {
        let (title, command) = match words.split_once(" :: ") {
            Some((title, command)) => (title, Some(command)),
            None => (words, None),
        };
        let mut call = json!({"toolCallId": format!("permission-{index}"), "title": title});
        if let Some(command) = command {
            call["rawInput"] = json!({"command": command});
        }
        let params = json!({"sessionId": session.id,
            "toolCall": call,
            "options": [
                {"optionId": "yes-always", "name": "Always", "kind": "allow_always"},
                {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
                {"optionId": "no", "name": "Reject", "kind": "reject_once"}]});
        let Some(answer) = self.request(session, "session/request_permission", params) else {
            return false;
        };
        let outcome = &answer["result"]["outcome"];
        let chosen = outcome["optionId"].as_str().unwrap_or("cancelled");
        let text = json!(format!("permission {title}: {chosen}"));
        self.chunk(&session.id, "agent_message_chunk", &text);
        outcome["outcome"] != "cancelled"
    }

    /// Returns the client's answer to a request, or `None` when the turn was cancelled.
    fn request(&self, session: &Session, method: &str, params: Value) -> Option<Value> {
        let (sender, answer): (Sender<Value>, Receiver<Value>) = channel();
        let id = {
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            *requests += 1;
            *requests
        };
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        self.output.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            if let Ok(answer) = answer.try_recv() {
                return Some(answer);
            }
            if session.interrupt.wait(Duration::from_millis(2)) {
                return None;
            }
        }
    }

    fn open(&self, id: &str, turns: usize) -> Arc<Session> {
        let session = Arc::new(Session {
            id: id.to_owned(),
            interrupt: Interrupt::default(),
            turns: Mutex::new(turns),
        });
        self.sessions().insert(id.to_owned(), session.clone());
        session
    }

    fn session(&self, id: &str) -> Option<Arc<Session>> {
        self.sessions().get(id).cloned()
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chunk(&self, session: &str, kind: &str, text: &Value) {
        let content = json!({"type": "text", "text": text});
        self.update(session, json!({"sessionUpdate": kind, "content": content}));
    }

    fn update(&self, session: &str, update: Value) {
        let params = json!({"sessionId": session, "update": update});
        self.output.send(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    }
}

impl Session {
    fn append(&self, record: &Value) {
        let path = file(&self.id);
        let _ = fs::create_dir_all(path.parent().expect("a folder"));
        let file = OpenOptions::new().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| writeln!(file, "{record}"));
    }
}

/// Returns the turns of a session, or `None` for an unknown id.
fn history(session: &str) -> Option<Vec<Value>> {
    let text = fs::read_to_string(file(session)).ok()?;
    let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Some(records.filter(|record| record.get("prompt").is_some()).collect())
}

/// Replaces `{history}` in a text by the earlier prompts, as far as this process knows them.
fn with_history(text: &str, session: &str) -> String {
    if !text.contains("{history}") {
        return text.to_owned();
    }
    let turns = history(session).unwrap_or_default();
    let prompts: Vec<&str> = turns.iter().filter_map(|turn| turn["prompt"].as_str()).collect();
    text.replace("{history}", &prompts.join("|"))
}

fn file(session: &str) -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_else(|| "/tmp".into());
    let name: String = session.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    home.join(".hob-scripted").join(format!("{name}.jsonl"))
}

/// Returns the text blocks of a prompt.
fn prompt_text(params: &Value) -> String {
    let blocks = params["prompt"].as_array().cloned().unwrap_or_default();
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    texts.join("\n")
}
