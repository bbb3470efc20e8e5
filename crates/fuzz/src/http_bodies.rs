//! Bodies of HTTP requests, and the forms that clients and agents ask for.

use hob_agents::driver::form;
use hob_domain::{Message, fingerprint};
use hob_gateway::{RequestKind, read_body};
use hob_sessions::Conversation;
use serde_json::{Value, json};

/// The longest description of what is wrong with an answer, in bytes.
const MAX_ERROR_BYTES: usize = 4096;

/// Reads the bodies of requests to sessions.
pub fn http_sessions(bytes: &[u8]) {
    for kind in
        [RequestKind::Session, RequestKind::Turn, RequestKind::Permission, RequestKind::ToolResult]
    {
        let _ = read_body(kind, bytes);
    }
}

/// Reads bodies of Anthropic's messages.
pub fn http_messages(bytes: &[u8]) {
    read_conversation(RequestKind::Messages, bytes);
}

/// Reads bodies of OpenAI's chat completions.
pub fn http_chat(bytes: &[u8]) {
    read_conversation(RequestKind::ChatCompletion, bytes);
}

/// Reads bodies of OpenAI's responses.
pub fn http_responses(bytes: &[u8]) {
    read_conversation(RequestKind::Response, bytes);
}

fn read_conversation(kind: RequestKind, bytes: &[u8]) {
    let Ok(Some(asked)) = read_body(kind, bytes) else { return };
    let messages: Vec<Message> =
        asked.messages.iter().filter_map(|message| Message::parse(message).ok()).collect();
    for message in &messages {
        let written = message.to_value();
        assert_eq!(Message::parse(&written).as_ref(), Ok(message), "{written}");
    }
    let scope = json!({});
    assert_eq!(fingerprint(&scope, &messages), fingerprint(&scope, &messages));
    check_answer(&asked, "{}");
    check_answer(&asked, "```json\n[1]\n```");
}

/// Checks an answer under a schema of the client, and the fields of an agent's form. The first line is the schema, the rest
/// is the answer.
pub fn forms(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Some((schema, answer)) = text.split_once('\n') else { return };
    let Ok(schema) = serde_json::from_str::<Value>(schema) else { return };
    if let Ok(content) = serde_json::from_str::<Value>(answer) {
        let may_be_empty = form::may_be_empty(&schema);
        let checked = form::check(&schema, &content);
        assert!(checked.is_err() || content.is_object());
        assert!(!may_be_empty || form::check(&schema, &json!({})).is_ok());
    }
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let body = json!({"messages": [{"role": "user", "content": "x"}], "response_format": format});
    let body = body.to_string();
    let Ok(Some(asked)) = read_body(RequestKind::ChatCompletion, body.as_bytes()) else { return };
    check_answer(&asked, answer);
}

fn check_answer(asked: &Conversation, answer: &str) {
    let Some(check) = &asked.answer_check else { return };
    let checked = check(answer);
    assert_eq!(check(answer).is_ok(), checked.is_ok(), "an answer is checked alike twice");
    assert!(checked.err().is_none_or(|error| error.len() <= MAX_ERROR_BYTES));
}
