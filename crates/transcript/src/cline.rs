//! The tasks of Cline and of Roo Code, `tasks/<task>/api_conversation_history.json`: the messages of one task as they were
//! sent to the model. Both wrap what the user said in elements such as `<task>`, and add their own texts to it. Later versions
//! of Cline write sessions instead. The format is from the sources of both; the programs themselves were not run.

use std::collections::HashSet;

use hob_domain::memory::TurnRole;
use jiff::Timestamp;
use serde_json::Value;

use crate::parsed_session::ParsedSession;
use crate::turn::TranscriptTurn;

/// The elements that contain what the user said.
const USER_ELEMENTS: [&str; 4] = ["task", "feedback", "user_message", "answer"];
/// The elements and tools by which the agent speaks, with the element or argument of the text.
const SPEAKING_TOOLS: [(&str, &str); 3] = [
    ("attempt_completion", "result"),
    ("ask_followup_question", "question"),
    ("plan_mode_respond", "response"),
];

/// Returns whether a JSON array is a conversation.
pub fn is_conversation(document: &Value) -> bool {
    let messages = document.as_array().filter(|messages| !messages.is_empty());
    messages.is_some_and(|messages| {
        messages.iter().all(|message| {
            message["role"].as_str().and_then(TurnRole::parse).is_some()
                && (message["content"].is_array() || message["content"].is_string())
        })
    })
}

/// Reads a conversation.
pub fn session(document: &Value) -> ParsedSession {
    let mut parsed = ParsedSession::default();
    // The calls by which the agent has asked the user. Results of other tools may contain anything.
    let mut asked: HashSet<&str> = HashSet::new();
    for message in document.as_array().into_iter().flatten() {
        let Some(role) = message["role"].as_str().and_then(TurnRole::parse) else { continue };
        // A summary of what was said before, or a mark of what is no longer sent.
        if message["isSummary"] == true || message["isTruncationMarker"] == true {
            continue;
        }
        let texts: Vec<String> = match role {
            TurnRole::User => {
                let is_reply = |block: &&Value| {
                    block["tool_use_id"].as_str().is_some_and(|id| asked.contains(id))
                };
                let replies = blocks(message).filter(is_reply).flat_map(result_texts);
                texts(message).chain(replies).flat_map(user_texts).collect()
            }
            TurnRole::Assistant => {
                let calls = blocks(message).filter(|block| speaking_argument(block).is_some());
                asked.extend(calls.filter_map(|call| call["id"].as_str()));
                let spoken = texts(message).filter_map(assistant_text);
                spoken.chain(blocks(message).filter_map(tool_text)).collect()
            }
        };
        if parsed.cwd.is_none() {
            let results = blocks(message).flat_map(result_texts);
            parsed.cwd = self::texts(message).chain(results).find_map(working_folder);
        }
        if !texts.is_empty() {
            parsed.turns.push(TranscriptTurn {
                id: None,
                role,
                text: texts.join("\n\n"),
                ts: message["ts"].as_i64().and_then(|at| Timestamp::from_millisecond(at).ok()),
                message_id: None,
                prompt_id: None,
                work: Vec::new(),
            });
        }
    }
    parsed
}

fn blocks(message: &Value) -> impl Iterator<Item = &Value> {
    message["content"].as_array().into_iter().flatten()
}

fn texts(message: &Value) -> impl Iterator<Item = &str> {
    let plain = message["content"].as_str();
    let of_blocks = blocks(message).filter(|block| block["type"] == "text");
    plain.into_iter().chain(of_blocks.filter_map(|block| block["text"].as_str()))
}

/// Returns the texts of a tool's result.
fn result_texts(block: &Value) -> impl Iterator<Item = &str> {
    let parts = block["content"].as_array().into_iter().flatten();
    let plain = block["content"].as_str();
    plain.into_iter().chain(parts.filter_map(|part| part["text"].as_str()))
}

/// Returns what the user said in a text that was sent. Other texts are results of tools and details of
/// the environment.
fn user_texts(text: &str) -> Vec<String> {
    USER_ELEMENTS.iter().filter_map(|name| element(text, name)).map(str::to_owned).collect()
}

/// Returns what the agent said in a text: without its thoughts, and up to the first tool call.
fn assistant_text(text: &str) -> Option<String> {
    let mut text = text.to_owned();
    while let (Some(from), Some(to)) = (text.find("<thinking>"), text.find("</thinking>")) {
        if to < from {
            break;
        }
        text.replace_range(from..to + "</thinking>".len(), "");
    }
    let spoken =
        SPEAKING_TOOLS.iter().find_map(|(tool, part)| element(element(&text, tool)?, part));
    // A tool call is an element on a line of its own, whose name has an underscore.
    let call = text.match_indices('<').find(|(at, _)| {
        let begins_line = text[..*at].trim_end_matches(' ').ends_with('\n') || *at == 0;
        let name = text[at + 1..].split('>').next().unwrap_or_default();
        begins_line
            && name.contains('_')
            && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
    });
    let before = call.map_or(text.as_str(), |(at, _)| &text[..at]).trim();
    let said = [before, spoken.unwrap_or_default()];
    let said: Vec<&str> = said.into_iter().filter(|text| !text.is_empty()).collect();
    (!said.is_empty()).then(|| said.join("\n\n"))
}

/// Returns what the agent says by calling a tool.
fn tool_text(block: &Value) -> Option<String> {
    let text = block["input"][speaking_argument(block)?].as_str()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the argument with the agent's text, if a block calls a tool by which the agent speaks.
fn speaking_argument(block: &Value) -> Option<&'static str> {
    let name = block["name"].as_str().filter(|_| block["type"] == "tool_use")?;
    SPEAKING_TOOLS.iter().find(|(tool, _)| *tool == name).map(|(_, argument)| *argument)
}

/// Returns the folder that is named among the details of the environment.
fn working_folder(text: &str) -> Option<String> {
    let (_, details) = text.split_once("<environment_details>")?;
    let line = details.lines().find(|line| {
        line.starts_with("# Current Working") || line.starts_with("# Current Workspace")
    })?;
    let folder = line.split_once('(')?.1.split(')').next()?;
    folder.starts_with('/').then(|| folder.to_owned())
}

fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inner, _) = rest.split_once(&format!("</{name}>"))?;
    let inner = inner.trim();
    (!inner.is_empty()).then_some(inner)
}
