//! What a rollout of Codex says of the agent's work: its calls of tools, and their outputs.

use hob_domain::json_size::has_too_many_values;
use serde_json::Value;

use crate::work::{WorkItem, patched_files};

/// How many lines before the output of a command describe it.
const MAX_HEADER_LINES: usize = 8;

/// Returns the work of a `function_call` with these arguments.
pub fn function_call(arguments: &str) -> Vec<WorkItem> {
    let Some(arguments) = parsed(arguments) else { return Vec::new() };
    let command = arguments.get("cmd").or_else(|| arguments.get("command"));
    let patch = arguments.get("input").and_then(Value::as_str).unwrap_or_default();
    let mut work: Vec<WorkItem> = patched_files(patch).collect();
    work.extend(command.and_then(command_line).into_iter().flat_map(|line| shell_command(&line)));
    work
}

/// Returns the work of a `custom_tool_call` with this input: mostly a patch.
pub fn custom_tool_call(input: &str) -> Vec<WorkItem> {
    patched_files(input).collect()
}

/// Returns the failure that the output of a call reports.
pub fn call_output(output: &str) -> Option<WorkItem> {
    // Old files have the output and the exit code in an object.
    if output.starts_with('{') {
        let described = parsed(output)?;
        let code = described.get("metadata")?.get("exit_code")?.as_i64()?;
        let text = described.get("output")?.as_str()?;
        return WorkItem::failure(text).filter(|_| code != 0);
    }
    let code = output.lines().take(MAX_HEADER_LINES).find_map(|line| {
        let code = line.strip_prefix("Process exited with code ");
        code.or_else(|| line.strip_prefix("Exit code: "))?.trim().parse::<i64>().ok()
    })?;
    let text = output.split_once("Output:\n").map_or(output, |(_, text)| text);
    WorkItem::failure(text).filter(|_| code != 0)
}

/// Parses a text that is JSON by itself. In its line it counts as one value.
fn parsed(text: &str) -> Option<Value> {
    if has_too_many_values(text.as_bytes()) { None } else { serde_json::from_str(text).ok() }
}

/// Returns the script of a command: a text, or the arguments of a shell.
fn command_line(command: &Value) -> Option<String> {
    match command {
        Value::String(line) => Some(line.clone()),
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            Some(match words.as_slice() {
                [_, "-c" | "-lc", script] => (*script).to_owned(),
                words => words.join(" "),
            })
        }
        _ => None,
    }
}

/// Returns the work of a shell command. Old versions apply patches by a command.
fn shell_command(line: &str) -> Vec<WorkItem> {
    let patched: Vec<WorkItem> = match line.contains("apply_patch") {
        true => patched_files(line).collect(),
        false => Vec::new(),
    };
    if patched.is_empty() { WorkItem::command(line).into_iter().collect() } else { patched }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_name_commands_and_files() {
        let command = |line: &str| vec![WorkItem::Command(line.to_owned())];
        assert_eq!(
            function_call(r#"{"cmd": "cargo test", "workdir": "/w"}"#),
            command("cargo test")
        );
        assert_eq!(function_call(r#"{"command": ["bash", "-lc", "ls -l"]}"#), command("ls -l"));
        assert_eq!(function_call(r#"{"command": ["git", "status"]}"#), command("git status"));
        assert_eq!(function_call(r#"{"plan": []}"#), []);
        assert_eq!(function_call("not JSON"), []);
        let patch = "*** Begin Patch\n*** Add File: a.rs\n+x\n*** End Patch";
        let edit = vec![WorkItem::Edit("a.rs".to_owned())];
        assert_eq!(custom_tool_call(patch), edit);
        let call = serde_json::json!({"command": ["apply_patch", patch]}).to_string();
        assert_eq!(function_call(&call), edit);
    }

    #[test]
    fn outputs_with_an_exit_code_are_failures() {
        let failed = Some(WorkItem::Failure("no such file".to_owned()));
        let now =
            "Chunk ID: 1\nWall time: 1 s\nProcess exited with code 2\nOutput:\nno such file\n";
        assert_eq!(call_output(now), failed);
        assert_eq!(call_output("Exit code: 1\nOutput:\nno such file"), failed);
        let old = r#"{"output": "no such file", "metadata": {"exit_code": 1}}"#;
        assert_eq!(call_output(old), failed);
        assert_eq!(call_output(&old.replace(": 1", ": 0")), None);
        assert_eq!(call_output(&now.replace("code 2", "code 0")), None);
        assert_eq!(call_output("all is well"), None);
    }
}
