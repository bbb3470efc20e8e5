//! `claude -p --output-format json`: one prompt, one JSON result, one process.
//!
//! The real CLI has these habits:
//! - It waits three seconds on a silent open standard input, so it gets `/dev/null` or the prompt.
//! - On an API error it exits 1 with the message in the JSON on standard *output*; `subtype` stays
//!   `success`, so only `is_error` counts.
//! - It treats a prompt that starts with `/` as a command and `@` as a mention. One character in front
//!   makes them text.

use hob_child::Exit;
use hob_domain::{RunReply, RunRequest};
use serde::Deserialize;

use crate::claude::input;

/// Longer prompts do not fit one argument (the kernel's limit is 128 KiB).
const MAX_ARGUMENT_BYTES: usize = 120 << 10;

/// The arguments and standard input of a run.
#[derive(Debug, PartialEq, Eq)]
pub struct Invocation {
    pub args: Vec<String>,
    /// The prompt, if it cannot be an argument.
    pub stdin: Option<String>,
}

/// Builds the invocation of a run. Its arguments follow the agent's own command.
pub fn invocation(request: &RunRequest) -> Invocation {
    let prompt = input::plain(&request.prompt);
    // A prompt that looks like a flag, is too long or contains NUL goes through standard input.
    let by_stdin =
        prompt.starts_with('-') || prompt.len() > MAX_ARGUMENT_BYTES || prompt.contains('\0');
    let mut args = vec!["-p".to_owned()];
    let stdin = if by_stdin {
        Some(prompt)
    } else {
        args.push(prompt);
        None
    };
    args.extend(["--output-format".to_owned(), "json".to_owned()]);
    for (flag, value) in [("--model", &request.model), ("--append-system-prompt", &request.system)]
    {
        match value {
            // A value that starts with a dash must not become a flag.
            Some(value) if value.starts_with('-') => args.push(format!("{flag}={value}")),
            Some(value) => args.extend([flag.to_owned(), value.clone()]),
            None => {}
        }
    }
    Invocation { args, stdin }
}

/// The fields of the result that Hob reads.
#[derive(Debug, Deserialize)]
struct ResultRecord {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    is_error: bool,
    result: Option<String>,
    stop_reason: Option<String>,
    subtype: Option<String>,
    #[serde(default)]
    errors: Vec<String>,
}

/// Why the output contains no answer.
#[derive(Debug, PartialEq, Eq)]
pub struct PrintFailure {
    pub message: String,
    pub stop_reason: String,
}

/// Reads the answer from the program's standard output. A reply counts only if the program succeeded.
pub fn read_result(stdout: &str, exit: Exit) -> Result<RunReply, PrintFailure> {
    let failure = |message: String, stop_reason: Option<String>| PrintFailure {
        message,
        stop_reason: stop_reason.unwrap_or_else(|| "error".to_owned()),
    };
    let Some(record) = find_result(stdout) else {
        let said = last_line(stdout);
        return Err(failure(
            match (exit.success(), said) {
                (false, None) => format!("the agent ended with {exit}"),
                (false, Some(said)) => format!("the agent ended with {exit}: {said}"),
                (true, _) => "the agent ended without a result".to_owned(),
            },
            None,
        ));
    };
    if record.is_error || !exit.success() || record.result.is_none() {
        let message = record
            .result
            .filter(|text| !text.trim().is_empty())
            .or_else(|| (!record.errors.is_empty()).then(|| record.errors.join("; ")))
            .or_else(|| record.subtype.filter(|subtype| subtype != "success"))
            .unwrap_or_else(|| format!("the agent ended with {exit}"));
        let stop_reason = record.stop_reason.filter(|_| record.is_error);
        return Err(failure(message, stop_reason));
    }
    Ok(RunReply {
        text: record.result.unwrap_or_default(),
        stop_reason: record.stop_reason.unwrap_or_else(|| "end_turn".to_owned()),
    })
}

/// Finds the result record: the whole output, the last element of an array (`--verbose`), or the last
/// line that is a record (wrappers print before it).
fn find_result(stdout: &str) -> Option<ResultRecord> {
    let is_result = |record: &ResultRecord| record.kind.as_deref() == Some("result");
    if let Ok(record) = serde_json::from_str::<ResultRecord>(stdout) {
        return Some(record).filter(is_result);
    }
    if let Ok(records) = serde_json::from_str::<Vec<serde_json::Value>>(stdout) {
        let records = records.into_iter().rev();
        return records.filter_map(|value| serde_json::from_value(value).ok()).find(is_result);
    }
    stdout.lines().rev().filter_map(|line| serde_json::from_str(line).ok()).find(is_result)
}

/// Returns the last line that is not blank, shortened for messages.
pub fn last_line(text: &str) -> Option<String> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(line.trim().chars().take(300).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn request(prompt: &str) -> RunRequest {
        let timeout = Duration::from_secs(1);
        RunRequest { prompt: prompt.into(), model: None, system: None, timeout }
    }

    fn check_args(request: &RunRequest, args: &[&str], stdin: Option<&str>) {
        let expect = Invocation {
            args: args.iter().map(|arg| arg.to_string()).collect(),
            stdin: stdin.map(str::to_owned),
        };
        assert_eq!(invocation(request), expect);
    }

    #[test]
    fn prompt_is_one_argument() {
        check_args(&request("hi there"), &["-p", "hi there", "--output-format", "json"], None);
        let full = RunRequest {
            model: Some("sonnet".into()),
            system: Some("be brief".into()),
            ..request("hi")
        };
        let expect = [
            "-p",
            "hi",
            "--output-format",
            "json",
            "--model",
            "sonnet",
            "--append-system-prompt",
            "be brief",
        ];
        check_args(&full, &expect, None);
        let flag = RunRequest { model: Some("--dangerous".into()), ..request("hi") };
        check_args(&flag, &["-p", "hi", "--output-format", "json", "--model=--dangerous"], None);
    }

    #[test]
    fn prompt_is_never_a_command_or_a_flag() {
        check_args(&request("/clear"), &["-p", "\u{2800}/clear", "--output-format", "json"], None);
        check_args(&request("--help"), &["-p", "--output-format", "json"], Some("--help"));
        let long = "x".repeat(MAX_ARGUMENT_BYTES + 1);
        check_args(&request(&long), &["-p", "--output-format", "json"], Some(&long));
        check_args(&request("a\0b"), &["-p", "--output-format", "json"], Some("a\0b"));
    }

    fn check_result(stdout: &str, success: bool, expect: Result<(&str, &str), (&str, &str)>) {
        let found = read_result(stdout, Exit::Code(if success { 0 } else { 1 }));
        let found = match &found {
            Ok(reply) => Ok((reply.text.as_str(), reply.stop_reason.as_str())),
            Err(failure) => Err((failure.message.as_str(), failure.stop_reason.as_str())),
        };
        assert_eq!(found, expect, "{stdout}");
    }

    #[test]
    fn results_become_replies() {
        let good = r#"{"type":"result","subtype":"success","is_error":false,"result":"hi","stop_reason":"end_turn"}"#;
        check_result(good, true, Ok(("hi", "end_turn")));
        check_result(&format!("[{{\"type\":\"system\"}},{good}]"), true, Ok(("hi", "end_turn")));
        check_result(&format!("warming up\n{good}\n"), true, Ok(("hi", "end_turn")));
        check_result(r#"{"type":"result","result":"hi"}"#, true, Ok(("hi", "end_turn")));
    }

    #[test]
    fn failed_results_become_errors() {
        let api = r#"{"type":"result","subtype":"success","is_error":true,"result":"API Error: 529","stop_reason":"stop_sequence"}"#;
        check_result(api, false, Err(("API Error: 529", "stop_sequence")));
        check_result(api, true, Err(("API Error: 529", "stop_sequence")));
        let turns = r#"{"type":"result","subtype":"error_max_turns","is_error":true}"#;
        check_result(turns, false, Err(("error_max_turns", "error")));
        check_result("", false, Err(("the agent ended with exit code 1", "error")));
        check_result("boom\n", false, Err(("the agent ended with exit code 1: boom", "error")));
        check_result("boom", true, Err(("the agent ended without a result", "error")));
        check_result("{}", true, Err(("the agent ended without a result", "error")));
        // A good-looking result of a program that then failed is not an answer.
        let good = r#"{"type":"result","is_error":false,"result":"hi","stop_reason":"end_turn"}"#;
        check_result(good, false, Err(("hi", "error")));
    }
}
