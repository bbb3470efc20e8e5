//! The records of editors and their extensions: Cursor, Zed, Roo Code, and Cline's later sessions. Their formats are from public
//! sources and readers.

use std::path::Path;

use serde_json::{Value, json};

use crate::tests_clients::check;
use crate::{
    CursorChat, CursorChatRoot, CursorConversation, CursorMessage, ParsedSession, RecordedClient,
    ZedThread, add_cursor_chat_message, document_client, parse_document, zed_folder,
};

#[test]
fn cursor_conversations_name_their_messages() {
    let value = json!({"_v": 10, "composerId": "c1", "createdAt": 1766691308486_i64, "status": "completed",
        "fullConversationHeadersOnly": [{"bubbleId": "b1", "type": 1}, {"bubbleId": "b2", "type": 2}],
        "conversationMap": {}, "subagentComposerIds": ["c2"], "subComposerIds": ["c3"],
        "workspaceIdentifier": {"id": "w1", "uri": {"fsPath": "/w/proj", "scheme": "file"}}});
    let conversation = CursorConversation::parse(&value).unwrap();
    assert_eq!(conversation.messages, ["b1", "b2"]);
    assert_eq!(conversation.cwd.as_deref(), Some("/w/proj"));
    assert_eq!(conversation.created.unwrap().as_millisecond(), 1766691308486);
    assert_eq!(conversation.children, ["c2", "c3"]);
    assert!(!conversation.is_child);

    let with = |key: &str, changed: Value| {
        let mut value = value.clone();
        value[key] = changed;
        CursorConversation::parse(&value).unwrap()
    };
    assert_eq!(with("generatingBubbleIds", json!(["b2"])).messages, ["b1"]);
    assert_eq!(with("status", json!("generating")).messages, ["b1"]);
    assert!(with("subagentInfo", json!({"parentComposerId": "c0"})).is_child);
    assert!(with("isBestOfNSubcomposer", json!(true)).is_child);
    for other in [json!({}), json!({"composerId": "c"}), json!([]), json!(7)] {
        assert_eq!(CursorConversation::parse(&other), None, "{other}");
    }
}

#[test]
fn cursor_messages_of_earlier_versions_are_in_the_conversation() {
    let value = json!({"composerId": "c1", "createdAt": 1, "conversation": [
        {"bubbleId": "b1", "type": 1, "text": " where is it? "}, {"bubbleId": "b2", "type": 2, "text": "Here."}]});
    let conversation = CursorConversation::parse(&value).unwrap();
    let turns = conversation.contained.into_iter().filter_map(|message| message.turn).collect();
    let session = ParsedSession { turns, ..ParsedSession::default() };
    check(&session, &[("user", "where is it?"), ("assistant", "Here.")]);
    assert_eq!(session.turns[0].id.as_deref(), Some("b1"));
}

#[test]
fn cursor_messages_are_turns_if_they_have_a_text() {
    let message = CursorMessage::parse(&json!({"_v": 3, "type": 1, "bubbleId": "b1", "text": "where is it?",
        "richText": "{}", "createdAt": "2026-05-03T10:00:00.000Z", "workspaceUris": ["file:///w/my%20proj"]}))
    .unwrap();
    assert_eq!(message.cwd.as_deref(), Some("/w/my proj"));
    assert_eq!(message.turn.unwrap().ts, Some("2026-05-03T10:00:00Z".parse().unwrap()));
    let tool =
        json!({"type": 2, "bubbleId": "b2", "text": "", "toolFormerData": {"name": "read_file"}});
    assert_eq!(CursorMessage::parse(&tool).unwrap().turn, None);
    for other in [json!({"text": "x"}), json!({"type": 9, "text": "x"}), json!(null)] {
        assert_eq!(CursorMessage::parse(&other), None, "{other}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn cursor_chats_list_their_messages() {
    let meta = json!({"agentId": "a", "latestRootBlobId": "ff00", "createdAt": 1781256145540_i64});
    let chat = CursorChat::parse(&hex(meta.to_string().as_bytes())).unwrap();
    assert_eq!(chat.root, "ff00");
    assert_eq!(chat.created.unwrap().as_millisecond(), 1781256145540);
    for other in ["", "7", "zz", "7b7d", "{}"] {
        assert_eq!(CursorChat::parse(other), None, "{other}");
    }

    let (first, second) = ([1_u8; 32], [2_u8; 32]);
    // Two messages, a number, eight and four bytes that are not read, a shorter value, and the workspace.
    let mut root: Vec<u8> = Vec::new();
    for id in [first, second] {
        root.extend([0x0a, 32]);
        root.extend(id);
    }
    root.extend([0x10, 0xac, 0x02]);
    root.extend([0x19, 0, 0, 0, 0, 0, 0, 0, 0, 0x25, 0, 0, 0, 0, 0x0a, 1, 7]);
    root.extend([0x4a, 16]);
    root.extend(b"file:///w/my%20p");
    let parsed = CursorChatRoot::parse(&root).unwrap();
    assert_eq!(parsed.messages, [hex(&first), hex(&second)]);
    assert_eq!(parsed.cwd.as_deref(), Some("/w/my p"));
    for cut in [1, 5, root.len() - 1] {
        assert_eq!(CursorChatRoot::parse(&root[..cut]), None, "{cut}");
    }
    assert_eq!(CursorChatRoot::parse(&[0x0b]), None, "a group");
    assert_eq!(CursorChatRoot::parse(&[0xff; 11]), None, "an endless number");
}

#[test]
fn cursor_chats_are_without_what_cursor_adds() {
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let mut session = ParsedSession::default();
    for message in [
        json!({"role": "system", "content": "You are"}),
        json!({"role": "user", "content": "<user_info>\nWorkspace Path: /w/proj\n</user_info>"}),
        json!({"role": "user", "content":
            text("<rules>x</rules>\n<user_query>\nwhere is it?\n</user_query>")}),
        json!({"role": "assistant", "content": [{"type": "reasoning", "text": "hm"},
            {"type": "text", "text": "I look."}, {"type": "tool-call", "toolName": "Read"}]}),
        json!({"role": "tool", "content": [{"type": "tool-result", "result": "text"}]}),
        json!({"role": "assistant", "content": "In the harbour."}),
        json!({"role": "user", "content": "thanks"}),
    ] {
        assert!(add_cursor_chat_message(&mut session, &message), "{message}");
    }
    assert_eq!(session.cwd.as_deref(), Some("/w/proj"));
    let expect = [
        ("user", "where is it?"),
        ("assistant", "I look."),
        ("assistant", "In the harbour."),
        ("user", "thanks"),
    ];
    check(&session, &expect);
    assert!(!add_cursor_chat_message(&mut session, &json!({"content": "x"})));
}

#[test]
fn roo_tasks_have_replies_in_results_of_tools() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let result = |id: &str, content: Value| json!({"type": "tool_result", "tool_use_id": id, "content": content});
    let call = |id: &str, name: &str, input: Value| json!({"type": "tool_use", "id": id, "name": name, "input": input});
    let document = json!([
        {"role": "user", "ts": 1776200000000_i64, "content": [
            text("<user_message>\nfind the heron\n</user_message>"),
            text("<environment_details>\n# Current Workspace Directory (/w/proj) Files\n</environment_details>")]},
        {"role": "assistant", "content": [{"type": "reasoning", "text": "hm", "summary": []}, text("I look."),
            call("t1", "read_file", json!({"path": "heron.rs"}))]},
        {"role": "user", "content": [result("t1", json!("<user_message>\nnot said\n</user_message>"))]},
        {"role": "assistant", "content": [
            call("t2", "ask_followup_question", json!({"question": "Which one?"}))]},
        {"role": "user", "content": [
            result("t2", json!([text("<user_message>\nthe grey one\n</user_message>")]))]},
        {"role": "user", "isSummary": true, "content": [text("<user_message>\nsummary\n</user_message>")]},
        {"role": "assistant", "content": [
            call("t3", "attempt_completion", json!({"result": "It is in heron.rs."}))]},
        {"role": "user", "content": [result("t3", json!("<user_message>\nthanks\n</user_message>"))]},
    ]);
    let parsed = parse_document(document.to_string().as_bytes()).unwrap();
    let path = "/h/globalStorage/rooveterinaryinc.roo-cline/tasks/1/api_conversation_history.json";
    assert_eq!(document_client(Path::new(path), parsed.client), RecordedClient::Roo);
    let other = path.replace("rooveterinaryinc.roo-cline", "saoudrizwan.claude-dev");
    assert_eq!(document_client(Path::new(&other), parsed.client), RecordedClient::Cline);
    assert_eq!(parsed.sessions[0].cwd.as_deref(), Some("/w/proj"));
    let expect = [
        ("user", "find the heron"),
        ("assistant", "I look."),
        ("assistant", "Which one?"),
        ("user", "the grey one"),
        ("assistant", "It is in heron.rs."),
        ("user", "thanks"),
    ];
    check(&parsed.sessions[0], &expect);
}

#[test]
fn cline_sessions_are_without_what_cline_adds() {
    let document = |agent: &str| {
        json!({"version": 1, "updated_at": "2026-08-22T13:03:18Z", "agent": agent, "sessionId": "s1",
        "origin": {"source": "cli", "mode": "user", "sessionId": "s1"}, "system_prompt": "You are", "messages": [
        {"id": "m1", "role": "user", "ts": 1787430000000_i64, "content": [
            {"type": "text", "text": "<mode_notice>switched</mode_notice><user_input mode=\"act\">find the heron</user_input>"},
            {"type": "text", "text": "<file_content path=\"heron.rs\">\nfn heron() {}\n</file_content>"}]},
        {"id": "m2", "role": "assistant", "content": [{"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": "I look."}, {"type": "tool_use", "id": "t", "name": "read_files", "input": {}}]},
        {"id": "m3", "role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "text"}]},
        {"id": "m4", "role": "user", "content": [{"type": "text", "text": "Context summary:\n\nx"}],
            "metadata": {"kind": "compaction_summary"}},
        {"id": "m5", "role": "assistant", "content": "It is in heron.rs."},
        {"id": "m6", "role": "user", "content": "plain words"}]})
    };
    let parsed = parse_document(document("lead").to_string().as_bytes()).unwrap();
    assert_eq!(parsed.client, RecordedClient::Cline);
    let session = &parsed.sessions[0];
    assert_eq!(session.session.as_deref(), Some("s1"));
    let expect = [
        ("user", "find the heron"),
        ("assistant", "I look."),
        ("assistant", "It is in heron.rs."),
        ("user", "plain words"),
    ];
    check(session, &expect);
    assert_eq!(session.turns[0].id.as_deref(), Some("m1"));
    assert_eq!(session.turns[0].ts.unwrap().as_millisecond(), 1787430000000);
    let subagent = parse_document(document("subagent").to_string().as_bytes()).unwrap();
    check(&subagent.sessions[0], &[]);
}

#[test]
fn zed_threads_are_without_what_zed_adds() {
    let value = json!({"title": "Herons", "version": "0.3.0", "updated_at": "2026-08-02T10:00:00Z",
        "initial_project_snapshot": {"timestamp": "2026-08-01T10:00:00Z",
            "worktree_snapshots": [{"worktree_path": "/w/proj", "git_state": null}]},
        "subagent_context": null, "messages": [
        {"User": {"id": "u1", "content": [{"Text": "where is "},
            {"Mention": {"uri": {"File": {"abs_path": "/w/proj/heron.rs"}}, "content": "fn heron() {}"}},
            {"Text": " used? "}, {"Image": {"source": "aGVyb24="}}]}},
        {"Agent": {"content": [{"Thinking": {"text": "hm", "signature": null}}, {"Text": "I look."},
            {"ToolUse": {"id": "t", "name": "grep", "raw_input": "{}", "input": {}}},
            {"RedactedThinking": "x"}, {"Text": "In the harbour."}],
            "tool_results": {"t": {"content": [{"Text": "harbour.rs"}]}}, "reasoning_details": null}},
        {"Agent": {"content": [{"ToolUse": {"id": "t2"}}], "tool_results": {}}},
        "Resume", {"Compaction": {"Summary": "the user asked about herons"}}]});
    let thread = ZedThread::parse(&value).unwrap();
    let expect =
        [("user", "where is @/w/proj/heron.rs used?"), ("assistant", "I look.\n\nIn the harbour.")];
    check(&thread.session, &expect);
    assert_eq!(thread.session.cwd.as_deref(), Some("/w/proj"));
    assert_eq!(thread.started, Some("2026-08-01T10:00:00Z".parse().unwrap()));
    assert_eq!((thread.is_child, thread.unknown_messages), (false, 0));

    let with = |key: &str, changed: Value| {
        let mut value = value.clone();
        value[key] = changed;
        ZedThread::parse(&value)
    };
    let child = with("subagent_context", json!({"parent_thread_id": "p", "depth": 1})).unwrap();
    assert!(child.is_child);
    let later = with("initial_project_snapshot", Value::Null).unwrap();
    assert_eq!(later.started, Some("2026-08-02T10:00:00Z".parse().unwrap()));
    let strange = json!([{"Narrator": {"content": []}}, {"Agent": {"content": [{"Text": "x"}]}}]);
    assert_eq!(with("messages", strange).unwrap().unknown_messages, 1);
    assert_eq!(with("messages", json!([{"Narrator": {"content": []}}])), None);
    assert!(with("messages", json!([])).unwrap().session.turns.is_empty());
    for other in [json!({}), json!([]), json!(7), json!({"messages": {}})] {
        assert_eq!(ZedThread::parse(&other), None, "{other}");
    }
}

#[test]
fn zed_threads_of_earlier_versions_have_roles() {
    let segments = json!({"version": "0.2.0", "summary": "Herons", "updated_at": "2025-07-01T10:00:00+00:00",
        "messages": [
        {"id": 0, "role": "system", "segments": [{"type": "text", "text": "be brief"}]},
        {"id": 1, "role": "user", "segments": [{"type": "text", "text": "where is it?"}], "context": "fn heron() {}"},
        {"id": 2, "role": "assistant", "segments": [{"type": "thinking", "text": "hm"}, {"type": "text", "text": "Here."}],
            "tool_uses": [{"id": "t", "name": "grep", "input": {}}]},
        {"id": 3, "role": "user", "segments": [], "tool_results": [{"tool_use_id": "t"}]},
        {"id": 4, "role": "user", "segments": [{"type": "text", "text": "continue"}], "is_hidden": true}]});
    let thread = ZedThread::parse(&segments).unwrap();
    check(&thread.session, &[("user", "where is it?"), ("assistant", "Here.")]);
    assert_eq!(thread.started, Some("2025-07-01T10:00:00Z".parse().unwrap()));
    let texts = json!({"summary": "Herons", "updated_at": "2025-03-01T10:00:00Z", "messages": [
        {"id": 0, "role": "user", "text": "where is it?"}, {"id": 1, "role": "assistant", "text": "Here."}]});
    let thread = ZedThread::parse(&texts).unwrap();
    check(&thread.session, &[("user", "where is it?"), ("assistant", "Here.")]);
}

#[test]
fn zed_folder_is_the_one_that_was_opened_first() {
    let check = |paths: &str, order: &str, expect: Option<&str>| {
        assert_eq!(zed_folder(paths, order).as_deref(), expect, "{paths:?} {order:?}");
    };
    check("/w/a", "0", Some("/w/a"));
    check("/w/a\n/w/b", "1,0", Some("/w/b"));
    check("/w/a\n/w/b", "", Some("/w/a"));
    check("/w/a", "1,2,0", Some("/w/a"));
    check("", "", None);
}
