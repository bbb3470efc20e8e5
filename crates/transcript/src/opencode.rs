//! OpenCode's sessions: messages with parts. Version 1.18 stores them in SQLite (`opencode.db`),
//! earlier versions in one JSON file per session, message and part; `opencode export` prints one JSON
//! object. The objects are the same everywhere.

use hob_domain::memory::TurnRole;
use jiff::Timestamp;
use serde_json::Value;

use crate::parsed_session::ParsedSession;
use crate::turn::TranscriptTurn;

/// One message with its parts.
#[derive(Debug, Default)]
pub struct OpencodeMessage {
    pub id: String,
    /// The message's own object, with `role` and `time`.
    pub info: Value,
    /// The objects of its parts, in order.
    pub parts: Vec<Value>,
}

impl OpencodeMessage {
    /// Returns the turn that the message is, unless it has no text of its speaker.
    pub fn turn(&self) -> Option<TranscriptTurn> {
        let role = TurnRole::parse(self.info["role"].as_str()?)?;
        // OpenCode adds texts of its own, such as the content of attached files.
        let is_added = |part: &Value| part["synthetic"] == true || part["ignored"] == true;
        let said = self.parts.iter().filter(|part| part["type"] == "text" && !is_added(part));
        let texts = said.filter_map(|part| part["text"].as_str()).map(str::trim);
        let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
        // The summary of a compacted session repeats what was said.
        let is_summary = self.info["summary"] == true;
        (!texts.is_empty() && !is_summary).then(|| TranscriptTurn {
            id: Some(self.id.clone()),
            role,
            text: texts.join("\n\n"),
            ts: self.info["time"]["created"]
                .as_i64()
                .and_then(|at| Timestamp::from_millisecond(at).ok()),
            message_id: None,
            prompt_id: None,
            work: Vec::new(),
        })
    }

    /// Returns whether the message will not change any more. An answer that is being written is not
    /// complete.
    pub fn is_complete(&self) -> bool {
        self.info["role"] != "assistant"
            || self.info["time"]["completed"].is_number()
            || self.info["error"].is_object()
    }
}

/// Returns the session in what `opencode export` prints; `None` if it is something else.
pub fn parse_export(document: &Value) -> Option<ParsedSession> {
    is_export(document).then(|| export(document))
}

/// Returns whether a JSON object is what `opencode export` prints.
pub fn is_export(document: &Value) -> bool {
    document["info"]["id"].is_string() && document["messages"].is_array()
}

/// Reads what `opencode export` prints.
pub fn export(document: &Value) -> ParsedSession {
    // The session of a sub-agent is no conversation.
    let is_conversation = document["info"]["parentID"].is_null();
    let messages = document["messages"].as_array().filter(|_| is_conversation);
    let messages = messages.into_iter().flatten();
    let messages = messages.map(|message| OpencodeMessage {
        id: message["info"]["id"].as_str().unwrap_or_default().to_owned(),
        info: message["info"].clone(),
        parts: message["parts"].as_array().cloned().unwrap_or_default(),
    });
    ParsedSession {
        session: document["info"]["id"].as_str().map(str::to_owned),
        cwd: document["info"]["directory"].as_str().map(str::to_owned),
        turns: messages.filter(OpencodeMessage::is_complete).filter_map(|m| m.turn()).collect(),
    }
}
