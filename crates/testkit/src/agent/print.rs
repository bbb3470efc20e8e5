//! The scripted agent as `claude -p PROMPT --output-format json`: one JSON result.

use std::io::Read;
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
        "session_id": Uuid::new_v4().to_string(),
        "usage": {"input_tokens": 10, "output_tokens": 5},
        "permission_denials": [],
    });
    println!("{result}");
    if error.is_some() { ExitCode::from(1) } else { ExitCode::SUCCESS }
}
