//! Tests with rollouts of Codex.

use serde_json::{Value, json};

use super::*;

/// Reads each group of lines as one chunk, and returns all turns.
fn turns_of(groups: &[&[Value]]) -> Vec<String> {
    let mut progress = ReadProgress::default();
    let mut turns = Vec::new();
    for lines in groups {
        let file: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let chunk = parse_chunk(file.as_bytes(), &mut progress);
        turns.extend(chunk.turns);
        // The progress must survive being saved.
        let saved = serde_json::to_string(&progress).unwrap();
        progress = serde_json::from_str(&saved).unwrap();
    }
    turns.iter().map(|turn| format!("{} {}", &turn.role.as_str()[..1], turn.text)).collect()
}

fn line(kind: &str, payload: Value) -> Value {
    json!({"timestamp": "2026-01-02T03:04:05.678Z", "type": kind, "payload": payload})
}

fn meta() -> Value {
    line("session_meta", json!({"id": "s", "timestamp": "x", "cwd": "/w", "source": "cli"}))
}

fn message(role: &str, parts: &[&str]) -> Value {
    let kind = if role == "assistant" { "output_text" } else { "input_text" };
    let parts: Vec<Value> = parts.iter().map(|text| json!({"type": kind, "text": text})).collect();
    json!({"type": "message", "role": role, "content": parts})
}

fn history(role: &str, text: &str) -> Value {
    line("response_item", message(role, &[text]))
}

fn event(role: &str, text: &str) -> Value {
    let kind = if role == "user" { "user_message" } else { "agent_message" };
    line("event_msg", json!({"type": kind, "message": text}))
}

fn item(kind: &str, text: &str) -> Value {
    let content =
        json!([{"type": if kind == "UserMessage" { "text" } else { "Text" }, "text": text}]);
    line(
        "event_msg",
        json!({"type": "item_completed", "item":
        {"type": kind, "id": "i", "text": text, "content": content}}),
    )
}

/// Reads the lines in one chunk, and in one chunk for each line; both must give the same turns.
fn check(lines: &[Value], expect: &[&str]) {
    assert_eq!(turns_of(&[lines]), expect, "in one chunk");
    for cut in 1..lines.len() {
        assert_eq!(turns_of(&[&lines[..cut], &lines[cut..]]), expect, "cut at {cut}");
    }
    let each: Vec<&[Value]> = lines.chunks(1).collect();
    assert_eq!(turns_of(&each), expect, "line by line");
}

#[test]
fn turns_come_from_events() {
    check(
        &[
            meta(),
            history("developer", "<permissions instructions>x"),
            history("user", "<environment_context><cwd>/w</cwd></environment_context>"),
            history("user", "hello"),
            event("user", "hello"),
            line("turn_context", json!({"cwd": "/w"})),
            line("event_msg", json!({"type": "agent_reasoning", "text": "hm"})),
            line("response_item", json!({"type": "function_call", "name": "shell"})),
            event("assistant", "hi there"),
            history("assistant", "hi there"),
            line("event_msg", json!({"type": "token_count", "info": null})),
            line("compacted", json!({"message": "summary"})),
        ],
        &["u hello", "a hi there"],
    );
    // Events that come late, and text that is said again.
    check(
        &[
            meta(),
            history("user", "q"),
            history("assistant", "a"),
            event("user", "q"),
            event("assistant", "a"),
        ],
        &["u q", "a a"],
    );
    let yes = [history("user", "yes"), event("user", "yes")];
    let twice: Vec<Value> = [meta()].into_iter().chain(yes.clone()).chain(yes).collect();
    check(&twice, &["u yes", "u yes"]);
    let old = |kind: &str| {
        line("event_msg", json!({"type": "user_message", "kind": kind, "message": "m"}))
    };
    check(&[meta(), old("user_instructions"), old("plain")], &["u m"]);
    let asked = "# Context from my IDE setup:\n\nx\n## My request for Codex:\nfix it\n";
    check(&[meta(), event("user", asked)], &["u fix it"]);
    check(
        &[meta(), event("user", "# AGENTS.md instructions are stale"), event("assistant", " ")],
        &["u # AGENTS.md instructions are stale"],
    );
}

#[test]
fn event_with_other_text_than_its_message_is_not_a_second_turn() {
    let lines =
        [meta(), history("user", "<image> look"), event("user", "look"), event("assistant", "ok")];
    assert_eq!(turns_of(&[&lines]), ["u look", "a ok"]);
    assert_eq!(turns_of(&[&lines[..2], &lines[2..]]), ["u <image> look", "a ok"]);
}

#[test]
fn turns_of_newer_files_come_from_completed_items() {
    check(
        &[
            meta(),
            history("user", "q"),
            item("UserMessage", "q"),
            item("Reasoning", "x"),
            item("AgentMessage", "a"),
            history("assistant", "a"),
            item("Plan", "1. do it"),
        ],
        &["u q", "a a", "a 1. do it"],
    );
}

#[test]
fn turns_of_files_without_events_come_from_the_history() {
    let injected = [
        "<environment_context>\n</environment_context>",
        "<user_instructions>\n\nx\n\n</user_instructions>",
        "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>x</INSTRUCTIONS>",
        "<permissions instructions>x</permissions instructions>",
        "<turn_aborted>\n</turn_aborted>",
        "<skill>\n<name>x</name></skill>",
        "<codex_internal_context source=\"x\">y</codex_internal_context>",
        " ",
    ];
    let mut lines = vec![meta()];
    lines.extend(injected.map(|text| history("user", text)));
    lines.extend([
        history("system", "x"),
        history("user", "one <environment_context>"),
        history("assistant", "two"),
        history("user", "<skill> is what?"),
        line("response_item", message("user", &["<image>", "</image>", "three", "four"])),
        history("assistant", "<turn_aborted> is a tag"),
        history("user", "not answered"),
    ]);
    let expect = [
        "u one <environment_context>",
        "a two",
        "u <skill> is what?",
        "u three\nfour",
        "a <turn_aborted> is a tag",
        "u not answered",
    ];
    check(&lines, &expect);
}

#[test]
fn oldest_format_has_bare_items() {
    let head = json!({"id": "s", "timestamp": "2025-05-07T17:24:21.123Z", "instructions": null});
    let lines = [
        head,
        json!({"record_type": "state"}),
        message("user", &["<environment_context>\n</environment_context>"]),
        message("user", &["q"]),
        json!({"type": "reasoning", "summary": []}),
        json!({"type": "function_call_output", "call_id": "c", "output": "x"}),
        message("assistant", &["a"]),
    ];
    check(&lines, &["u q", "a a"]);
    check(&lines[3..], &["u q", "a a"]);
    let mut progress = ReadProgress::default();
    parse_chunk(format!("{}\n", lines[0]).as_bytes(), &mut progress);
    assert_eq!(
        (progress.client, progress.session.as_deref()),
        (Some(RecordedClient::Codex), Some("s"))
    );
}

#[test]
fn first_session_meta_counts() {
    let other = line(
        "session_meta",
        json!({"id": "parent", "cwd": "/p", "source": {"subagent": "review"}}),
    );
    let file = format!("{}\n{other}\n{}\n", meta(), event("user", "q"));
    let mut progress = ReadProgress::default();
    let chunk = parse_chunk(file.as_bytes(), &mut progress);
    assert_eq!((progress.session.as_deref(), progress.cwd.as_deref()), (Some("s"), Some("/w")));
    assert_eq!(chunk.turns[0].ts, Some("2026-01-02T03:04:05.678Z".parse().unwrap()));
    check(&[other, meta(), history("user", "q"), event("user", "q"), event("assistant", "a")], &[]);
}

#[test]
fn partial_event_does_not_repeat_its_message() {
    let whole = format!("{}\n{}\n", meta(), history("user", "q"));
    let mut progress = ReadProgress::default();
    let chunk = parse_chunk(format!("{whole}{}", event("user", "q")).as_bytes(), &mut progress);
    assert_eq!(chunk.turns.len(), 1);
    let rest = format!("{}\n{}\n", event("user", "q"), event("assistant", "a"));
    let chunk = parse_chunk(rest.as_bytes(), &mut progress);
    assert_eq!(chunk.turns.len(), 1, "the answer alone");
}
