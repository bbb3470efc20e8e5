//! `claude -p --output-format json`: one prompt, one JSON result, one process.
//!
//! The real CLI has these habits:
//! - It waits three seconds on a silent open standard input, so it gets the prompt there.
//! - On an API error it exits 1 with the message in the JSON on standard *output*; `subtype` stays
//!   `success`, so only `is_error` counts.
//! - It treats a prompt that starts with `/` as a command and `@` as a mention. One character in front
//!   makes them text.

use std::io;
use std::path::Path;

use hob_child::{ChildSpec, Exit};
use hob_domain::session::TurnUsage;
use hob_domain::{RunReply, RunRequest};
use serde::Deserialize;

use super::live_agent::last_line;
use crate::claude::{ConfigFolder, input};

/// The file with the system prompt, in the run's folder for temporary files.
const SYSTEM_PROMPT_FILE: &str = "system-prompt.txt";

/// The arguments and standard input of a run. Neither prompt is an argument: every process of the machine can read those.
#[derive(Debug, PartialEq, Eq)]
pub struct Invocation {
    args: Vec<String>,
    system: Option<String>,
    /// The prompt.
    pub stdin: String,
}

/// Builds the invocation of a run.
pub fn invocation(request: &RunRequest) -> Invocation {
    let mut args: Vec<String> = ["-p", "--output-format", "json"].map(str::to_owned).to_vec();
    match &request.model {
        // A value that starts with a dash must not become a flag.
        Some(model) if model.starts_with('-') => args.push(format!("--model={model}")),
        Some(model) => args.extend(["--model".to_owned(), model.clone()]),
        None => {}
    }
    let stdin = input::plain(&request.prompt);
    Invocation { args, system: request.system.clone(), stdin }
}

impl Invocation {
    /// Writes the file that the arguments name into `folder`, which only this run uses, and returns the arguments. They
    /// follow the agent's own command.
    pub fn arguments(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut args = self.args.clone();
        if let Some(system) = &self.system {
            let path = folder.join(SYSTEM_PROMPT_FILE);
            hob_files::create(&path, system.as_bytes())?;
            args.push(format!("--append-system-prompt-file={}", path.display()));
        }
        Ok(args)
    }
}

/// Gives the program a configuration folder of its own below `folder`, if it runs in a sandbox: what it leaves there ends
/// with the run.
pub fn configure(spec: &mut ChildSpec, folder: &Path) -> io::Result<()> {
    let sandboxed = spec.confinement.is_some();
    if let ConfigFolder::Own(path) =
        ConfigFolder::for_environment(&spec.env, &folder.join("claude"), sandboxed)?
        && sandboxed
    {
        spec.env.retain(|(name, _)| name != "CLAUDE_CONFIG_DIR");
        spec.env.push(("CLAUDE_CONFIG_DIR".into(), path.into()));
    }
    Ok(())
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
    usage: Option<ResultUsage>,
    total_cost_usd: Option<f64>,
}

/// The tokens that a run has used.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResultUsage {
    input_tokens: u64,
    output_tokens: u64,
    cache_read_input_tokens: u64,
    cache_creation_input_tokens: u64,
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
    let usage = record.usage.unwrap_or_default();
    Ok(RunReply {
        text: record.result.unwrap_or_default(),
        stop_reason: record.stop_reason.unwrap_or_else(|| "end_turn".to_owned()),
        usage: TurnUsage {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cached_read_tokens: usage.cache_read_input_tokens,
            cached_write_tokens: usage.cache_creation_input_tokens,
            cost_usd: record.total_cost_usd.unwrap_or_default(),
        },
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn request(prompt: &str) -> RunRequest {
        let timeout = Duration::from_secs(1);
        RunRequest { prompt: prompt.into(), model: None, system: None, timeout }
    }

    #[test]
    fn prompts_are_never_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let plain = ["-p", "--output-format", "json"];
        for (prompt, stdin) in [
            ("hi there", "hi there"),
            ("/clear", "\u{2800}/clear"),
            ("--help", "--help"),
            ("a\0b", "a\0b"),
        ] {
            let invocation = invocation(&request(prompt));
            assert_eq!(invocation.stdin, stdin);
            assert_eq!(invocation.arguments(folder.path()).unwrap(), plain);
        }
        let full = RunRequest {
            model: Some("sonnet".into()),
            system: Some("be brief".into()),
            ..request("hi")
        };
        let arguments = invocation(&full).arguments(folder.path()).unwrap();
        assert_eq!(arguments[..5], ["-p", "--output-format", "json", "--model", "sonnet"]);
        let file = arguments[5].strip_prefix("--append-system-prompt-file=").unwrap();
        assert_eq!(std::fs::read_to_string(file).unwrap(), "be brief");
        let flag = RunRequest { model: Some("--dangerous".into()), ..request("hi") };
        let arguments = invocation(&flag).arguments(folder.path()).unwrap();
        assert_eq!(arguments[3..], ["--model=--dangerous"]);
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
