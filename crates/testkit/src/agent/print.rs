//! The scripted agent as `claude -p PROMPT --output-format json`: one JSON result.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use uuid::Uuid;

use super::effects::{self, Interrupt};
use crate::script::{self, Step};

pub fn run(arguments: &[String]) -> ExitCode {
    let at = arguments.iter().position(|argument| argument == "-p").unwrap_or_default();
    let prompt = match arguments.get(at + 1).filter(|argument| !argument.starts_with('-')) {
        Some(prompt) => prompt.clone(),
        None => {
            let mut text = String::new();
            let _ = std::io::stdin().read_to_string(&mut text);
            text
        }
    };
    if prompt.is_empty() {
        eprintln!("Error: Input must be provided either through stdin or as a prompt argument");
        return ExitCode::from(1);
    }
    let session = Uuid::new_v4().to_string();
    record(&session, &prompt);
    let steps = script::turn(&prompt, 0);
    let interrupt = Interrupt::default();
    let mut text = String::new();
    let mut error = None;
    for step in &steps {
        effects::perform(step, &interrupt);
        match step {
            Step::Say(said) => text = said.clone(),
            Step::Tool { name, input, .. } => drop(effects::tool("", name, input, &interrupt)),
            Step::Garbage(line) => println!("{line}"),
            Step::Error { status, message } => {
                error = Some((*status, format!("API Error: {status} {message}")));
            }
            _ => {}
        }
    }
    let stop_reason = match &error {
        Some(_) => "stop_sequence".to_owned(),
        None => script::stop_reason(&steps),
    };
    let result = json!({
        "type": "result",
        "subtype": "success",
        "is_error": error.is_some(),
        "api_error_status": error.as_ref().map(|(status, _)| status),
        "duration_ms": 1,
        "num_turns": 1,
        "result": error.as_ref().map_or(&text, |(_, message)| message),
        "stop_reason": stop_reason,
        "session_id": session,
        "usage": {"input_tokens": 10, "output_tokens": 5},
        "permission_denials": [],
    });
    println!("{result}");
    if error.is_some() { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

/// Leaves a transcript, as the real CLI does.
fn record(session: &str, prompt: &str) {
    let folder = std::env::var_os("CLAUDE_CONFIG_DIR").map(PathBuf::from).unwrap_or_else(|| {
        PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".claude")
    });
    let cwd = std::env::current_dir().unwrap_or_default().display().to_string();
    let name = cwd.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let project = folder.join("projects").join(name);
    let record = json!({"type": "user", "uuid": Uuid::new_v4().to_string(), "parentUuid": null,
        "sessionId": session, "cwd": cwd, "timestamp": "2026-01-02T03:04:05Z",
        "message": {"role": "user", "content": prompt}});
    // A folder that is not writable is no reason to fail.
    let _ = std::fs::create_dir_all(&project).and_then(|()| {
        std::fs::write(project.join(format!("{session}.jsonl")), format!("{record}\n"))
    });
}
