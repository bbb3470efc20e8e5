//! The records of clients other than Claude Code and Codex. Those of Gemini CLI 0.61.0 and OpenCode 1.18.33 were
//! written by the programs themselves and shortened.

use hob_domain::memory::TurnRole;
use serde_json::json;

use crate::{
    OpencodeMessage, ParsedSession, ReadProgress, RecordedClient, goose_session, parse_chunk,
    parse_document,
};

/// Checks speakers and texts.
pub fn check(session: &ParsedSession, expect: &[(&str, &str)]) {
    let turns: Vec<(&str, &str)> =
        session.turns.iter().map(|turn| (turn.role.as_str(), turn.text.as_str())).collect();
    assert_eq!(turns, expect);
}

/// Reads lines, and checks that they are read alike line by line.
fn lines(text: &str) -> (ParsedSession, Option<RecordedClient>) {
    let mut progress = ReadProgress::default();
    let turns = parse_chunk(text.as_bytes(), &mut progress).turns;
    let mut step = ReadProgress::default();
    let mut single = Vec::new();
    for line in text.split_inclusive('\n') {
        single.extend(parse_chunk(line.as_bytes(), &mut step).turns);
    }
    assert_eq!((&step.session, &step.cwd), (&progress.session, &progress.cwd));
    for turn in &turns {
        assert!(single.contains(turn), "{turn:?}");
    }
    (ParsedSession { session: progress.session, cwd: progress.cwd, turns }, progress.client)
}

const GEMINI: &str = r#"{"sessionId":"55d9394f-30e7-4438-8d71-83e28ba717e7","projectHash":"1c45","startTime":"2026-11-17T08:44:05.216Z","lastUpdated":"2026-11-17T08:44:05.216Z","kind":"main"}
{"$set":{"messages":[{"id":"d04923d38bb0f6017037e74183378ef4","timestamp":"2026-11-17T08:44:05.217Z","type":"user","content":[{"text":"<session_context>\nThis is the Gemini CLI.\n- **Workspace Directories:**\n  - /w/proj\n- **Directory Structure:**\n</session_context>"}]}]}}
{"id":"042710f6-803e-400c-8cf8-6f7270812d4e","timestamp":"2026-11-17T08:44:05.635Z","type":"user","content":[{"text":"the heron stands in the harbour"}]}
{"$set":{"lastUpdated":"2026-11-17T08:44:05.635Z"}}
{"id":"a32b54ab-0497-4050-8266-606a7641210e","timestamp":"2026-11-17T08:44:06.775Z","type":"gemini","content":"I see it.","thoughts":[],"tokens":{"input":10},"model":"gemini-2.5-flash"}
{"$set":{"sessionId":"55d9394f-30e7-4438-8d71-83e28ba717e7"}}
{"$set":{"messages":[{"id":"042710f6-803e-400c-8cf8-6f7270812d4e","timestamp":"2026-11-17T08:44:05.635Z","type":"user","content":[{"text":"the heron stands in the harbour"}]},{"id":"a32b54ab-0497-4050-8266-606a7641210e","timestamp":"2026-11-17T08:44:06.775Z","type":"gemini","content":[{"text":"I see it."}]}]}}
{"id":"bf714643-e5b7-4e27-a94e-a01f422a649e","timestamp":"2026-11-17T08:45:10.569Z","type":"gemini","content":"","toolCalls":[{"name":"list_directory"}]}
{"id":"e1788519-17da-4621-9357-55699fb23b40","timestamp":"2026-11-17T08:45:10.927Z","type":"user","content":[{"functionResponse":{"name":"list_directory"}}]}
{"id":"x","timestamp":"2026-11-17T08:45:10.927Z","type":"info","content":"Request cancelled."}
"#;

#[test]
fn gemini_messages_are_read_once() {
    let (session, client) = lines(GEMINI);
    assert_eq!(client, Some(RecordedClient::Gemini));
    assert_eq!(session.session.as_deref(), Some("55d9394f-30e7-4438-8d71-83e28ba717e7"));
    assert_eq!(session.cwd.as_deref(), Some("/w/proj"));
    check(&session, &[("user", "the heron stands in the harbour"), ("assistant", "I see it.")]);
    assert_eq!(session.turns[0].id.as_deref(), Some("042710f6-803e-400c-8cf8-6f7270812d4e"));
    assert_eq!(session.turns[0].ts, Some("2026-11-17T08:44:05.635Z".parse().unwrap()));
    let (subagent, _) = lines(&GEMINI.replace("\"main\"", "\"subagent\""));
    check(&subagent, &[]);
}

/// As `gemini -p` records a prompt when hooks have added something to it.
#[test]
fn what_hooks_add_to_a_prompt_of_gemini_is_not_said_by_the_user() {
    let added = "<hook_context># Notes\\n&lt;b&gt;</hook_context>";
    let said = |content: &str| {
        let text = GEMINI.replace("the heron stands in the harbour", content);
        lines(&text).0.turns.into_iter().map(|turn| turn.text).collect::<Vec<_>>()
    };
    assert_eq!(said(&format!("{added}\\n\\nwhere?")), ["where?", "I see it."]);
    assert_eq!(said(&format!("{added}{added} where?{added}")), ["where?", "I see it."]);
    assert_eq!(said(added), ["I see it."]);
    let quoted = "the tag </hook_context> ends, <hook_context> begins";
    assert_eq!(said(quoted), [quoted, "I see it."]);
    let user = r#""type":"user","content":[{"text":"the heron"#;
    let typed =
        GEMINI.replace(user, &user.replace("\"content", r#""displayContent":"typed","content"#));
    assert_eq!(lines(&typed).0.turns[0].text, "typed");
}

#[test]
fn gemini_sessions_of_earlier_versions_are_documents() {
    let text = json!({"sessionId": "s1", "projectHash": "h", "messages": [
        {"id": "1", "timestamp": "2026-01-02T03:04:05Z", "type": "user", "content": "hello"},
        {"id": "2", "timestamp": "2026-01-02T03:04:06Z", "type": "gemini", "content": "hi", "toolCalls": []},
        {"id": "3", "timestamp": "2026-01-02T03:04:07Z", "type": "error", "content": "quota"}]});
    let document = parse_document(serde_json::to_string_pretty(&text).unwrap().as_bytes()).unwrap();
    assert_eq!(document.client, RecordedClient::Gemini);
    assert_eq!(document.sessions[0].session.as_deref(), Some("s1"));
    check(&document.sessions[0], &[("user", "hello"), ("assistant", "hi")]);
}

#[test]
fn opencode_messages_are_joined_from_their_parts() {
    let message = |info: serde_json::Value, parts: serde_json::Value| OpencodeMessage {
        id: "msg_1e8b0fe54001Jlm1OxDkUUHEUv".to_owned(),
        info,
        parts: parts.as_array().unwrap().clone(),
    };
    let user = message(
        json!({"role": "user", "time": {"created": 1794905275988_i64}}),
        json!([{"type": "text", "text": "the heron"},
            {"type": "text", "text": "Called the Read tool", "synthetic": true}]),
    );
    let turn = user.turn().unwrap();
    assert_eq!((turn.role, turn.text.as_str()), (TurnRole::User, "the heron"));
    assert_eq!(turn.ts.unwrap().as_millisecond(), 1794905275988);
    let answer = message(
        json!({"role": "assistant", "time": {"created": 1, "completed": 2}}),
        json!([{"type": "step-start"}, {"type": "text", "text": "Looking."},
            {"type": "tool", "tool": "bash", "state": {"output": "text"}},
            {"type": "reasoning", "text": "hm"}, {"type": "text", "text": "Found it."}]),
    );
    assert_eq!(answer.turn().unwrap().text, "Looking.\n\nFound it.");
    assert!(answer.is_complete());
    let unfinished = message(json!({"role": "assistant", "time": {"created": 1}}), json!([]));
    assert!(!unfinished.is_complete() && unfinished.turn().is_none());
    let text = json!({"info": {"id": "ses_1", "directory": "/w"}, "messages": [
        {"info": {"id": "msg_1", "role": "user", "time": {"created": 1}},
            "parts": [{"type": "text", "text": "hello"}]}]});
    let document = parse_document(text.to_string().as_bytes()).unwrap();
    assert_eq!(document.client, RecordedClient::Opencode);
    assert_eq!(document.sessions[0].cwd.as_deref(), Some("/w"));
    check(&document.sessions[0], &[("user", "hello")]);
}

#[test]
fn copilot_events_are_turns() {
    let (session, client) = lines(
        r#"{"type":"session.start","data":{"sessionId":"c0ffee","context":{"cwd":"/w"}},"id":"1","timestamp":"2026-07-19T15:23:10Z","parentId":null}
{"type":"user.message","data":{"content":"build it"},"id":"2","timestamp":"2026-07-19T15:23:11Z","parentId":"1"}
{"type":"assistant.message","data":{"messageId":"m","content":"","toolRequests":[{"name":"bash"}]},"id":"3","timestamp":"2026-07-19T15:23:12Z","parentId":"2"}
{"type":"assistant.message","agentId":"child","data":{"content":"of a sub-agent"},"id":"4","timestamp":"2026-07-19T15:23:13Z"}
{"type":"assistant.message","data":{"content":"Done."},"id":"5","timestamp":"2026-07-19T15:23:14Z","parentId":"3"}
"#,
    );
    assert_eq!(client, Some(RecordedClient::Copilot));
    assert_eq!((session.session.as_deref(), session.cwd.as_deref()), (Some("c0ffee"), Some("/w")));
    check(&session, &[("user", "build it"), ("assistant", "Done.")]);
}

#[test]
fn qwen_records_are_turns() {
    let lines_of = |records: &[serde_json::Value]| -> String {
        records.iter().map(|record| format!("{record}\n")).collect()
    };
    let record = |id: &str, kind: &str, more: serde_json::Value| {
        let mut record = json!({"uuid": id, "parentUuid": null, "sessionId": "5e55", "type": kind,
            "timestamp": "2026-07-19T15:23:10.000Z", "cwd": "/w", "version": "0.9.0"});
        record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        record
    };
    let said = |parts: serde_json::Value| json!({"message": {"role": "user", "parts": parts}});
    let records = [
        record(
            "1",
            "system",
            json!({"subtype": "session_source", "systemPayload": {"sourceType": "cli"}}),
        ),
        record(
            "2",
            "user",
            said(json!([{"text": "<system-reminder>be brief</system-reminder>"},
            {"text": "where is @heron.rs?"}, {"text": "\n--- Content from referenced files ---\n"},
            {"text": "fn heron() {}"}])),
        ),
        record(
            "3",
            "assistant",
            json!({"message": {"role": "model", "parts": [{"text": "hm", "thought": true},
            {"text": "In the "}, {"text": "harbour."}, {"functionCall": {"name": "read_file"}}]}}),
        ),
        record("4", "tool_result", said(json!([{"functionResponse": {"name": "read_file"}}]))),
        record(
            "5",
            "user",
            json!({"subtype": "notification", "message": {"role": "user", "parts": [{"text": "done"}]}}),
        ),
        record(
            "6",
            "assistant",
            json!({"isSidechain": true, "message": {"role": "model", "parts": [{"text": "x"}]}}),
        ),
        record(
            "7",
            "user",
            json!({"systemPayload": {"displayText": "thanks", "hookContext": "h"},
            "message": {"role": "user", "parts": [{"text": "thanks and more"}]}}),
        ),
    ];
    let (session, client) = lines(&lines_of(&records));
    assert_eq!(client, Some(RecordedClient::Qwen));
    assert_eq!((session.session.as_deref(), session.cwd.as_deref()), (Some("5e55"), Some("/w")));
    let expect =
        [("user", "where is @heron.rs?"), ("assistant", "In the harbour."), ("user", "thanks")];
    check(&session, &expect);
    assert_eq!(session.turns[1].id.as_deref(), Some("3"));
    let parent = json!({"subtype": "parent_session", "systemPayload": {"parentSessionId": "p"}});
    let (child, client) = lines(&lines_of(&[record("0", "system", parent), records[6].clone()]));
    assert_eq!(client, Some(RecordedClient::Qwen));
    check(&child, &[]);
}

#[test]
fn goose_messages_are_turns() {
    let (session, client) = lines(
        r#"{"working_dir":"/w","description":"Herons","schedule_id":null,"message_count":4}
{"id":null,"role":"user","created":1740171566,"content":[{"type":"text","text":"where is it?"}]}
{"role":"assistant","created":1740171567,"content":[{"type":"text","text":"I look."},{"type":"toolRequest","id":"t","toolCall":{"status":"success"}}]}
{"role":"user","created":1740171568,"content":[{"type":"toolResponse","id":"t","toolResult":{"status":"success"}}]}
{"role":"assistant","created":1740171569,"content":[{"type":"text","text":"a summary"}],"metadata":{"userVisible":false,"agentVisible":true}}
{"role":"assistant","created":1740171570,"content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"In the harbour."}]}
"#,
    );
    assert_eq!(client, Some(RecordedClient::Goose));
    assert_eq!((session.session.as_deref(), session.cwd.as_deref()), (None, Some("/w")));
    let expect =
        [("user", "where is it?"), ("assistant", "I look."), ("assistant", "In the harbour.")];
    check(&session, &expect);
    assert_eq!(session.turns[0].ts.unwrap().as_second(), 1740171566);
    let (headless, client) = lines(
        "{\"role\":\"user\",\"created\":1,\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}\n",
    );
    assert_eq!(client, Some(RecordedClient::Goose));
    check(&headless, &[("user", "hi")]);
    assert_eq!(goose_session("20251118_2", "2025-11-18 10:31:12"), "goose-20251118_2-103112");
    assert_eq!(goose_session("20250612_143015", "2025-06-12 14:30:15"), "goose-20250612_143015");
    assert_eq!(goose_session("herons", ""), "goose-herons");
}

#[test]
fn entire_lines_are_turns() {
    let (session, client) = lines(
        r#"{"v":1,"agent":"claude-code","cli_version":"0.11.4","type":"user","ts":"2026-09-28T15:28:46.909Z","content":[{"id":"ec27","text":"where is it?"}]}
{"v":1,"agent":"claude-code","cli_version":"0.11.4","type":"assistant","ts":"2026-09-28T15:29:00.172Z","id":"msg_1","input_tokens":2,"output_tokens":187,"content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"t","name":"Bash","input":{"command":"ls"},"result":{"output":"text","status":"success"}},{"type":"text","text":"In the harbour."}]}
{"v":1,"agent":"codex","cli_version":"0.11.4","type":"assistant","ts":"","content":"Anything else?"}
{"v":1,"agent":"codex","cli_version":"0.11.4","type":"assistant","content":null}
"#,
    );
    assert_eq!(client, Some(RecordedClient::Entire));
    let expect = [
        ("user", "where is it?"),
        ("assistant", "I look.\n\nIn the harbour."),
        ("assistant", "Anything else?"),
    ];
    check(&session, &expect);
    assert_eq!(session.turns[0].ts, Some("2026-09-28T15:28:46.909Z".parse().unwrap()));
}

#[test]
fn aider_histories_have_a_session_per_chat() {
    let text = "\n# aider chat started at 2026-08-05 19:33:02\n\n> /usr/bin/aider --model x  \n> Aider v0.86.2  \n\n\
        #### where is the heron?  \n#### and why?  \n\nIn the harbour.\n\n> as the poet says\n\n# A heading\n\n\
        > Tokens: 2.1k sent, 5 received.  \n\n#### /add heron.rs  \n\n> Added heron.rs to the chat  \n\n\
        #### /ask is it grey?  \n\nYes.\n\n\n# aider chat started at 2026-08-06 08:00:00\n\n> Aider v0.86.2  \n\n\
        #### <blank>  \n\n# aider chat started at 2026-08-06 09:00:00\n\n#### bye  \n";
    let document = parse_document(text.as_bytes()).unwrap();
    assert_eq!(document.client, RecordedClient::Aider);
    let names: Vec<_> =
        document.sessions.iter().map(|one| one.session.as_deref().unwrap()).collect();
    assert_eq!(
        names,
        ["2026-08-05 19:33:02", "2026-08-06 09:00:00"],
        "a chat without turns is none"
    );
    check(
        &document.sessions[0],
        &[
            ("user", "where is the heron?\nand why?"),
            ("assistant", "In the harbour.\n\n> as the poet says\n\n# A heading"),
            ("user", "/ask is it grey?"),
            ("assistant", "Yes."),
        ],
    );
    check(&document.sessions[1], &[("user", "bye")]);
}

#[test]
fn cline_conversations_are_without_what_cline_adds() {
    let environment = "<environment_details>\n# VSCode Visible Files\n(No visible files)\n\n\
        # Current Working Directory (/w/proj) Files\nheron.rs\n</environment_details>";
    let text = |text: &str| json!({"type": "text", "text": text});
    let document = json!([
        {"role": "user", "content": [text("<task>\nfind the heron\n</task>"), text(environment)]},
        {"role": "assistant", "content": [text(
            "<thinking>hm</thinking>\nI look at the file.\n<read_file>\n<path>heron.rs</path>\n</read_file>")]},
        {"role": "user", "content": [text("[read_file for 'heron.rs'] Result:"), text("fn heron() {}")]},
        {"role": "assistant", "content": [text(
            "<attempt_completion>\n<result>\nIt is in heron.rs.\n</result>\n</attempt_completion>")]},
        {"role": "user", "content": [text("[attempt_completion] Result:"), text("<feedback>\nthanks\n</feedback>")]},
        {"role": "assistant", "content": [
            {"type": "tool_use", "name": "plan_mode_respond", "input": {"response": "Welcome."}}]},
    ]);
    let document = parse_document(document.to_string().as_bytes()).unwrap();
    assert_eq!(document.client, RecordedClient::Cline);
    assert_eq!(document.sessions[0].cwd.as_deref(), Some("/w/proj"));
    check(
        &document.sessions[0],
        &[
            ("user", "find the heron"),
            ("assistant", "I look at the file."),
            ("assistant", "It is in heron.rs."),
            ("user", "thanks"),
            ("assistant", "Welcome."),
        ],
    );
}

#[test]
fn specstory_histories_are_without_tools() {
    let text = "<!-- Generated by SpecStory, Markdown v2.1.0 -->\n\n\
        <!-- cursor Session 0f3a9c52-1111-2222-3333-444455556666 (2026-03-08 11:08Z) -->\n\n# Herons\n\n\
        _**User (2026-03-08 11:08Z)**_\n\nwhere is it?\n\n---\n\n_**Assistant**_\n\nI look.\n\n---\n\n_****_\n\n\
        <details>\n<summary>Searched</summary>\n\n_**User**_ in a file\n\n</details>\n\n---\n\n\
        _**Agent (model x, mode Agent)**_\n\nIn the harbour.\n\n<tool-use data-tool-type=\"read\">\nx\n</tool-use>\n";
    let document = parse_document(text.as_bytes()).unwrap();
    assert_eq!(document.client, RecordedClient::Specstory);
    let session = &document.sessions[0];
    assert_eq!(session.session.as_deref(), Some("0f3a9c52-1111-2222-3333-444455556666"));
    check(
        session,
        &[("user", "where is it?"), ("assistant", "I look."), ("assistant", "In the harbour.")],
    );
    assert_eq!(session.turns[0].ts, Some("2026-03-08T11:08:00Z".parse().unwrap()));
}

#[test]
fn other_documents_are_unknown() {
    for text in [
        "",
        "words",
        "# A readme\n\n> quote\n",
        "{}",
        "[]",
        "[1,2]",
        "{\"messages\":[]}",
        "\u{0}\u{1}",
    ] {
        assert_eq!(parse_document(text.as_bytes()), None, "{text:?}");
    }
}
