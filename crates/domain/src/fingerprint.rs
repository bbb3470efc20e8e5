//! Fingerprints of conversations. Clients that send the same conversation in different forms get
//! the same one.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::message::{Block, Message, Role, canonical};

/// A hash of a conversation up to a point, and of the options it runs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

/// Returns the fingerprint of `history` under `scope`. The scope is everything else that must be
/// equal for a live process to continue the conversation: app, system prompt, model, folder,
/// permissions and MCP servers.
///
/// Thinking blocks are left out, because clients may drop them when they send a conversation back.
pub fn fingerprint(scope: &Value, history: &[Message]) -> Fingerprint {
    let mut hasher = Sha256::new();
    let mut add = |value: &Value| {
        let text = value.to_string();
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text.as_bytes());
    };
    add(&canonical(scope));
    for message in history {
        add(&json!([message.role.as_str(), content(message)]));
    }
    Fingerprint(hasher.finalize().into())
}

/// Returns the blocks in canonical form. Adjacent texts are joined, as some clients do. An answer
/// is trimmed, as many clients do.
fn content(message: &Message) -> Value {
    let mut out: Vec<Value> = Vec::new();
    let mut text: Option<String> = None;
    let whole = |text: String| match message.role {
        Role::Assistant => json!(text.trim()),
        Role::User => json!(text),
    };
    for block in &message.content {
        let value = match block {
            Block::Thinking { .. } => continue,
            // No client sends an empty text back.
            Block::Text(next) if next.is_empty() => continue,
            Block::Text(next) => {
                text = Some(match text.take() {
                    Some(before) => format!("{before}\n\n{next}"),
                    None => next.clone(),
                });
                continue;
            }
            Block::ToolUse { id, name, input } => {
                json!({"use": id, "name": name, "input": canonical(input)})
            }
            Block::ToolResult { tool_use_id, content, is_error } => {
                json!({"result": tool_use_id, "content": result_content(content), "error": is_error})
            }
            Block::Other(value) => canonical(value),
        };
        out.extend(text.take().map(whole));
        out.push(value);
    }
    out.extend(text.take().map(whole));
    Value::Array(out)
}

/// Returns a tool result in canonical form: text blocks become their text.
fn result_content(content: &Value) -> Value {
    match content {
        Value::Null => json!(""),
        Value::Array(blocks) => {
            let texts: Option<Vec<&str>> = blocks
                .iter()
                .map(|block| block["text"].as_str().filter(|_| block["type"] == "text"))
                .collect();
            texts.map_or_else(|| canonical(content), |texts| json!(texts.join("\n\n")))
        }
        content => canonical(content),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(value: Value) -> Vec<Message> {
        value.as_array().unwrap().iter().map(|m| Message::parse(m).unwrap()).collect()
    }

    fn check(equal: bool, left: Value, right: Value) {
        let left_print = fingerprint(&json!({}), &history(left.clone()));
        let right_print = fingerprint(&json!({}), &history(right.clone()));
        assert_eq!(left_print == right_print, equal, "{left} and {right}");
    }

    /// Seed 002: what the backend stashes and what a gateway echoes look up to the same.
    #[test]
    fn post_turn_fingerprint_matches_canonical_continuation() {
        check(
            true,
            json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello there"}]),
            json!([{"role": "user", "content": "hi"},
                {"role": "assistant", "content": [{"type": "text", "text": "hello there"}]}]),
        );
    }

    #[test]
    fn equivalent_conversations_have_the_same_fingerprint() {
        let result = |extra: Value| {
            let mut block = json!({"type": "tool_result", "tool_use_id": "t", "content": "x"});
            for (key, value) in extra.as_object().unwrap() {
                block[key] = value.clone();
            }
            json!([{"role": "user", "content": [block]}])
        };
        check(true, result(json!({})), result(json!({"is_error": null})));
        check(true, result(json!({})), result(json!({"is_error": false})));
        check(true, result(json!({})), result(json!({"content": [{"type": "text", "text": "x"}]})));
        check(true, result(json!({})), result(json!({"cache_control": {"type": "ephemeral"}})));
        check(false, result(json!({})), result(json!({"is_error": true})));
        let call = |input: Value| json!([{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "n", "input": input}]}]);
        check(true, call(json!({"a": 1, "b": 2})), call(json!({"b": 2, "a": 1})));
        check(false, call(json!({"a": 1})), call(json!({"a": 2})));
        check(true, call(json!({"a": 1, "b": 0})), call(json!({"a": 1.0, "b": -0.0})));
        check(false, call(json!({"a": 1})), call(json!({"a": 1.5})));
        let thinking = json!([{"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "x"}]}]);
        check(true, thinking, json!([{"role": "assistant", "content": "x"}]));
        let empty = json!([{"role": "assistant", "content": [
            {"type": "text", "text": "x"}, {"type": "text", "text": ""}]}]);
        check(true, empty, json!([{"role": "assistant", "content": "x"}]));
        let padded = |role: &str| json!([{"role": role, "content": " x\n"}]);
        check(true, padded("assistant"), json!([{"role": "assistant", "content": "x"}]));
        check(false, padded("user"), json!([{"role": "user", "content": "x"}]));
    }

    #[test]
    fn different_conversations_have_different_fingerprints() {
        let one = json!([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]);
        check(false, one.clone(), json!([{"role": "user", "content": "ab"}]));
        check(false, one.clone(), json!([{"role": "user", "content": "a"}]));
        check(
            false,
            json!([{"role": "user", "content": "a"}]),
            json!([{"role": "assistant", "content": "a"}]),
        );
        let messages = history(one);
        let model = |name: &str| fingerprint(&json!({"model": name}), &messages);
        assert_ne!(model("a"), model("b"));
    }
}
