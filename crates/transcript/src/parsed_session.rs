use serde_json::Value;

use crate::turn::TranscriptTurn;

/// One session of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedSession {
    /// The session's name, if the document has one.
    pub session: Option<String>,
    pub cwd: Option<String>,
    pub turns: Vec<TranscriptTurn>,
}

/// Returns the text of a message: its content, or the texts of its content's parts.
pub fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        other => other["text"].as_str().unwrap_or_default().to_owned(),
    }
}
