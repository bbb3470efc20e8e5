//! Sessions of Qwen Code: JSONL of records like Claude Code's, with an id and a link to the record before, but with
//! messages like Gemini's, which have `parts`. The format is from Qwen Code's source (2026); the program itself was not run.

use hob_domain::memory::TurnRole;
use serde_json::Value;

use crate::progress::ReadProgress;
use crate::turn::TranscriptTurn;

/// The beginning of the texts of attached files, which Qwen Code adds after the user's.
const ATTACHED_FILES: &str = "--- Content from referenced files ---";
/// The beginning of texts that Qwen Code adds for the model.
const REMINDER: &str = "<system-reminder>";

/// Reads one record. Returns the turn that it is, if any.
pub fn record(record: &Value, progress: &mut ReadProgress) -> Option<TranscriptTurn> {
    if let Some(session) = record["sessionId"].as_str() {
        progress.session.get_or_insert_with(|| session.to_owned());
    }
    if let Some(cwd) = record["cwd"].as_str() {
        progress.cwd.get_or_insert_with(|| cwd.to_owned());
    }
    // A session that another one has started is no conversation.
    if record["subtype"] == "parent_session" {
        progress.is_subagent = true;
    }
    let is_of_subagent =
        progress.is_subagent || record["isSidechain"] == true || record["agentId"].is_string();
    // Other subtypes are notifications, prompts of a schedule and the like, in the user's name.
    let is_said = match &record["subtype"] {
        Value::Null => true,
        subtype => *subtype == "mid_turn_user_message" || *subtype == "realtime_message",
    };
    if is_of_subagent || !is_said {
        return None;
    }
    let (role, text) = match record["type"].as_str()? {
        "user" => {
            // What the user typed, if Qwen Code has sent something else to the model.
            let typed = record["systemPayload"]["displayText"].as_str().unwrap_or_default();
            let is_typed = !typed.trim().is_empty();
            (TurnRole::User, if is_typed { typed.to_owned() } else { prompt(&record["message"]) })
        }
        "assistant" => (TurnRole::Assistant, answer(&record["message"])),
        _ => return None,
    };
    let text = text.trim();
    (!text.is_empty()).then(|| TranscriptTurn {
        id: record["uuid"].as_str().map(str::to_owned),
        role,
        text: text.to_owned(),
        ts: record["timestamp"].as_str().and_then(|ts| ts.parse().ok()),
        message_id: None,
        prompt_id: None,
        work: Vec::new(),
    })
}

fn parts(message: &Value) -> impl Iterator<Item = &Value> {
    message["parts"].as_array().into_iter().flatten()
}

fn prompt(message: &Value) -> String {
    let texts = parts(message).filter_map(|part| part["text"].as_str());
    let own = texts.take_while(|text| !text.trim_start().starts_with(ATTACHED_FILES));
    own.filter(|text| !text.trim_start().starts_with(REMINDER)).collect()
}

fn answer(message: &Value) -> String {
    let said = parts(message).filter(|part| part["thought"] != true);
    said.filter_map(|part| part["text"].as_str()).collect()
}
