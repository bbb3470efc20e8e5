//! Calls of an agent's own tools, as its updates announce them.

use serde_json::{Value, json};

/// The longest output of a tool that is shown, in bytes.
const MAX_OUTPUT_BYTES: usize = 100_000;

/// A call of one of the agent's own tools.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolCall {
    /// The number of the event that announced the call.
    pub first: u64,
    /// The agent's own id.
    pub id: String,
    pub name: String,
    /// What the agent calls the call.
    pub title: String,
    /// The kind in the words of the Agent Client Protocol, such as `execute`.
    pub kind: String,
    pub input: Value,
}

pub(super) fn tool_call(seq: u64, update: &Value) -> ToolCall {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let title = text(&update["title"]);
    let named = [&update["_meta"]["claudeCode"]["toolName"], &update["name"]];
    let name = named.iter().find_map(|name| name.as_str().map(str::to_owned));
    let input = match &update["rawInput"] {
        input @ Value::Object(_) => input.clone(),
        _ if title.is_empty() => json!({}),
        _ => json!({"title": title}),
    };
    let short = title.split(':').next().unwrap_or_default().trim();
    let name = name.unwrap_or_else(|| if short.is_empty() { "tool" } else { short }.to_owned());
    ToolCall {
        first: seq,
        id: text(&update["toolCallId"]),
        name,
        title,
        kind: text(&update["kind"]),
        input,
    }
}

/// Returns what a tool returned, as text.
pub(super) fn output(update: &Value) -> String {
    let parts = update["content"].as_array().into_iter().flatten();
    let texts = parts.filter_map(|part| match part["type"].as_str() {
        Some("content") => part["content"]["text"].as_str().map(str::to_owned),
        Some("diff") => part["path"].as_str().map(|path| format!("edited {path}")),
        _ => None,
    });
    let mut text = texts.collect::<Vec<_>>().join("\n");
    if text.is_empty() {
        text = match &update["rawOutput"] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
    }
    if text.len() > MAX_OUTPUT_BYTES {
        let is_boundary = |end: &usize| text.is_char_boundary(*end);
        let end = (0..=MAX_OUTPUT_BYTES).rev().find(is_boundary).unwrap_or_default();
        text.truncate(end);
    }
    text
}
