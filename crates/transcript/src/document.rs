//! Transcripts that are one document and not lines: JSON objects and Markdown. A document is always
//! read as a whole.

use serde_json::Value;

use crate::client::RecordedClient;
use crate::parsed_session::ParsedSession;
use crate::{aider, cline, gemini, opencode, specstory};

/// What a document contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedDocument {
    pub client: RecordedClient,
    pub sessions: Vec<ParsedSession>,
}

/// Parses a document. Returns `None` if its format is not known.
pub fn parse_document(bytes: &[u8]) -> Option<ParsedDocument> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    if let Ok(document) = serde_json::from_str::<Value>(text) {
        return parse_json(&document);
    }
    if aider::is_history(text) {
        let sessions = aider::sessions(text);
        return Some(ParsedDocument { client: RecordedClient::Aider, sessions });
    }
    specstory::is_history(text).then(|| ParsedDocument {
        client: RecordedClient::Specstory,
        sessions: vec![specstory::session(text)],
    })
}

fn parse_json(document: &Value) -> Option<ParsedDocument> {
    let one = |client, session| Some(ParsedDocument { client, sessions: vec![session] });
    if gemini::is_session(document) {
        one(RecordedClient::Gemini, gemini::session(document))
    } else if opencode::is_export(document) {
        one(RecordedClient::Opencode, opencode::export(document))
    } else if cline::is_conversation(document) {
        one(RecordedClient::Cline, cline::session(document))
    } else {
        None
    }
}
