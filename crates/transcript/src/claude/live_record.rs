//! Records as the live backend uses them: with whole blocks, usage and the end of a turn.

use std::sync::Arc;

use hob_domain::Block;
use serde::de::MapAccess;
use serde_json::{Map, Value};

use super::event::Usage;
use super::record::{
    INTERRUPTED, RecordMessage, SYNTHETIC_MODEL, TranscriptRecord, owned_or_empty,
};
use crate::json::{self, Fields, Loose};

/// A record of the conversation between a user and the model.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveRecord {
    pub uuid: Option<String>,
    pub parent: Option<String>,
    pub timestamp: String,
    pub body: LiveBody,
    /// The line itself.
    pub raw: Arc<str>,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq)]
pub enum LiveBody {
    /// What the user typed.
    Prompt {
        text: String,
    },
    ToolResults(Vec<Block>),
    /// The user interrupted the turn.
    Interrupted,
    Assistant(AssistantMessage),
    /// The end of a turn.
    TurnEnd,
    /// The CLI's answer to a command that it did not take as a prompt.
    Informational {
        content: String,
    },
    /// A record that the backend does not know.
    Other,
}

/// A part of a message of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct AssistantMessage {
    pub message_id: String,
    pub model: String,
    pub blocks: Vec<Block>,
    pub stop_reason: Option<String>,
    pub usage: Usage,
    pub error: Option<ApiError>,
}

impl AssistantMessage {
    /// Returns whether the CLI made the message up: an error, or the rest of an interrupted answer.
    pub fn is_synthetic(&self) -> bool {
        self.model == SYNTHETIC_MODEL
    }
}

/// An error of the model's API, as the CLI records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub kind: String,
    pub status: Option<u16>,
}

type WholeRecord<'a> = TranscriptRecord<'a, WholeBlock>;

/// A content block with all its fields.
#[derive(Debug)]
struct WholeBlock(Value);

impl Default for WholeBlock {
    fn default() -> WholeBlock {
        WholeBlock(Value::Object(Map::new()))
    }
}

impl<'a> Fields<'a> for WholeBlock {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let value = map.next_value()?;
        if let Value::Object(fields) = &mut self.0 {
            fields.insert(key.to_owned(), value);
        }
        Ok(())
    }
}

impl LiveRecord {
    /// Parses one line. Returns `None` if it is not a record, or one of a sub-agent, which is not a
    /// part of the conversation.
    pub fn parse(line: &str) -> Option<LiveRecord> {
        let record: WholeRecord<'_> = json::object(line.as_bytes()).ok()?;
        if record.is_sidechain {
            return None;
        }
        let body = match record.kind.text()? {
            "user" => user(&record),
            "assistant" => assistant(&record),
            "system" => match record.subtype.text() {
                Some("turn_duration") => LiveBody::TurnEnd,
                Some("informational") => {
                    LiveBody::Informational { content: owned_or_empty(&record.content) }
                }
                _ => LiveBody::Other,
            },
            _ => LiveBody::Other,
        };
        Some(LiveRecord {
            uuid: record.uuid.owned(),
            parent: record.parent(),
            timestamp: owned_or_empty(&record.timestamp),
            body,
            raw: line.trim().into(),
        })
    }
}

fn user(record: &WholeRecord<'_>) -> LiveBody {
    let content = record.message.object().map(|message| &message.content);
    let blocks = match content {
        Some(Loose::Text(text)) => vec![Block::Text(text.to_string())],
        Some(Loose::List(list)) => blocks(list),
        _ => return LiveBody::Other,
    };
    let is_result = |block: &&Block| matches!(block, Block::ToolResult { .. });
    let results: Vec<Block> = blocks.iter().filter(is_result).cloned().collect();
    if !results.is_empty() {
        return LiveBody::ToolResults(results);
    }
    let text = texts(&blocks).join("\n");
    // A user may type the words of an interruption; the CLI records its own as a list of blocks.
    if matches!(content, Some(Loose::List(_))) && text.starts_with(INTERRUPTED) {
        return LiveBody::Interrupted;
    }
    let is_meta = record.is_meta || record.is_compact_summary;
    if is_meta || text.is_empty() { LiveBody::Other } else { LiveBody::Prompt { text } }
}

fn assistant(record: &WholeRecord<'_>) -> LiveBody {
    let Some(message) = record.message.object() else { return LiveBody::Other };
    let RecordMessage { id, model, content, stop_reason, usage, .. } = message;
    let Loose::List(list) = content else { return LiveBody::Other };
    let error = record.is_api_error.then(|| ApiError {
        kind: record.error.owned().unwrap_or_else(|| "unknown".to_owned()),
        status: record.error_status.unsigned().and_then(|status| u16::try_from(status).ok()),
    });
    LiveBody::Assistant(AssistantMessage {
        message_id: owned_or_empty(id),
        model: owned_or_empty(model),
        blocks: blocks(list),
        stop_reason: stop_reason.owned(),
        usage: usage.object().copied().unwrap_or_default(),
        error,
    })
}

fn blocks(list: &[WholeBlock]) -> Vec<Block> {
    list.iter().filter_map(|WholeBlock(value)| Block::parse(value)).collect()
}

/// Returns the texts of those blocks that are text.
pub fn texts(blocks: &[Block]) -> Vec<&str> {
    let texts = blocks.iter().filter_map(|block| match block {
        Block::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn body(value: Value) -> LiveBody {
        LiveRecord::parse(&value.to_string()).expect("a record").body
    }

    #[test]
    fn each_record_has_its_body() {
        let user = |content: Value| json!({"type": "user", "message": {"role": "user", "content": content}});
        assert_eq!(body(user(json!("hi"))), LiveBody::Prompt { text: "hi".into() });
        let interrupted =
            json!([{"type": "text", "text": "[Request interrupted by user for tool use]"}]);
        assert_eq!(body(user(interrupted)), LiveBody::Interrupted);
        // A user may type those very words.
        assert!(matches!(
            body(user(json!("[Request interrupted by user]"))),
            LiveBody::Prompt { .. }
        ));
        let result = json!([{"type": "tool_result", "tool_use_id": "t", "content": "x"}]);
        assert!(matches!(body(user(result)), LiveBody::ToolResults(results) if results.len() == 1));
        let mut meta = user(json!("<local-command-caveat>"));
        meta["isMeta"] = json!(true);
        assert_eq!(body(meta), LiveBody::Other);
        assert_eq!(body(json!({"type": "system", "subtype": "turn_duration"})), LiveBody::TurnEnd);
        assert_eq!(
            body(json!({"type": "api-request-blob", "message": {"content": "x"}})),
            LiveBody::Other
        );
        let error =
            body(json!({"type": "assistant", "isApiErrorMessage": true, "error": "rate_limit",
            "apiErrorStatus": 429, "message": {"model": "<synthetic>", "content": []}}));
        let LiveBody::Assistant(error) = error else { panic!("{error:?}") };
        assert!(error.is_synthetic());
        assert_eq!(error.error, Some(ApiError { kind: "rate_limit".into(), status: Some(429) }));
    }

    #[test]
    fn sub_agents_and_noise_are_no_records() {
        assert_eq!(
            LiveRecord::parse(r#"{"type":"user","isSidechain":true,"message":{"content":"x"}}"#),
            None
        );
        for noise in ["", "{", "null", "[]", "42", r#"{"no":"type"}"#, r#"{"type":7}"#] {
            assert_eq!(LiveRecord::parse(noise), None, "{noise}");
        }
    }

    proptest! {
        #[test]
        fn no_line_panics(line in ".{0,200}") {
            let _ = LiveRecord::parse(&line);
        }
    }
}
