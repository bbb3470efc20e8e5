//! The built-in demo agent: no model, no network, so that everything else can be tried at once.
//!
//! It runs as a child like any agent and prints what `claude -p --output-format json` prints.

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

/// The hidden first argument that makes the executable the demo agent.
pub const ARGUMENT: &str = "__demo-agent";

/// Answers the prompt that comes after `-p`, or on standard input.
pub fn run() -> ExitCode {
    let mut args = std::env::args().skip_while(|arg| arg != "-p").skip(1).peekable();
    let prompt = match args.next_if(|arg| !arg.starts_with("--")) {
        Some(prompt) => prompt,
        None => {
            let mut text = String::new();
            let _ = std::io::stdin().read_to_string(&mut text);
            text
        }
    };
    let answer = answer(&prompt);
    std::thread::sleep(answer.after);
    let result = json!({
        "type": "result", "subtype": "success", "is_error": false,
        "result": answer.text, "stop_reason": "end_turn",
    });
    println!("{result}");
    ExitCode::SUCCESS
}

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    text: String,
    after: Duration,
}

fn answer(prompt: &str) -> Answer {
    let at_once = |text: String| Answer { text, after: Duration::ZERO };
    let prompt = prompt.trim();
    if let Some((_, wanted)) = prompt.split_once("Reply with JSON:")
        && serde_json::from_str::<serde_json::Value>(wanted.trim()).is_ok()
    {
        return at_once(wanted.trim().to_owned());
    }
    if let Some(seconds) = prompt.strip_prefix("sleep ").and_then(|text| text.parse::<u32>().ok()) {
        let after = Duration::from_secs(seconds.into());
        return Answer { text: format!("slept for {seconds} s"), after };
    }
    at_once(format!("This is Hob's demo agent. You said: {prompt}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let text = |prompt| answer(prompt).text;
        assert_eq!(text("hi"), "This is Hob's demo agent. You said: hi");
        assert_eq!(text(r#"Reply with JSON: {"hello":"world"}"#), r#"{"hello":"world"}"#);
        assert_eq!(
            text("Reply with JSON: {"),
            "This is Hob's demo agent. You said: Reply with JSON: {"
        );
        assert_eq!(answer("sleep 2").after, Duration::from_secs(2));
    }
}
