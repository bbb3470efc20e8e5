//! Transcripts that are one document and not lines: JSON objects and Markdown. A document is always
//! read as a whole.

use std::path::Path;

use serde_json::Value;

use crate::client::RecordedClient;
use crate::parsed_session::ParsedSession;
use crate::{aider, cline, cline_session, gemini, opencode, specstory};

/// The folder of Roo Code's extension, whose documents are like Cline's.
const ROO_EXTENSION: &str = "rooveterinaryinc.roo-cline";

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

/// Returns the client whose document is at this path, if its content shows `client`.
pub fn document_client(path: &Path, client: RecordedClient) -> RecordedClient {
    let is_roo = || path.iter().any(|name| name.eq_ignore_ascii_case(ROO_EXTENSION));
    match client {
        RecordedClient::Cline if is_roo() => RecordedClient::Roo,
        client => client,
    }
}

fn parse_json(document: &Value) -> Option<ParsedDocument> {
    let one = |client, session| Some(ParsedDocument { client, sessions: vec![session] });
    // A session of Cline has the keys of Gemini's as well.
    if cline_session::is_session(document) {
        one(RecordedClient::Cline, cline_session::session(document))
    } else if gemini::is_session(document) {
        one(RecordedClient::Gemini, gemini::session(document))
    } else if opencode::is_export(document) {
        one(RecordedClient::Opencode, opencode::export(document))
    } else if cline::is_conversation(document) {
        one(RecordedClient::Cline, cline::session(document))
    } else {
        None
    }
}
