//! Conversations of the editor Cursor, in its database `state.vscdb`: a value `composerData:ID` per conversation with the
//! ids of its messages, and a value `bubbleId:ID:MESSAGE` per message. Earlier versions kept the messages inside of the
//! conversation. The format is as public readers of it describe it; the program itself was not run.

use std::collections::HashSet;

use hob_domain::memory::TurnRole;
use jiff::Timestamp;
use serde_json::Value;

use crate::file_uri::path_of_uri;
use crate::turn::TranscriptTurn;

/// One conversation of Cursor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CursorConversation {
    pub cwd: Option<String>,
    pub created: Option<Timestamp>,
    /// The ids of its messages, in order, without one that is being written.
    pub messages: Vec<String>,
    /// The messages that the conversation itself contains, in order.
    pub contained: Vec<CursorMessage>,
    /// The ids of conversations that the agent has started, and of alternatives to this one.
    pub children: Vec<String>,
    /// Whether an agent has started the conversation. It is then nobody's.
    pub is_child: bool,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorMessage {
    /// The turn that it is, unless it has no text, such as a call of a tool.
    pub turn: Option<TranscriptTurn>,
    /// The folder that was open.
    pub cwd: Option<String>,
}

impl CursorConversation {
    /// Reads the value of a conversation. Returns `None` if its format is not known.
    pub fn parse(value: &Value) -> Option<CursorConversation> {
        let headers = value["fullConversationHeadersOnly"].as_array();
        let contained = value["conversation"].as_array();
        if headers.is_none() && contained.is_none() {
            return None;
        }
        let written: HashSet<&str> = strings(&value["generatingBubbleIds"]).collect();
        let ids = headers.into_iter().flatten().filter_map(|header| header["bubbleId"].as_str());
        let mut messages: Vec<String> =
            ids.filter(|id| !written.contains(id)).map(str::to_owned).collect();
        let mut contained: Vec<CursorMessage> =
            contained.into_iter().flatten().filter_map(CursorMessage::parse).collect();
        if value["status"] == "generating" && written.is_empty() {
            // The last message is the one that is being written.
            messages.pop();
            contained.pop();
        }
        let children =
            strings(&value["subagentComposerIds"]).chain(strings(&value["subComposerIds"]));
        Some(CursorConversation {
            cwd: workspace(&value["workspaceIdentifier"]),
            created: value["createdAt"]
                .as_i64()
                .and_then(|at| Timestamp::from_millisecond(at).ok()),
            messages,
            // A version that names its messages stores each of them under its own key.
            contained: if headers.is_some_and(|headers| !headers.is_empty()) {
                Vec::new()
            } else {
                contained
            },
            children: children.map(str::to_owned).collect(),
            is_child: value["subagentInfo"].is_object() || value["isBestOfNSubcomposer"] == true,
        })
    }
}

impl CursorMessage {
    /// Reads the value of a message. Returns `None` if its format is not known.
    pub fn parse(value: &Value) -> Option<CursorMessage> {
        let role = match value["type"].as_i64()? {
            1 => TurnRole::User,
            2 => TurnRole::Assistant,
            _ => return None,
        };
        let text = value["text"].as_str().unwrap_or_default().trim();
        let turn = (!text.is_empty()).then(|| TranscriptTurn {
            id: value["bubbleId"].as_str().map(str::to_owned),
            role,
            text: text.to_owned(),
            ts: value["createdAt"].as_str().and_then(|ts| ts.parse().ok()),
            message_id: None,
            prompt_id: None,
            work: Vec::new(),
        });
        Some(CursorMessage { turn, cwd: strings(&value["workspaceUris"]).find_map(path_of_uri) })
    }
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the folder that was open. A workspace of several folders has none.
fn workspace(identifier: &Value) -> Option<String> {
    let path = identifier["uri"]["fsPath"].as_str().or_else(|| identifier["uri"]["path"].as_str());
    path.filter(|path| path.starts_with('/')).map(str::to_owned)
}
