//! One line of a transcript. Tolerant: what it does not know is [`Kind::Other`], what is no record
//! at all is `None`.

use std::sync::Arc;

use hob_domain::Block;
use serde_json::Value;

use super::event::Usage;

/// The text an interrupted turn leaves.
const INTERRUPTED: &str = "[Request interrupted by user";

#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub uuid: Option<String>,
    pub parent: Option<String>,
    pub timestamp: String,
    pub kind: Kind,
    /// The line itself.
    pub raw: Arc<str>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// Something the user typed.
    Prompt {
        text: String,
    },
    ToolResults(Vec<Block>),
    /// The turn was interrupted.
    Interrupted,
    Assistant(Assistant),
    /// The end of a turn.
    TurnEnd,
    /// What the CLI says about a command it did not take as a prompt.
    Informational {
        content: String,
    },
    Other,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Assistant {
    pub message_id: String,
    pub model: String,
    pub blocks: Vec<Block>,
    pub stop_reason: Option<String>,
    pub usage: Usage,
    pub error: Option<ApiError>,
}

impl Assistant {
    /// Whether the CLI made it up: an error, or the rest of an interrupted answer.
    pub fn synthetic(&self) -> bool {
        self.model == "<synthetic>"
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub kind: String,
    pub status: Option<u16>,
}

/// Reads one line. Records of sub-agents are not part of the conversation and give `None`.
pub fn parse(line: &str) -> Option<Record> {
    let value: Value = serde_json::from_str(line).ok()?;
    if value["isSidechain"] == true {
        return None;
    }
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    let kind = match value["type"].as_str()? {
        "user" => user(&value),
        "assistant" => assistant(&value),
        "system" => match value["subtype"].as_str() {
            Some("turn_duration") => Kind::TurnEnd,
            Some("informational") => {
                Kind::Informational { content: text("content").unwrap_or_default() }
            }
            _ => Kind::Other,
        },
        _ => Kind::Other,
    };
    // After a compaction the chain goes on behind a boundary that has another kind of parent.
    let parent = text("parentUuid").or_else(|| text("logicalParentUuid"));
    Some(Record {
        uuid: text("uuid"),
        parent,
        timestamp: text("timestamp").unwrap_or_default(),
        kind,
        raw: line.trim().into(),
    })
}

fn user(value: &Value) -> Kind {
    let content = &value["message"]["content"];
    let meta = value["isMeta"] == true || value["isCompactSummary"] == true;
    let blocks: Vec<Block> = match content {
        Value::String(text) => vec![Block::Text(text.clone())],
        Value::Array(blocks) => blocks.iter().filter_map(Block::parse).collect(),
        _ => return Kind::Other,
    };
    let results: Vec<Block> =
        blocks.iter().filter(|block| matches!(block, Block::ToolResult { .. })).cloned().collect();
    if !results.is_empty() {
        return Kind::ToolResults(results);
    }
    let texts: Vec<&str> = blocks
        .iter()
        .filter_map(|block| match block {
            Block::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    let text = texts.join("\n");
    if content.is_array() && text.starts_with(INTERRUPTED) {
        return Kind::Interrupted;
    }
    if meta || text.is_empty() { Kind::Other } else { Kind::Prompt { text } }
}

fn assistant(value: &Value) -> Kind {
    let message = &value["message"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let count = |key: &str| message["usage"][key].as_u64().unwrap_or_default();
    let Some(blocks) = message["content"].as_array() else { return Kind::Other };
    let error = (value["isApiErrorMessage"] == true).then(|| ApiError {
        kind: text(&value["error"]).unwrap_or_else(|| "unknown".to_owned()),
        status: value["apiErrorStatus"].as_u64().and_then(|status| u16::try_from(status).ok()),
    });
    Kind::Assistant(Assistant {
        message_id: text(&message["id"]).unwrap_or_default(),
        model: text(&message["model"]).unwrap_or_default(),
        blocks: blocks.iter().filter_map(Block::parse).collect(),
        stop_reason: text(&message["stop_reason"]),
        usage: Usage {
            input_tokens: count("input_tokens"),
            output_tokens: count("output_tokens"),
            cache_creation_input_tokens: count("cache_creation_input_tokens"),
            cache_read_input_tokens: count("cache_read_input_tokens"),
        },
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn kind(value: Value) -> Kind {
        parse(&value.to_string()).expect("a record").kind
    }

    #[test]
    fn kinds_of_records() {
        let user = |content: Value| json!({"type": "user", "message": {"role": "user", "content": content}});
        assert_eq!(kind(user(json!("hi"))), Kind::Prompt { text: "hi".into() });
        let interrupted =
            json!([{"type": "text", "text": "[Request interrupted by user for tool use]"}]);
        assert_eq!(kind(user(interrupted)), Kind::Interrupted);
        // A user may type those very words.
        assert!(matches!(kind(user(json!("[Request interrupted by user]"))), Kind::Prompt { .. }));
        let result = json!([{"type": "tool_result", "tool_use_id": "t", "content": "x"}]);
        assert!(matches!(kind(user(result)), Kind::ToolResults(results) if results.len() == 1));
        let mut meta = user(json!("<local-command-caveat>"));
        meta["isMeta"] = json!(true);
        assert_eq!(kind(meta), Kind::Other);
        assert_eq!(kind(json!({"type": "system", "subtype": "turn_duration"})), Kind::TurnEnd);
        assert_eq!(
            kind(json!({"type": "api-request-blob", "message": {"content": "x"}})),
            Kind::Other
        );
        let error =
            kind(json!({"type": "assistant", "isApiErrorMessage": true, "error": "rate_limit",
            "apiErrorStatus": 429, "message": {"model": "<synthetic>", "content": []}}));
        let Kind::Assistant(error) = error else { panic!("{error:?}") };
        assert!(error.synthetic());
        assert_eq!(error.error, Some(ApiError { kind: "rate_limit".into(), status: Some(429) }));
    }

    #[test]
    fn sub_agents_and_noise_are_left_out() {
        assert_eq!(parse(r#"{"type":"user","isSidechain":true,"message":{"content":"x"}}"#), None);
        for noise in ["", "{", "null", "[]", "42", r#"{"no":"type"}"#, r#"{"type":7}"#] {
            assert_eq!(parse(noise), None, "{noise}");
        }
    }

    proptest! {
        #[test]
        fn no_line_is_a_panic(line in ".{0,200}") {
            let _ = parse(&line);
        }
    }
}
