//! Tests with transcripts of Claude Code.

use hob_domain::json_size::MAX_JSON_VALUES;
use hob_domain::memory::TurnRole;
use serde_json::{Value, json};

use super::*;

/// Returns the turns of a file of these lines, each as the first letter of its role and its text.
fn turns_of(lines: &[Value]) -> Vec<String> {
    let file: String = lines.iter().map(|line| format!("{line}\n")).collect();
    short(&parse_chunk(file.as_bytes(), &mut ReadProgress::default()).turns)
}

fn short(turns: &[TranscriptTurn]) -> Vec<String> {
    turns.iter().map(|turn| format!("{} {}", &turn.role.as_str()[..1], turn.text)).collect()
}

fn user(content: Value) -> Value {
    json!({"type": "user", "message": {"role": "user", "content": content}})
}

fn assistant(content: Value) -> Value {
    json!({"type": "assistant", "message": {"role": "assistant", "content": content}})
}

fn with(mut line: Value, fields: Value) -> Value {
    for (key, value) in fields.as_object().unwrap() {
        line[key] = value.clone();
    }
    line
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn only_messages_of_user_and_model_are_turns() {
    let check = |line: Value, expect: &[&str]| {
        assert_eq!(turns_of(std::slice::from_ref(&line)), expect, "{line}")
    };
    check(user(json!("hello world")), &["u hello world"]);
    check(json!({"type": "user", "message": {"content": "no role"}}), &["u no role"]);
    check(json!({"message": {"role": "assistant", "content": "no type"}}), &["a no type"]);
    check(user(json!([text("one"), text("two")])), &["u one\ntwo"]);
    check(assistant(json!([text("said")])), &["a said"]);
    check(user(json!("  kept as it is \u{0} é\n")), &["u   kept as it is \u{0} é\n"]);
    let image = json!({"type": "image", "source": {}});
    check(user(json!([text("[Image #1] what"), image])), &["u [Image #1] what"]);
    let thought = json!({"type": "thinking", "thinking": "hm"});
    let call = json!({"type": "tool_use", "id": "t", "name": "Bash", "input": {}});
    check(assistant(json!([thought, text("so"), call])), &["a so"]);
    for nothing in [json!([call]), json!([]), json!(""), json!(" \n"), json!(7), Value::Null] {
        check(assistant(nothing.clone()), &[]);
        check(user(nothing), &[]);
    }
    check(json!({"type": "system", "subtype": "informational", "content": "x"}), &[]);
    check(json!({"type": "attachment", "uuid": "x", "attachment": {}}), &[]);
    check(json!({"type": "summary", "summary": "x", "leafUuid": "y"}), &[]);
    let result = json!({"type": "tool_result", "tool_use_id": "t", "content": "x"});
    check(user(json!([result, text("beside it")])), &[]);
    check(with(user(json!("x")), json!({"toolUseResult": "x"})), &[]);
    check(with(user(json!("x")), json!({"toolUseResult": null})), &["u x"]);
    for flag in ["isMeta", "isSidechain", "isCompactSummary", "isVisibleInTranscriptOnly"] {
        check(with(user(json!("x")), json!({flag: true})), &[]);
        check(with(user(json!("x")), json!({flag: false})), &["u x"]);
    }
    check(with(assistant(json!([text("x")])), json!({"isApiErrorMessage": true})), &[]);
    let mut made_up = assistant(json!([text("partial")]));
    made_up["message"]["model"] = json!("<synthetic>");
    check(made_up, &[]);
    // A value of an unexpected type costs nothing but itself.
    check(with(user(json!("x")), json!({"uuid": 7, "timestamp": [1], "isMeta": "no"})), &["u x"]);
    check(user(json!([1, "x", [text("deep")], text("y")])), &["u y"]);
}

#[test]
fn text_of_the_program_is_removed_from_prompts() {
    let check = |content: Value, expect: Option<&str>| {
        let expect: Vec<String> = expect.iter().map(|text| format!("u {text}")).collect();
        assert_eq!(turns_of(&[user(content.clone())]), expect, "{content}");
    };
    let skipped = |text: &str| check(json!(text), None);
    let kept = |text: &str| check(json!(text), Some(text));
    check(json!([text("[Request interrupted by user for tool use]")]), None);
    skipped("[Request interrupted by user]");
    kept("[Request interrupted by user] is what I see, why?");
    skipped("<command-name>/clear</command-name>\n  <command-args></command-args>");
    skipped("<local-command-stdout>done</local-command-stdout>");
    skipped("<bash-stdout></bash-stdout><bash-stderr> </bash-stderr>");
    skipped("<teammate-message teammate_id=\"b\">{\"type\":\"idle\"}</teammate-message>");
    kept("<bash-input>ls -l</bash-input>");
    kept("<bash-stdout>a < b</bash-stdout><bash-stderr></bash-stderr>");
    kept("<teammate-message teammate_id=\"lead\">\nFix the parser.\n</teammate-message>");
    skipped("<task-notification id=\"1\">x</task-notification>\n");
    kept("<command-name>/clear</command-name> does nothing");
    kept("<command-name> without an end");
    kept("what is <local-command-stdout>x</local-command-stdout>?");
    kept("<div>html</div>");
    kept("```\n<bash-input>ls</bash-input>\n```");
    let reminder = "<system-reminder>\nbe nice\n</system-reminder>";
    skipped(reminder);
    skipped(&format!("{reminder}\n{reminder}\n"));
    check(json!(format!("{reminder}\nask")), Some("ask"));
    check(json!(format!("ask\n\n{reminder}\n")), Some("ask"));
    check(json!(format!(" one\n{reminder}\ntwo ")), Some(" one\ntwo "));
    check(json!(format!("ask {reminder}")), Some("ask"));
    check(json!("ask <system-reminder>x</system-reminder>"), Some("ask"));
    check(json!("<system-reminder>x</system-reminder>ask"), Some("ask"));
    check(json!([text(reminder), text("ask")]), Some("ask"));
    check(json!([text("<ide_selection>x</ide_selection>"), text("ask")]), Some("ask"));
    let mention = "what is <system-reminder> for?";
    kept(mention);
    check(json!(format!("{mention}\n{reminder}")), Some(mention));
    kept("the tag <system-reminder>x</system-reminder> is odd");
    kept("```\n<system-reminder>\nx\n</system-reminder>\n```\nwhy?");
    check(json!("\u{2800}/clear"), Some("/clear"));
    check(json!("\u{2800} exit"), Some(" exit"));
    kept("\u{2800}braille");
    // The model's text is not changed.
    let quoted = json!([text("<bash-input>ls</bash-input>")]);
    assert_eq!(turns_of(&[assistant(quoted)]), ["a <bash-input>ls</bash-input>"]);
}

#[test]
fn turns_have_ids_and_progress_survives_saving() {
    let line = json!({"type": "assistant", "uuid": "a", "parentUuid": null, "sessionId": "s",
        "cwd": "/w", "timestamp": "2026-01-02T03:04:05.678Z",
        "message": {"id": "msg_1", "role": "assistant", "content": [text("hi")]}});
    let other = with(user(json!("x")), json!({"sessionId": "later", "cwd": "/later"}));
    let mut progress = ReadProgress::default();
    let chunk = parse_chunk(format!("{line}\r\n\n{other}\n").as_bytes(), &mut progress);
    let expect = TranscriptTurn {
        id: Some("a".into()),
        role: TurnRole::Assistant,
        text: "hi".into(),
        ts: Some("2026-01-02T03:04:05.678Z".parse().unwrap()),
        message_id: Some("msg_1".into()),
        prompt_id: None,
        work: Vec::new(),
    };
    assert_eq!(chunk.turns[0], expect);
    assert_eq!(chunk.turns[1].id, None);
    assert_eq!(progress.client, Some(RecordedClient::Claude));
    assert_eq!((progress.session.as_deref(), progress.cwd.as_deref()), (Some("s"), Some("/w")));
    let saved = serde_json::to_string(&progress).unwrap();
    assert_eq!(serde_json::from_str::<ReadProgress>(&saved).unwrap(), progress);
    assert_eq!(serde_json::from_str::<ReadProgress>("{}").unwrap(), ReadProgress::default());
}

#[test]
fn turns_come_after_their_parents() {
    let check = |records: &[(&str, &str)], expect: &str| {
        let line = |(id, parent): &(&str, &str)| match *id {
            "" => user(json!("-")),
            // Capital letters are turns; the others are links only.
            _ if id.starts_with(char::is_uppercase) => {
                with(user(json!(id)), json!({"uuid": id, "parentUuid": parent}))
            }
            _ => json!({"type": "attachment", "uuid": id, "parentUuid": parent}),
        };
        let lines: Vec<Value> = records.iter().map(line).collect();
        let said: Vec<String> = turns_of(&lines).iter().map(|turn| turn[2..].to_owned()).collect();
        assert_eq!(said.join(" "), expect, "{records:?}");
    };
    check(&[("A", ""), ("B", "A"), ("C", "B")], "A B C");
    check(&[("C", "b"), ("A", ""), ("b", "A")], "A C");
    check(&[("D", "c"), ("e", "D"), ("A", ""), ("b", "A"), ("B", "b"), ("c", "B")], "A B D");
    check(&[("B", "gone"), ("A", "")], "B A");
    check(&[("A", "A"), ("B", "A")], "A B");
    check(&[("B", "A"), ("A", "B"), ("C", "")], "C B A");
    check(&[("T", "B"), ("B", "A"), ("A", "B")], "B T A");
    check(&[("A", ""), ("B", "A"), ("A", "")], "A B");
    check(&[("B", "A"), ("", ""), ("A", "")], "A B -");
    check(&[("", ""), ("A", ""), ("", ""), ("", "")], "- A - -");
    let boundary = json!({"type": "system", "uuid": "x", "parentUuid": null,
        "logicalParentUuid": "A"});
    let after = with(user(json!("after")), json!({"uuid": "B", "parentUuid": "x"}));
    let before = with(user(json!("before")), json!({"uuid": "A"}));
    assert_eq!(turns_of(&[after, boundary, before]), ["u before", "u after"]);
}

#[test]
fn damaged_lines_cost_only_themselves() {
    let check = |line: &[u8], expect: &[&str], unreadable: usize| {
        let mut file = line.to_vec();
        file.extend_from_slice(b"\n");
        file.extend_from_slice(format!("{}\n", user(json!("after"))).as_bytes());
        let chunk = parse_chunk(&file, &mut ReadProgress::default());
        let expect: Vec<&str> = expect.iter().copied().chain(["u after"]).collect();
        let seen = (short(&chunk.turns), chunk.unreadable, chunk.consumed);
        let expect =
            (expect.iter().map(|text| (*text).to_owned()).collect(), unreadable, file.len());
        assert_eq!(seen, expect, "{}", String::from_utf8_lossy(line));
    };
    check(b"", &[], 0);
    check(b" \t\r", &[], 0);
    for noise in ["{", "null", "[]", "42", "\"x\"", "{}x", "{\"a\":}", "\0\0"] {
        check(noise.as_bytes(), &[], 1);
    }
    check(b"{}", &[], 0);
    check(&[b'['; 100_000], &[], 1);
    check(format!("{{\"message\":{}", "{\"content\":[".repeat(50_000)).as_bytes(), &[], 1);
    let line = |content: &str| format!(r#"{{"type":"user","message":{{"content":"{content}"}}}}"#);
    check(line(r"a\ud800b").as_bytes(), &["u a\u{fffd}b"], 0);
    check(line(r"a\udc00\ud83d\ude00").as_bytes(), &["u a\u{fffd}\u{1f600}"], 0);
    check(line(r"\ud800\ud83d\ude00\\ud800").as_bytes(), &["u \u{fffd}\u{1f600}\\ud800"], 0);
    check(line(r"nul \u0000").as_bytes(), &["u nul \0"], 0);
    check(line("raw \0 \t").as_bytes(), &["u raw \0 \t"], 0);
    check(format!("\0\0{}", line("x")).as_bytes(), &["u x"], 0);
    check(format!("\u{feff}{}", line("x")).as_bytes(), &["u x"], 0);
    check(format!("{}\r", line("x")).as_bytes(), &["u x"], 0);
    let mut bytes = line("a?b").into_bytes();
    let at = bytes.iter().position(|byte| *byte == b'?').unwrap();
    bytes[at] = 0xff;
    check(&bytes, &["u a\u{fffd}b"], 0);
    let long = "long ".repeat(1_000_000);
    check(line(&long).as_bytes(), &[&format!("u {long}")], 0);
    // What would take many times its length in memory is skipped.
    let values = |count: usize| format!(r#"{{"type":"user","x":[{}[]]}}"#, "[],".repeat(count));
    check(values(MAX_JSON_VALUES / 2).as_bytes(), &[], 1);
    check(values(1_000).as_bytes(), &[], 0);
    check(line(&"[],".repeat(300_000)).as_bytes(), &[&format!("u {}", "[],".repeat(300_000))], 0);
    check(line(&"x".repeat(MAX_LINE_BYTES)).as_bytes(), &[], 1);
    check(br#"{"type":"user","type":"user","message":{"content":"x","content":"y"}}"#, &["u y"], 0);
}

#[test]
fn partial_lines_are_not_consumed() {
    let check = |rest: &str| {
        let first = format!("{}\n", with(user(json!("first")), json!({"uuid": "1"})));
        let chunk = parse_chunk(format!("{first}{rest}").as_bytes(), &mut ReadProgress::default());
        assert_eq!(short(&chunk.turns), ["u first"]);
        assert_eq!((chunk.consumed, chunk.unreadable), (first.len(), 0), "{rest}");
    };
    let second = user(json!("second")).to_string();
    check("");
    check("  ");
    check(&second[..second.len() - 1]);
    check(&second);
    check(&with(user(json!("first")), json!({"uuid": "1"})).to_string());
    let mut progress = ReadProgress::default();
    let line = with(user(json!("only")), json!({"sessionId": "s"})).to_string();
    let chunk = parse_chunk(line.as_bytes(), &mut progress);
    assert_eq!((chunk.consumed, chunk.turns.len()), (0, 0));
    assert_eq!(progress.session.as_deref(), Some("s"));
}
