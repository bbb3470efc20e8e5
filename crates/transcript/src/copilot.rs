//! Sessions of GitHub Copilot CLI: JSONL of events, each with `type`, `data`, `id` and `timestamp`.
//! The format is from public transcripts; the program itself was not run.

use hob_domain::memory::TurnRole;
use serde_json::Value;

use crate::progress::ReadProgress;
use crate::turn::TranscriptTurn;

/// Reads one event. Returns the turn that it is, if any.
pub fn event(event: &Value, progress: &mut ReadProgress) -> Option<TranscriptTurn> {
    let data = &event["data"];
    if event["type"] == "session.start" {
        if let Some(session) = data["sessionId"].as_str() {
            progress.session.get_or_insert_with(|| session.to_owned());
        }
        if let Some(cwd) = data["context"]["cwd"].as_str().or_else(|| data["cwd"].as_str()) {
            progress.cwd.get_or_insert_with(|| cwd.to_owned());
        }
    }
    let role = match event["type"].as_str()? {
        "user.message" => TurnRole::User,
        "assistant.message" => TurnRole::Assistant,
        _ => return None,
    };
    // Sub-agents and the parts of a message that is being written are no turns.
    if event["agentId"].is_string() || event["ephemeral"] == true {
        return None;
    }
    let text = data["content"].as_str()?.trim();
    (!text.is_empty()).then(|| TranscriptTurn {
        id: event["id"].as_str().map(str::to_owned),
        role,
        text: text.to_owned(),
        ts: event["timestamp"].as_str().and_then(|ts| ts.parse().ok()),
        message_id: None,
        prompt_id: None,
        work: Vec::new(),
    })
}
