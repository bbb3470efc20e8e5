//! Sessions of Cline's command line and of its later extensions: `sessions/ID/ID.messages.json`, one JSON object with the
//! messages as they were sent to the model, each with an id. `ID.json` next to it has the folder. The format is from Cline's
//! source (August 2026); the program itself was not run.

use hob_domain::memory::TurnRole;
use jiff::Timestamp;
use serde_json::Value;

use crate::parsed_session::ParsedSession;
use crate::turn::TranscriptTurn;

/// The elements that contain what the user said, which have attributes.
const USER_ELEMENTS: [&str; 2] = ["user_input", "user_command"];
/// The beginning of what Cline says in the user's name when a task of an earlier version is continued.
const LEGACY_WARNING: &str = "Warning: this is a legacy conversation";

/// Returns whether a JSON object is a session.
pub fn is_session(document: &Value) -> bool {
    document["version"].is_number()
        && document["agent"].is_string()
        && document["origin"].is_object()
        && document["messages"].is_array()
}

/// Reads a session.
pub fn session(document: &Value) -> ParsedSession {
    // The session of a sub-agent is no conversation.
    let messages = document["messages"].as_array().filter(|_| document["agent"] == "lead");
    ParsedSession {
        session: document["sessionId"].as_str().map(str::to_owned),
        cwd: None,
        turns: messages.into_iter().flatten().filter_map(turn).collect(),
    }
}

fn turn(message: &Value) -> Option<TranscriptTurn> {
    let role = TurnRole::parse(message["role"].as_str()?)?;
    // The summary of a compacted session repeats what was said.
    if message["metadata"]["kind"] == "compaction_summary" {
        return None;
    }
    let blocks = message["content"].as_array().into_iter().flatten();
    let texts = blocks.filter(|block| block["type"] == "text");
    let texts = texts.filter_map(|block| block["text"].as_str());
    let texts = message["content"].as_str().into_iter().chain(texts);
    let said: Vec<&str> = match role {
        TurnRole::User => texts.filter_map(user_text).collect(),
        TurnRole::Assistant => texts.map(str::trim).filter(|text| !text.is_empty()).collect(),
    };
    (!said.is_empty()).then(|| TranscriptTurn {
        id: message["id"].as_str().map(str::to_owned),
        role,
        text: said.join("\n\n"),
        ts: message["ts"].as_i64().and_then(|at| Timestamp::from_millisecond(at).ok()),
        message_id: None,
        prompt_id: None,
        work: Vec::new(),
    })
}

/// Returns what the user said in a text. A text that is only an element, such as the content of a file, is what Cline adds.
fn user_text(text: &str) -> Option<&str> {
    let text = text.trim();
    let said = match USER_ELEMENTS.iter().find_map(|name| element(text, name)) {
        Some(said) => said,
        None if text.starts_with('<') || text.starts_with(LEGACY_WARNING) => return None,
        None => text,
    };
    (!said.is_empty()).then_some(said)
}

fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name} "))?;
    let (_, rest) = rest.split_once('>')?;
    let (inner, _) = rest.rsplit_once(&format!("</{name}>"))?;
    Some(inner.trim())
}
