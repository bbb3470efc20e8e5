//! Messages of a conversation in Anthropic's format.
//!
//! A string counts as one text block, and null as absent. Metadata such as `cache_control` is not
//! part of a message.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    User,
    Assistant,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }

    pub fn parse(text: &str) -> Option<Role> {
        match text {
            "user" => Some(Role::User),
            "assistant" => Some(Role::Assistant),
            _ => None,
        }
    }
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub role: Role,
    pub content: Vec<Block>,
}

/// A content block of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    Text(String),
    Thinking {
        thinking: String,
        signature: String,
    },
    ToolUse {
        id: String,
        name: String,
        input: Value,
    },
    /// A tool's result. The content is a string or a list of blocks, unchanged.
    ToolResult {
        tool_use_id: String,
        content: Value,
        is_error: bool,
    },
    /// Any other block, such as an image, unchanged.
    Other(Value),
}

/// Why a value is not a message. The text names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadMessage(String);

impl Message {
    pub fn user(text: impl Into<String>) -> Message {
        Message { role: Role::User, content: vec![Block::Text(text.into())] }
    }

    pub fn assistant(text: impl Into<String>) -> Message {
        Message { role: Role::Assistant, content: vec![Block::Text(text.into())] }
    }

    /// Parses a message.
    pub fn parse(value: &Value) -> Result<Message, BadMessage> {
        let bad = |text: &str| BadMessage(text.to_owned());
        let object = value.as_object().ok_or_else(|| bad("a message must be an object"))?;
        let role = match object.get("role").and_then(Value::as_str) {
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            _ => return Err(bad("role: must be \"user\" or \"assistant\"")),
        };
        let content = match object.get("content") {
            Some(Value::String(text)) => vec![Block::Text(text.clone())],
            Some(Value::Array(blocks)) => blocks
                .iter()
                .enumerate()
                .map(|(index, block)| {
                    Block::parse(block)
                        .ok_or_else(|| BadMessage(format!("content[{index}]: not a content block")))
                })
                .collect::<Result<_, _>>()?,
            _ => return Err(bad("content: must be a string or a list of blocks")),
        };
        Ok(Message { role, content })
    }

    /// Returns the message in API format. Its content is always a list of blocks.
    pub fn to_value(&self) -> Value {
        let content: Vec<Value> = self.content.iter().map(Block::to_value).collect();
        json!({"role": self.role.as_str(), "content": content})
    }

    /// Returns all text blocks, joined by an empty line.
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self
            .content
            .iter()
            .filter_map(|block| match block {
                Block::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        texts.join("\n\n")
    }
}

impl Block {
    /// Parses a block. Returns `None` if the value has no type or lacks a field that its type
    /// requires.
    pub fn parse(value: &Value) -> Option<Block> {
        let object = value.as_object()?;
        let text = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
        Some(match object.get("type")?.as_str()? {
            "text" => Block::Text(text("text")?),
            "thinking" => Block::Thinking {
                thinking: text("thinking")?,
                signature: text("signature").unwrap_or_default(),
            },
            "tool_use" => Block::ToolUse {
                id: text("id")?,
                name: text("name")?,
                input: object.get("input").cloned().unwrap_or_else(|| json!({})),
            },
            "tool_result" => Block::ToolResult {
                tool_use_id: text("tool_use_id")?,
                content: object.get("content").cloned().unwrap_or(Value::Null),
                is_error: object.get("is_error").and_then(Value::as_bool).unwrap_or(false),
            },
            _ => Block::Other(value.clone()),
        })
    }

    /// Returns the block in API format.
    pub fn to_value(&self) -> Value {
        match self {
            Block::Text(text) => json!({"type": "text", "text": text}),
            Block::Thinking { thinking, signature } => {
                json!({"type": "thinking", "thinking": thinking, "signature": signature})
            }
            Block::ToolUse { id, name, input } => {
                json!({"type": "tool_use", "id": id, "name": name, "input": input})
            }
            Block::ToolResult { tool_use_id, content, is_error } => {
                let is_error = if *is_error { json!(true) } else { Value::Null };
                json!({"type": "tool_result", "tool_use_id": tool_use_id, "content": content,
                    "is_error": is_error})
            }
            Block::Other(value) => value.clone(),
        }
    }
}

/// Up to this number, every whole number has a floating-point number of its own.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_991.0;

/// Returns a value with sorted keys, without nulls and without `cache_control`, so that equivalent
/// values become equal. `1` and `1.0` are one number: JavaScript does not tell them apart.
pub(crate) fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut keys: Vec<&String> = object.keys().collect();
            keys.sort_unstable();
            let mut out = Map::new();
            for key in keys {
                let value = &object[key];
                if !value.is_null() && key != "cache_control" {
                    out.insert(key.clone(), canonical(value));
                }
            }
            Value::Object(out)
        }
        Value::Array(values) => Value::Array(values.iter().map(canonical).collect()),
        // Adding zero removes the sign of a negative zero. Larger whole numbers would lose digits.
        Value::Number(number) => match number.as_f64() {
            Some(float) if float.abs() <= MAX_EXACT_INTEGER => json!(float + 0.0),
            _ => value.clone(),
        },
        value => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_one_text_block() {
        let string = Message::parse(&json!({"role": "user", "content": "hi"})).unwrap();
        let block = json!({"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]});
        assert_eq!(string, Message::parse(&block).unwrap());
        assert_eq!(string, Message::user("hi"));
    }

    #[test]
    fn parse_error_names_the_field() {
        let check = |value: Value, word: &str| {
            let error = Message::parse(&value).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        };
        check(json!("hi"), "object");
        check(json!({"role": "system", "content": "x"}), "role");
        check(json!({"role": "user"}), "content");
        check(json!({"role": "user", "content": ["x"]}), "content[0]");
        check(json!({"role": "user", "content": [{"type": "text"}]}), "content[0]");
    }
}
