//! Gemini CLI's sessions. Version 0.61.0 writes JSONL: a header, messages, and `$set` lines that may
//! contain all messages again. That format was found by running it. Earlier versions write one JSON
//! object per session; none of them was run.

use std::collections::HashSet;

use hob_domain::memory::TurnRole;
use serde_json::Value;

use crate::parsed_session::{ParsedSession, text_of};
use crate::progress::ReadProgress;
use crate::turn::TranscriptTurn;

/// What Gemini CLI puts in front of a session in the user's name.
const SESSION_CONTEXT: &str = "<session_context>";
/// What hooks say, such as Hob's own at the start of a session, before or after a prompt. The text between has no such
/// characters.
const HOOK_CONTEXT: (&str, &str) = ("<hook_context>", "</hook_context>");

/// Reads the lines of one chunk.
#[derive(Debug, Default)]
pub struct GeminiReader {
    turns: Vec<TranscriptTurn>,
    /// The ids of messages that are in `turns`.
    known: HashSet<String>,
}

impl GeminiReader {
    pub fn push(&mut self, line: &Value, progress: &mut ReadProgress) {
        let header = if line["$set"].is_object() { &line["$set"] } else { line };
        if let Some(session) = header["sessionId"].as_str() {
            progress.session.get_or_insert_with(|| session.to_owned());
        }
        // The work of a sub-agent is no part of a conversation.
        if header["kind"] == "subagent" {
            progress.is_subagent = true;
        }
        if line["type"].is_string() {
            self.message(line, progress);
        }
        for message in header["messages"].as_array().into_iter().flatten() {
            self.message(message, progress);
        }
    }

    fn message(&mut self, message: &Value, progress: &mut ReadProgress) {
        if progress.cwd.is_none() {
            progress.cwd = workspace(message);
        }
        if progress.is_subagent {
            return;
        }
        let Some(turn) = turn(message) else { return };
        // A message is written again when its tool calls have ended, and by `$set`.
        let is_new = turn.id.as_ref().is_none_or(|id| self.known.insert(id.clone()));
        if is_new {
            self.turns.push(turn);
        }
    }

    pub fn finish(self) -> Vec<TranscriptTurn> {
        self.turns
    }
}

/// Returns whether a JSON object is a session as earlier versions wrote it.
pub fn is_session(document: &Value) -> bool {
    document["sessionId"].is_string() && document["messages"].is_array()
}

/// Reads a session of an earlier version.
pub fn session(document: &Value) -> ParsedSession {
    let mut progress = ReadProgress::default();
    let mut reader = GeminiReader::default();
    reader.push(document, &mut progress);
    ParsedSession { session: progress.session, cwd: progress.cwd, turns: reader.finish() }
}

fn turn(message: &Value) -> Option<TranscriptTurn> {
    let role = match message["type"].as_str()? {
        "user" => TurnRole::User,
        "gemini" => TurnRole::Assistant,
        // Notes of the program: info, warning, error.
        _ => return None,
    };
    // What the user typed, if Gemini CLI has added something, such as a file that the prompt names.
    let typed = text_of(&message["displayContent"]);
    let text = if typed.trim().is_empty() { text_of(&message["content"]) } else { typed };
    let text = match role {
        TurnRole::User => without_hook_context(&text),
        TurnRole::Assistant => text.trim(),
    };
    let is_context = role == TurnRole::User && text.starts_with(SESSION_CONTEXT);
    let is_said = !text.is_empty() && !is_context;
    is_said.then(|| TranscriptTurn {
        id: message["id"].as_str().map(str::to_owned),
        role,
        text: text.to_owned(),
        ts: message["timestamp"].as_str().and_then(|ts| ts.parse().ok()),
        message_id: None,
        prompt_id: None,
        work: Vec::new(),
    })
}

/// Returns a prompt without what hooks have added.
fn without_hook_context(text: &str) -> &str {
    let (start, end) = HOOK_CONTEXT;
    let mut text = text.trim();
    while let Some((_, rest)) = text.strip_prefix(start).and_then(|context| context.split_once(end))
    {
        text = rest.trim_start();
    }
    while let Some((rest, _)) = text.strip_suffix(end).and_then(|text| text.rsplit_once(start)) {
        text = rest.trim_end();
    }
    text
}

/// Returns the first folder that the context of a session names.
fn workspace(message: &Value) -> Option<String> {
    let text = text_of(&message["content"]);
    let text = text.trim().strip_prefix(SESSION_CONTEXT)?;
    let (_, folders) = text.split_once("**Workspace Directories:**")?;
    let folder = folders.lines().find_map(|line| line.trim().strip_prefix("- "))?;
    folder.starts_with('/').then(|| folder.to_owned())
}
