//! The scripted agent in stream-json: JSON lines both ways, as
//! `claude -p --input-format stream-json --output-format stream-json --verbose` speaks them.

use std::io::BufRead;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use uuid::Uuid;

use super::effects::{self, Interrupt, Lines};
use super::flag;
use super::terminal::{Transcript, Unfinished};
use crate::script::{self, Step};

/// Hob's prompt for a history that ends with results of tools. The agent goes on with the prompt before them.
const CONTINUE_PROMPT: &str = "Continue with these results.";
/// The name of the error for an answer that reached the limit of output tokens.
const OUTPUT_LIMIT: &str = "max_output_tokens";

pub fn run(arguments: &[String]) -> ExitCode {
    let resumed = flag(arguments, "--resume");
    let session = resumed.or(flag(arguments, "--session-id"));
    // It writes no transcript, but resumes from one that was written for it.
    let before = resumed.and_then(|id| Transcript::open(None, Some(id)).ok());
    let unfinished = before.as_ref().and_then(Transcript::unfinished);
    let before = before.map(|transcript| transcript.history());
    let face = Arc::new(Face {
        session: session.map_or_else(|| Uuid::new_v4().to_string(), str::to_owned),
        partial: arguments.iter().any(|argument| argument == "--include-partial-messages"),
        interrupt: Interrupt::default(),
        output: Lines::default(),
        said: Mutex::new(before.into_iter().collect()),
        unfinished: Mutex::new(unfinished),
        cost: Mutex::default(),
        settings: Mutex::new(Settings::new(arguments)),
    });
    // Prompts queue; each gets a result of its own.
    let (prompts, queue) = channel::<String>();
    let player = {
        let face = face.clone();
        std::thread::spawn(move || {
            let mut failed = false;
            for (number, prompt) in queue.into_iter().enumerate() {
                failed = face.turn(&prompt, number);
            }
            failed
        })
    };
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        match message["type"].as_str() {
            Some("user") => drop(prompts.send(text_of(&message["message"]["content"]))),
            Some("control_request") => face.control(&message),
            _ => {}
        }
    }
    drop(prompts);
    let failed = player.join().unwrap_or(true);
    effects::linger_if_stubborn();
    if failed { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

struct Face {
    session: String,
    partial: bool,
    interrupt: Interrupt,
    output: Lines,
    /// All earlier messages.
    said: Mutex<Vec<String>>,
    /// The prompt that a history with results of tools ends with.
    unfinished: Mutex<Option<Unfinished>>,
    /// What the process has cost so far, in USD.
    cost: Mutex<f64>,
    settings: Mutex<Settings>,
}

const MODES: [&str; 4] = ["default", "acceptEdits", "plan", "dontAsk"];
const MODELS: [&str; 2] = ["default", "large"];
/// The mode in which the program must have been started to have it, or with the argument for it.
const BYPASS: &str = "bypassPermissions";
const MAY_BYPASS: &str = "--allow-dangerously-skip-permissions";

/// The permission mode and the model; `{mode}` and `{model}` in a text are replaced by what holds.
struct Settings {
    mode: String,
    model: String,
    may_bypass: bool,
}

impl Settings {
    fn new(arguments: &[String]) -> Settings {
        let value = |name: &str| {
            let found = arguments.iter().find_map(|argument| argument.strip_prefix(name));
            found.unwrap_or("default").to_owned()
        };
        let mode = value("--permission-mode=");
        let may_bypass = mode == BYPASS || arguments.iter().any(|argument| argument == MAY_BYPASS);
        Settings { may_bypass, mode, model: value("--model=") }
    }

    /// Answers a control request about the settings.
    fn control(&mut self, request: &Value) -> Result<Value, String> {
        match request["subtype"].as_str() {
            Some("initialize") => {
                let models = MODELS.map(|model| json!({"value": model, "displayName": model}));
                Ok(json!({"commands": commands(), "models": models,
                    "current_permission_mode": self.mode}))
            }
            Some("set_permission_mode") => {
                let mode = request["mode"].as_str().unwrap_or_default();
                if !(MODES.contains(&mode) || mode == BYPASS && self.may_bypass) {
                    return Err(format!("Cannot set permission mode to {mode}"));
                }
                self.mode = mode.to_owned();
                Ok(json!({"mode": mode}))
            }
            Some("set_model") => {
                let model = request["model"].as_str().unwrap_or_default();
                if !MODELS.contains(&model) {
                    return Err(format!("Model '{model}' not found"));
                }
                self.model = model.to_owned();
                Ok(json!({"model": model}))
            }
            _ => Ok(json!({})),
        }
    }
}

/// Returns a built-in command, and those of the project.
fn commands() -> Vec<Value> {
    let names = std::fs::read_dir(".claude/commands").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| Some(entry.path().file_stem()?.to_str()?.to_owned()));
    let own = names.map(|name| json!({"name": name, "description": "of the project"}));
    own.chain([json!({"name": "clear", "description": "", "builtin": true})]).collect()
}

impl Face {
    fn control(&self, message: &Value) {
        if message["request"]["subtype"] == "interrupt" {
            self.interrupt.raise();
        }
        let answer = self.settings().control(&message["request"]);
        let id = &message["request_id"];
        let response = match answer {
            Ok(answer) => json!({"subtype": "success", "request_id": id, "response": answer}),
            Err(error) => json!({"subtype": "error", "request_id": id, "error": error}),
        };
        self.output.send(&json!({"type": "control_response", "response": response}));
    }

    /// Plays one turn. Returns `true` when it failed.
    fn turn(&self, prompt: &str, number: usize) -> bool {
        self.interrupt.clear();
        let unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner).take();
        let unfinished = unfinished.filter(|_| prompt == CONTINUE_PROMPT);
        let steps = match &unfinished {
            Some(begun) => {
                self.note(prompt);
                script::after_calls(&begun.prompt, begun.calls)
            }
            None => self.steps(prompt, number),
        };
        self.output.send(&json!({"type": "system", "subtype": "init", "session_id": self.session,
            "tools": ["Bash", "Read"], "model": "claude-scripted"}));
        let mut text = String::new();
        let mut last_result = unfinished.map_or_else(String::new, |begun| begun.last_result);
        let mut failure = None;
        let mut interrupted = false;
        let mut messages = 0;
        'turn: for message in script::messages(&steps) {
            messages += 1;
            let id = format!("msg_{}", Uuid::new_v4().simple());
            let (mut calls, mut results) = (Vec::new(), Vec::new());
            for step in &message {
                if self.interrupt.is_raised() || !effects::perform(step, &self.interrupt) {
                    interrupted = true;
                    break 'turn;
                }
                match step {
                    Step::Say(said) => {
                        let said = &said.replace("{result}", &last_result);
                        let (mode, model) = {
                            let settings = self.settings();
                            (settings.mode.clone(), settings.model.clone())
                        };
                        let said = &said.replace("{mode}", &mode).replace("{model}", &model);
                        text = said.clone();
                        if self.partial {
                            self.pieces(said);
                        }
                        self.note(said);
                        self.assistant(&id, json!({"type": "text", "text": said}));
                    }
                    Step::Think(thought) => self.assistant(
                        &id,
                        json!({"type": "thinking", "thinking": thought, "signature": "c2ln"}),
                    ),
                    Step::Tool { name, input, .. } => {
                        let call = format!("toolu_{}", Uuid::new_v4().simple());
                        if self.partial {
                            self.call_pieces(&call, name, input);
                        }
                        self.assistant(
                            &id,
                            json!({"type": "tool_use", "id": call, "name": name, "input": input}),
                        );
                        calls.push((call, name, input));
                    }
                    Step::Cost(usd) => *self.cost() += usd,
                    Step::Garbage(line) => self.output.send_raw(line),
                    Step::Error { status, message } => {
                        failure = Some((*status, format!("API Error: {status} {message}")));
                    }
                    _ => {}
                }
            }
            self.message_end();
            for (call, name, input) in calls {
                let Some(result) = effects::tool(&call, name, input, &self.interrupt) else {
                    interrupted = true;
                    break 'turn;
                };
                last_result = result.0.clone();
                results.push((call, result));
            }
            for (call, (output, is_error)) in results {
                let block = json!({"type": "tool_result", "tool_use_id": call, "content": output,
                    "is_error": is_error});
                self.output.send(&json!({"type": "user", "session_id": self.session,
                    "message": {"role": "user", "content": [block]}}));
            }
        }
        let failed = failure.is_some() || interrupted;
        let mut stop_reason = if failed { Value::Null } else { json!(script::stop_reason(&steps)) };
        // The program reports an answer that reached the limit of output tokens as an error.
        let is_cut = stop_reason == "max_tokens";
        let result = match &failure {
            Some((_, message)) => message.clone(),
            None if is_cut => self.output_limit(),
            None => text,
        };
        if is_cut {
            stop_reason = json!("stop_sequence");
        }
        let subtype = if interrupted { "error_during_execution" } else { "success" };
        self.output.send(
            &json!({"type": "result", "subtype": subtype, "is_error": failed || is_cut,
            "result": result, "stop_reason": stop_reason, "session_id": self.session,
            "num_turns": number + 1, "duration_ms": 1,
            "api_error_status": failure.map(|(status, _)| status),
            "total_cost_usd": *self.cost(), "api_error": is_cut.then_some(OUTPUT_LIMIT),
            "usage": {"input_tokens": 10 * messages, "output_tokens": 5 * messages}}),
        );
        failed
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cost(&self) -> MutexGuard<'_, f64> {
        self.cost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the steps of a prompt, with `{history}` replaced.
    fn steps(&self, prompt: &str, number: usize) -> Vec<Step> {
        let history = self.said.lock().unwrap_or_else(PoisonError::into_inner).join(" | ");
        self.note(prompt);
        let steps = script::turn(prompt, number).into_iter().map(|step| match step {
            Step::Say(text) => Step::Say(text.replace("{history}", &history)),
            step => step,
        });
        steps.collect()
    }

    fn note(&self, said: &str) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).push(said.to_owned());
    }

    /// Writes a text in small pieces.
    fn pieces(&self, text: &str) {
        let letters: Vec<char> = text.chars().collect();
        for piece in letters.chunks((letters.len() / 16).max(4)) {
            let delta = json!({"type": "text_delta", "text": piece.iter().collect::<String>()});
            self.output.send(&json!({"type": "stream_event", "session_id": self.session,
                "event": {"type": "content_block_delta", "index": 0, "delta": delta}}));
        }
    }

    /// Writes a call as it begins, and its arguments in small pieces.
    fn call_pieces(&self, id: &str, name: &str, input: &Value) {
        let send = |event: Value| {
            self.output.send(&json!({"type": "stream_event", "session_id": self.session,
                "event": event}));
        };
        let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
        send(json!({"type": "content_block_start", "index": 1, "content_block": block}));
        let letters: Vec<char> = input.to_string().chars().collect();
        for piece in letters.chunks((letters.len() / 16).max(4)) {
            let piece: String = piece.iter().collect();
            let delta = json!({"type": "input_json_delta", "partial_json": piece});
            send(json!({"type": "content_block_delta", "index": 1, "delta": delta}));
        }
    }

    /// Writes that the answer has reached the limit of output tokens, and returns the words.
    fn output_limit(&self) -> String {
        let words = "API Error: Claude's response exceeded the 128000 output token maximum.";
        self.output.send(&json!({"type": "assistant", "session_id": self.session,
            "error": OUTPUT_LIMIT, "message": {"id": Uuid::new_v4().to_string(),
                "type": "message", "role": "assistant", "model": "<synthetic>",
                "content": [{"type": "text", "text": words}], "stop_reason": "stop_sequence",
                "usage": {"input_tokens": 0, "output_tokens": 0}}}));
        words.to_owned()
    }

    fn message_end(&self) {
        if self.partial {
            self.output.send(&json!({"type": "stream_event", "session_id": self.session,
                "event": {"type": "message_stop"}}));
        }
    }

    fn assistant(&self, id: &str, block: Value) {
        self.output.send(&json!({"type": "assistant", "session_id": self.session,
            "message": {"id": id, "type": "message", "role": "assistant", "model": "claude-scripted",
                "content": [block], "stop_reason": null,
                "usage": {"input_tokens": 10, "output_tokens": 5}}}));
    }
}

/// Returns the text of a message's content, which is a string or blocks.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        blocks => {
            let blocks = blocks.as_array().cloned().unwrap_or_default();
            let texts: Vec<&str> =
                blocks.iter().filter_map(|block| block["text"].as_str()).collect();
            texts.join("\n")
        }
    }
}
