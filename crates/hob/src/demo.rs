//! The built-in demo agent. It needs no model and no network, so that users can try Hob without
//! installing an agent.
//!
//! It runs as a child process like any agent, and speaks the Agent Client Protocol, version 1. It
//! has no state, so every conversation can be resumed.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

/// The hidden subcommand that runs the demo agent.
pub const ARGUMENT: &str = "__demo-agent";

/// Answers messages on standard input until it ends.
pub fn run() -> ExitCode {
    let demo = Arc::new(Demo::default());
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if let Ok(message) = serde_json::from_str::<Value>(&line) {
            demo.receive(&message);
        }
    }
    ExitCode::SUCCESS
}

/// A message from the client to a running turn.
enum TurnInput {
    Cancel,
    Answer(Value),
}

#[derive(Default)]
struct Demo {
    /// The running turn of each session.
    turns: Mutex<HashMap<String, Sender<TurnInput>>>,
}

impl Demo {
    fn receive(self: &Arc<Demo>, message: &Value) {
        let (id, params) = (message["id"].clone(), &message["params"]);
        let session = params["sessionId"].as_str().unwrap_or_default().to_owned();
        let reply = |result: Value| send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
        match message["method"].as_str() {
            Some("initialize") => reply(json!({
                "protocolVersion": 1,
                "agentCapabilities": {"loadSession": false,
                    "sessionCapabilities": {"resume": {}, "close": {}}},
                "agentInfo": {"name": "hob-demo", "title": "Hob's demo agent",
                    "version": env!("CARGO_PKG_VERSION")},
                "authMethods": [],
            })),
            Some("session/new") => {
                reply(json!({"sessionId": uuid::Uuid::new_v4().to_string()}));
            }
            Some("session/resume" | "session/close") => reply(json!({})),
            Some("session/prompt") => {
                let blocks = params["prompt"].as_array().cloned().unwrap_or_default();
                let texts: Vec<&str> =
                    blocks.iter().filter_map(|block| block["text"].as_str()).collect();
                let prompt = texts.join("\n");
                let (sender, inputs) = channel();
                self.turns().insert(session.clone(), sender);
                let demo = self.clone();
                std::thread::spawn(move || {
                    let reason = turn(&session, &prompt, &inputs);
                    demo.turns().remove(&session);
                    let result = json!({"stopReason": reason});
                    send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
                });
            }
            Some("session/cancel") => self.tell(&session, || TurnInput::Cancel),
            // The answer to a permission request, whose id is that of the session.
            None => {
                let session = id.as_str().unwrap_or_default();
                self.tell(session, || TurnInput::Answer(message["result"]["outcome"].clone()));
            }
            Some(_) if id.is_null() => {}
            Some(_) => send(&json!({"jsonrpc": "2.0", "id": id,
                "error": {"code": -32601, "message": "Method not found"}})),
        }
    }

    fn tell(&self, session: &str, word: impl FnOnce() -> TurnInput) {
        if let Some(turn) = self.turns().get(session) {
            let _ = turn.send(word());
        }
    }

    fn turns(&self) -> std::sync::MutexGuard<'_, HashMap<String, Sender<TurnInput>>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a turn and returns its stop reason.
fn turn(session: &str, prompt: &str, inputs: &Receiver<TurnInput>) -> &'static str {
    let answer = answer(prompt);
    if let Some(title) = &answer.asks {
        send(&json!({"jsonrpc": "2.0", "id": session, "method": "session/request_permission",
            "params": {"sessionId": session, "toolCall": {"toolCallId": "demo", "title": title},
                "options": [{"optionId": "allow", "name": "Allow", "kind": "allow_once"},
                    {"optionId": "reject", "name": "Reject", "kind": "reject_once"}]}}));
        let Ok(TurnInput::Answer(outcome)) = inputs.recv() else { return "cancelled" };
        let chosen = outcome["optionId"].as_str().unwrap_or("nothing");
        say(session, &format!("You chose: {chosen}. "));
    }
    match inputs.recv_timeout(answer.after) {
        Err(RecvTimeoutError::Timeout) => {}
        _ => return "cancelled",
    }
    // In chunks, like a model.
    for piece in answer.text.split_inclusive(' ') {
        say(session, piece);
    }
    "end_turn"
}

fn say(session: &str, text: &str) {
    let update = json!({"sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": text}});
    send(&json!({"jsonrpc": "2.0", "method": "session/update",
        "params": {"sessionId": session, "update": update}}));
}

fn send(message: &Value) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{message}").and_then(|()| stdout.flush());
}

#[derive(Debug, PartialEq, Eq)]
struct DemoAnswer {
    text: String,
    after: Duration,
    asks: Option<String>,
}

fn answer(prompt: &str) -> DemoAnswer {
    let at_once = |text: String| DemoAnswer { text, after: Duration::ZERO, asks: None };
    let prompt = prompt.trim();
    if let Some((_, wanted)) = prompt.split_once("Reply with JSON:")
        && serde_json::from_str::<Value>(wanted.trim()).is_ok()
    {
        return at_once(wanted.trim().to_owned());
    }
    if let Some(seconds) = prompt.strip_prefix("sleep ").and_then(|text| text.parse::<u32>().ok()) {
        let after = Duration::from_secs(seconds.into());
        return DemoAnswer { after, ..at_once(format!("slept for {seconds} s")) };
    }
    if let Some(what) = prompt.strip_prefix("ask ") {
        return DemoAnswer { asks: Some(what.to_owned()), ..at_once("Thank you.".to_owned()) };
    }
    at_once(format!("This is Hob's demo agent. You said: {prompt}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_follows_the_prompt() {
        let text = |prompt| answer(prompt).text;
        assert_eq!(text("hi"), "This is Hob's demo agent. You said: hi");
        assert_eq!(text(r#"Reply with JSON: {"hello":"world"}"#), r#"{"hello":"world"}"#);
        assert_eq!(
            text("Reply with JSON: {"),
            "This is Hob's demo agent. You said: Reply with JSON: {"
        );
        assert_eq!(answer("sleep 2").after, Duration::from_secs(2));
        assert_eq!(answer("ask to write").asks.as_deref(), Some("to write"));
    }
}
