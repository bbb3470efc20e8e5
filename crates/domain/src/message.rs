//! A conversation in Anthropic's message shape.
//!
//! A string is one text block; null and absent are the same; metadata such as `cache_control` is not
//! part of a message.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Who speaks.
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

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub role: Role,
    pub content: Vec<Block>,
}

/// One block of a message.
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
    /// The content as the sender gave it: a string or a list of blocks.
    ToolResult {
        tool_use_id: String,
        content: Value,
        is_error: bool,
    },
    /// Anything else, such as an image, as it came.
    Other(Value),
}

/// Why something is not a message. The text names the place.
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

    /// Reads one message.
    pub fn parse(value: &Value) -> Result<Message, BadMessage> {
        let bad = |text: &str| BadMessage(text.to_owned());
        let object = value.as_object().ok_or_else(|| bad("a message must be an object"))?;
        let role = match object.get("role").and_then(Value::as_str) {
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            _ => return Err(bad("role: it must be \"user\" or \"assistant\"")),
        };
        let content = match object.get("content") {
            Some(Value::String(text)) => vec![Block::Text(text.clone())],
            Some(Value::Array(blocks)) => blocks
                .iter()
                .enumerate()
                .map(|(index, block)| {
                    Block::parse(block).ok_or_else(|| {
                        BadMessage(format!("content[{index}]: it is not a content block"))
                    })
                })
                .collect::<Result<_, _>>()?,
            _ => return Err(bad("content: it must be a text or a list of blocks")),
        };
        Ok(Message { role, content })
    }

    /// The message as an API would send it, content always as a list of blocks.
    pub fn to_value(&self) -> Value {
        let content: Vec<Value> = self.content.iter().map(Block::to_value).collect();
        json!({"role": self.role.as_str(), "content": content})
    }

    /// All text blocks, joined by an empty line.
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
    /// Reads one block; `None` when it is no object with a type, or lacks what its type needs.
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

    /// The block as an API would send it.
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

/// A value with its keys in order, without nulls and without `cache_control`: two spellings of the
/// same thing become equal.
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
    fn what_is_wrong_is_named() {
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
