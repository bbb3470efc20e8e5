//! Cline's `tasks/<task>/api_conversation_history.json`: the messages of one task as they were sent
//! to the model. Cline wraps what the user said in elements such as `<task>`, and adds its own texts
//! beside them. The format is as publicly described; the program itself was not run.

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

/// Returns whether a JSON array is a conversation of Cline.
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
    for message in document.as_array().into_iter().flatten() {
        let Some(role) = message["role"].as_str().and_then(TurnRole::parse) else { continue };
        let texts: Vec<String> = match role {
            TurnRole::User => texts(message).flat_map(user_texts).collect(),
            TurnRole::Assistant => {
                let spoken = texts(message).filter_map(assistant_text);
                spoken.chain(blocks(message).filter_map(tool_text)).collect()
            }
        };
        if parsed.cwd.is_none() {
            parsed.cwd = texts_of(message).iter().find_map(|text| working_folder(text));
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

/// Returns the texts of a message, those of tool results included.
fn texts_of(message: &Value) -> Vec<&str> {
    let results = blocks(message).filter_map(|block| block["content"].as_array()).flatten();
    texts(message).chain(results.filter_map(|block| block["text"].as_str())).collect()
}

/// Returns what the user said in a text that Cline sent. Other texts are results of tools and details of
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
    let name = block["name"].as_str().filter(|_| block["type"] == "tool_use")?;
    let (_, argument) = SPEAKING_TOOLS.iter().find(|(tool, _)| *tool == name)?;
    let text = block["input"][*argument].as_str()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the folder that Cline names among its details of the environment.
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
