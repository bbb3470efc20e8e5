//! Plays turns: what appears on the screen and in the transcript, and when.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::Terminal;
use super::new_id;
use crate::agent::effects;
use crate::script::{self, Step};

const INTERRUPTED: &str = "[Request interrupted by user]";
const INTERRUPTED_TOOL: &str = "[Request interrupted by user for tool use]";
const DENIED: &str = "The user doesn't want to proceed with this tool use.";

/// How a turn ended.
enum End {
    Finished,
    Interrupted,
    /// Before the first token: the prompt goes back into the box.
    Restored,
}

/// Plays one prompt after the other.
pub fn run(terminal: &Terminal, turns: &Receiver<String>) {
    let mut number = 0;
    for first in turns {
        let mut next = Some(first);
        while let Some(prompt) = next.take() {
            let end = turn(terminal, &prompt, number);
            number += 1;
            let mut state = terminal.state();
            terminal.interrupt.clear();
            if matches!(end, End::Restored) {
                state.text = prompt;
            }
            next = state.queued.pop_front();
            if next.is_some() {
                terminal.transcript.note(json!({"type": "queue-operation", "operation": "dequeue",
                    "sessionId": terminal.transcript.session()}));
            }
            state.busy = next.is_some();
            drop(state);
            terminal.status_line.update();
            terminal.screen.title("✳");
            terminal.draw();
        }
    }
}

fn turn(terminal: &Terminal, prompt: &str, number: usize) -> End {
    let transcript = &terminal.transcript;
    let history = transcript.history();
    let steps: Vec<Step> = script::turn(prompt, number)
        .into_iter()
        .map(|step| match step {
            Step::Say(text) => Step::Say(text.replace("{history}", &history)),
            step => step,
        })
        .collect();
    terminal.screen.title("⠂");
    if steps.contains(&Step::Torn) {
        transcript.tear();
    }
    let shuffled = number == 0 && steps.contains(&Step::Shuffle);
    if shuffled {
        transcript.hold();
    }
    transcript.record(json!({"type": "user", "message": {"role": "user", "content": prompt},
        "promptId": new_id(), "permissionMode": "default", "origin": {"kind": "human"},
        "promptSource": "typed"}));
    if number == 0 {
        transcript.record(json!({"type": "attachment", "attachment": {"type": "skill_listing"}}));
    }
    let end = messages(terminal, &steps);
    if shuffled {
        transcript.release();
    }
    end
}

fn messages(terminal: &Terminal, steps: &[Step]) -> End {
    let (transcript, interrupt) = (&terminal.transcript, &terminal.interrupt);
    let mut shown_anything = false;
    let count = script::messages(steps).len();
    let mut late = Duration::ZERO;
    let mut last_result = String::new();
    for message in script::messages(steps) {
        let id = format!("msg_{}", new_id());
        let mut blocks: Vec<Value> = Vec::new();
        let mut error = None;
        for step in &message {
            if let Step::Retry(_) = step {
                terminal.screen.line("API error · Retrying in 1s · attempt 1/10");
                terminal.draw();
            }
            if interrupt.is_raised() || !effects::perform(step, interrupt) {
                let retrying = matches!(step, Step::Retry(_));
                return interrupted(terminal, shown_anything && !retrying, &blocks);
            }
            match step {
                Step::Say(text) => {
                    let text = text.replace("{result}", &last_result);
                    terminal.screen.line(&format!("● {text}"));
                    blocks.push(json!({"type": "text", "text": text}));
                }
                Step::Think(text) => {
                    blocks.push(json!({"type": "thinking", "thinking": text, "signature": "c2ln"}));
                }
                Step::Tool { name, input, .. } => {
                    terminal.screen.line(&format!("● {name}({input})"));
                    let call = format!("toolu_{}", new_id());
                    blocks.push(
                        json!({"type": "tool_use", "id": call, "name": name, "input": input}),
                    );
                }
                Step::Error { status, message } => error = Some((*status, message.clone())),
                Step::Cost(usd) => terminal.status_line.spend(*usd),
                Step::Late(ms) => late = Duration::from_millis(*ms),
                Step::Flood(length) => terminal.screen.flood(*length),
                Step::Permission(title) if !permission(terminal, title) => {
                    return denied(terminal, &id, &blocks, title);
                }
                _ => {}
            }
            shown_anything |= !blocks.is_empty();
            terminal.draw();
        }
        std::thread::sleep(late);
        if let Some((status, message)) = error {
            assistant_error(terminal, status, &message);
            break;
        }
        let calls: Vec<Value> =
            blocks.iter().filter(|b| b["type"] == "tool_use").cloned().collect();
        let reason =
            if calls.is_empty() { script::stop_reason(steps) } else { "tool_use".to_owned() };
        for block in &blocks {
            assistant(terminal, &id, block, &reason);
        }
        for call in calls {
            let name = call["name"].as_str().unwrap_or_default();
            let id = call["id"].as_str().unwrap_or_default();
            let Some((text, is_error)) = effects::tool(id, name, &call["input"], interrupt) else {
                tool_result(terminal, &call["id"], DENIED, true);
                user_text(terminal, INTERRUPTED_TOOL);
                return End::Interrupted;
            };
            tool_result(terminal, &call["id"], &text, is_error);
            last_result = text;
        }
    }
    transcript.record(json!({"type": "system", "subtype": "turn_duration", "durationMs": 5,
        "messageCount": count, "isMeta": false}));
    End::Finished
}

fn assistant(terminal: &Terminal, id: &str, block: &Value, reason: &str) {
    terminal.transcript.record(json!({"type": "assistant", "requestId": "req_scripted",
        "message": {"id": id, "type": "message", "role": "assistant", "model": "claude-scripted",
            "content": [block], "stop_reason": reason, "stop_sequence": null,
            "usage": {"input_tokens": 10, "output_tokens": 5}}}));
}

fn synthetic(terminal: &Terminal, text: &str, is_error: bool, extra: Value) {
    let mut record = json!({"type": "assistant", "isApiErrorMessage": is_error,
        "message": {"id": new_id(), "type": "message", "role": "assistant", "model": "<synthetic>",
            "content": [{"type": "text", "text": text}], "stop_reason": "stop_sequence",
            "stop_sequence": "", "usage": {"input_tokens": 0, "output_tokens": 0}}});
    for (key, value) in extra.as_object().into_iter().flatten() {
        record[key] = value.clone();
    }
    terminal.transcript.record(record);
}

fn assistant_error(terminal: &Terminal, status: u16, message: &str) {
    let kind = match status {
        429 => "rate_limit",
        401 | 403 => "authentication_failed",
        400..=499 => "invalid_request",
        500..=599 => "server_error",
        _ => "unknown",
    };
    let text = format!("API Error: {status} {message}");
    terminal.screen.line(&text);
    synthetic(terminal, &text, true, json!({"error": kind, "apiErrorStatus": status}));
}

fn tool_result(terminal: &Terminal, call: &Value, text: &str, is_error: bool) {
    let mut block = json!({"type": "tool_result", "tool_use_id": call, "content": text});
    if is_error {
        block["is_error"] = json!(true);
    }
    terminal.transcript.record(json!({"type": "user",
        "message": {"role": "user", "content": [block]}, "toolUseResult": text}));
}

fn user_text(terminal: &Terminal, text: &str) {
    let content = json!([{"type": "text", "text": text}]);
    terminal
        .transcript
        .record(json!({"type": "user", "message": {"role": "user", "content": content}}));
}

/// Handles Escape while waiting or streaming.
fn interrupted(terminal: &Terminal, shown: bool, blocks: &[Value]) -> End {
    if !shown {
        return End::Restored;
    }
    let text = blocks.iter().filter_map(|block| block["text"].as_str()).collect::<String>();
    synthetic(terminal, &text, false, json!({}));
    user_text(terminal, INTERRUPTED);
    End::Interrupted
}

/// Shows the dialog and waits for a key. Returns `false` when denied.
fn permission(terminal: &Terminal, title: &str) -> bool {
    let (sender, answer) = channel();
    terminal.state().dialog = Some(sender);
    terminal.screen.title("✳");
    terminal.screen.permission_dialog(title);
    let letter = loop {
        match answer.recv() {
            Ok(letter @ ('1' | '2' | '3')) => break letter,
            Ok(_) => {}
            Err(_) => break '3',
        }
    };
    terminal.state().dialog = None;
    terminal.screen.title("⠂");
    terminal.draw();
    letter != '3'
}

fn denied(terminal: &Terminal, id: &str, blocks: &[Value], title: &str) -> End {
    for block in blocks {
        assistant(terminal, id, block, "tool_use");
    }
    let call = json!(format!("toolu_{}", new_id()));
    let input = json!({"command": title});
    let block = json!({"type": "tool_use", "id": call, "name": "Bash", "input": input});
    assistant(terminal, id, &block, "tool_use");
    tool_result(terminal, &call, DENIED, true);
    user_text(terminal, INTERRUPTED_TOOL);
    End::Interrupted
}
