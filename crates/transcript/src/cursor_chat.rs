//! Chats of Cursor's command line, in a database `store.db` per chat: `meta` has hexadecimal JSON that names the root,
//! and `blobs` has the root, a message of Protocol Buffers that lists the chat's messages, and each message as JSON.
//! The format is as public readers of it describe it; the program itself was not run.

use hob_domain::memory::TurnRole;
use jiff::Timestamp;
use serde_json::Value;

use crate::file_uri::path_of_uri;
use crate::parsed_session::ParsedSession;
use crate::turn::TranscriptTurn;

/// The fields of the root that are read.
const MESSAGE_FIELD: u64 = 1;
const WORKSPACE_FIELD: u64 = 9;
/// The length of a message's id: a SHA-256 digest.
const ID_BYTES: usize = 32;
/// How many messages of a chat are read at most.
const MAX_MESSAGES: usize = 50_000;
/// The element that contains what the user said, among others that Cursor adds.
const QUERY: (&str, &str) = ("<user_query>", "</user_query>");
/// What Cursor writes before the folder among the details that it adds.
const WORKSPACE_PATH: &str = "Workspace Path: ";

/// What the database says about a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorChat {
    /// The id of the root.
    pub root: String,
    pub created: Option<Timestamp>,
}

/// The root of a chat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CursorChatRoot {
    /// The ids of the chat's messages, in order.
    pub messages: Vec<String>,
    pub cwd: Option<String>,
}

impl CursorChat {
    /// Reads the value of the key `0` in `meta`. Returns `None` if its format is not known.
    pub fn parse(value: &str) -> Option<CursorChat> {
        let bytes = from_hex(value.trim())?;
        let meta: Value = serde_json::from_slice(&bytes).ok()?;
        let created = &meta["createdAt"];
        let created = created.as_i64().or_else(|| created.as_str()?.parse().ok());
        Some(CursorChat {
            root: meta["latestRootBlobId"].as_str().filter(|id| !id.is_empty())?.to_owned(),
            created: created.and_then(|at| Timestamp::from_millisecond(at).ok()),
        })
    }
}

impl CursorChatRoot {
    /// Reads the root. Returns `None` if its format is not known.
    pub fn parse(bytes: &[u8]) -> Option<CursorChatRoot> {
        let mut root = CursorChatRoot::default();
        let mut rest = bytes;
        while !rest.is_empty() {
            let tag = varint(&mut rest)?;
            // The lower three bits are the type of the field's value.
            let value = match tag & 7 {
                0 => {
                    varint(&mut rest)?;
                    continue;
                }
                1 => take(&mut rest, 8)?,
                2 => {
                    let length = usize::try_from(varint(&mut rest)?).ok()?;
                    take(&mut rest, length)?
                }
                5 => take(&mut rest, 4)?,
                _ => return None,
            };
            match tag >> 3 {
                MESSAGE_FIELD if value.len() == ID_BYTES && root.messages.len() < MAX_MESSAGES => {
                    root.messages.push(to_hex(value));
                }
                WORKSPACE_FIELD => {
                    root.cwd = std::str::from_utf8(value).ok().and_then(path_of_uri);
                }
                _ => {}
            }
        }
        Some(root)
    }
}

/// Adds a message to a chat. Returns whether its format is known.
pub fn add_cursor_chat_message(parsed: &mut ParsedSession, message: &Value) -> bool {
    let Some(role) = message["role"].as_str() else { return false };
    let parts = message["content"].as_array().into_iter().flatten();
    let texts =
        parts.filter(|part| part["type"] == "text").filter_map(|part| part["text"].as_str());
    let texts = message["content"].as_str().into_iter().chain(texts);
    // Messages of the system and of tools are no turns.
    let Some(role) = TurnRole::parse(role) else { return true };
    let mut said = Vec::new();
    for text in texts {
        if parsed.cwd.is_none() && role == TurnRole::User {
            parsed.cwd = workspace_path(text);
        }
        said.extend(match role {
            TurnRole::User => query(text),
            TurnRole::Assistant => Some(text.trim()).filter(|text| !text.is_empty()),
        });
    }
    if !said.is_empty() {
        parsed.turns.push(TranscriptTurn {
            // A message's id is that of its content, which may be said again.
            id: None,
            role,
            text: said.join("\n\n"),
            ts: None,
            message_id: None,
            prompt_id: None,
            work: Vec::new(),
        });
    }
    true
}

/// Returns what the user said. A text that is only an element is what Cursor adds.
fn query(text: &str) -> Option<&str> {
    let text = text.trim();
    let said = match text.split_once(QUERY.0) {
        Some((_, rest)) => rest.split_once(QUERY.1).map_or(rest, |(query, _)| query).trim(),
        None if text.starts_with('<') => return None,
        None => text,
    };
    (!said.is_empty()).then_some(said)
}

fn workspace_path(text: &str) -> Option<String> {
    let path = text.split_once(WORKSPACE_PATH)?.1.lines().next()?.trim();
    path.starts_with('/').then(|| path.to_owned())
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *take(rest, 1)?.first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit =
        |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => Some((digit(high)? << 4) | digit(low)?),
            _ => None,
        })
        .collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
