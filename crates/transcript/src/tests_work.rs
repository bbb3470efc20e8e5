//! Tests of the work between turns.

use serde_json::{Value, json};

use super::*;

/// Returns each turn's text with its work. Each group of lines is one chunk.
fn work_of(groups: &[&[Value]]) -> Vec<(String, Vec<WorkItem>)> {
    let mut progress = ReadProgress::default();
    let mut turns = Vec::new();
    for lines in groups {
        let file: String = lines.iter().map(|line| format!("{line}\n")).collect();
        turns.extend(parse_chunk(file.as_bytes(), &mut progress).turns);
    }
    turns.into_iter().map(|turn| (turn.text, turn.work)).collect()
}

fn claude(kind: &str, id: &str, parent: &str, content: Value) -> Value {
    json!({"type": kind, "uuid": id, "parentUuid": parent, "sessionId": "s", "cwd": "/w",
        "message": {"role": kind, "content": content}})
}

fn call(name: &str, input: Value) -> Value {
    json!([{"type": "tool_use", "id": "c", "name": name, "input": input}])
}

fn command(text: &str) -> WorkItem {
    WorkItem::Command(text.to_owned())
}

fn edit(path: &str) -> WorkItem {
    WorkItem::Edit(path.to_owned())
}

#[test]
fn work_belongs_to_the_turn_before_it() {
    let lines = [
        claude("user", "u", "", json!("fix it")),
        claude("assistant", "a1", "u", call("Read", json!({"file_path": "/w/a.rs"}))),
        claude("assistant", "a2", "a1", call("Edit", json!({"file_path": "/w/a.rs"}))),
        claude("assistant", "a3", "a2", json!([{"type": "text", "text": "Now the tests."}])),
        claude("assistant", "a4", "a3", call("Bash", json!({"command": "cargo test"}))),
        claude(
            "user",
            "r",
            "a4",
            json!([{"type": "tool_result", "tool_use_id": "c", "is_error": true,
                "content": [{"type": "text", "text": "error: no"}]}]),
        ),
        json!({"type": "progress", "uuid": "p", "parentUuid": "a4", "data": {"message": {
            "type": "assistant", "message": {"role": "assistant",
            "content": call("Write", json!({"file_path": "/w/b.rs"}))}}}}),
        claude("assistant", "a5", "r", json!([{"type": "text", "text": "Done."}])),
    ];
    let failed = WorkItem::Failure("error: no".to_owned());
    let expect = vec![
        ("fix it".to_owned(), vec![edit("/w/a.rs")]),
        ("Now the tests.".to_owned(), vec![command("cargo test"), failed, edit("/w/b.rs")]),
        ("Done.".to_owned(), Vec::new()),
    ];
    assert_eq!(work_of(&[&lines]), expect);
    // A chunk that begins with work: its first answer has it, a prompt has not.
    let parts = work_of(&[&lines[..1], &lines[1..3], &lines[3..]]);
    let first = [edit("/w/a.rs")].into_iter().chain(expect[1].1.clone()).collect::<Vec<_>>();
    assert_eq!(parts[1].1, first);
    let next = claude("user", "u2", "a2", json!("stop"));
    assert_eq!(work_of(&[&lines[..1], &lines[1..3], &[next]])[1].1, []);
    // A refusal is no failure.
    let refused = claude(
        "user",
        "r",
        "u",
        json!([{"type": "tool_result", "is_error": true,
            "content": "The user doesn't want to proceed with this tool use."}]),
    );
    assert_eq!(work_of(&[&[lines[0].clone(), refused]])[0].1, []);
}

#[test]
fn rollouts_have_work_too() {
    let line = |kind: &str, payload: Value| json!({"timestamp": "2026-01-02T03:04:05Z", "type": kind, "payload": payload});
    let event = |kind: &str, text: &str| line("event_msg", json!({"type": kind, "message": text}));
    let call = |command: &str| {
        let arguments = json!({"cmd": command}).to_string();
        line(
            "response_item",
            json!({"type": "function_call", "name": "exec_command", "arguments": arguments}),
        )
    };
    let output = "Process exited with code 1\nOutput:\nfatal: bad";
    let patch = "*** Begin Patch\n*** Update File: a.rs\n*** End Patch";
    let lines = [
        line("session_meta", json!({"id": "s", "cwd": "/w"})),
        event("user_message", "fix it"),
        call("ls"),
        event("agent_message", "I edit it."),
        line(
            "response_item",
            json!({"type": "custom_tool_call", "name": "apply_patch", "input": patch}),
        ),
        call("git status"),
        line("response_item", json!({"type": "function_call_output", "output": output})),
        event("agent_message", "Done."),
    ];
    let failed = WorkItem::Failure("fatal: bad".to_owned());
    let expect = vec![
        ("fix it".to_owned(), vec![command("ls")]),
        ("I edit it.".to_owned(), vec![edit("a.rs"), command("git status"), failed]),
        ("Done.".to_owned(), Vec::new()),
    ];
    assert_eq!(work_of(&[&lines]), expect);
    assert_eq!(work_of(&[&lines[..2], &lines[2..]])[1].1.len(), 4);
}
