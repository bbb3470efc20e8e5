//! The Entire Transcript Format, version 1, which Entire calls a compact transcript: `transcript.jsonl` of a checkpoint,
//! one line per message. Next to it is `full.jsonl`, the agent's own transcript, which Hob prefers. The format is as
//! Entire describes it; the program itself was not run.

use hob_domain::memory::TurnRole;
use serde_json::Value;

use crate::turn::TranscriptTurn;

/// Reads one line. Returns the turn that it is, if any.
pub fn line(line: &Value) -> Option<TranscriptTurn> {
    let role = TurnRole::parse(line["type"].as_str()?)?;
    let blocks = line["content"].as_array().into_iter().flatten();
    // The texts of users have no type.
    let texts = blocks.filter(|block| block["type"].is_null() || block["type"] == "text");
    let texts =
        line["content"].as_str().into_iter().chain(texts.filter_map(|b| b["text"].as_str()));
    let texts: Vec<&str> = texts.map(str::trim).filter(|text| !text.is_empty()).collect();
    (!texts.is_empty()).then(|| TranscriptTurn {
        // Only some messages have an id.
        id: None,
        role,
        text: texts.join("\n\n"),
        ts: line["ts"].as_str().and_then(|ts| ts.parse().ok()),
        message_id: None,
        prompt_id: None,
        work: Vec::new(),
    })
}
