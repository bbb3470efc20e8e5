//! Threads of the editor Zed, in its database `threads.db`: one JSON object per thread. In version 0.3.0 of the object a
//! message is `User` or `Agent`; earlier versions have messages with a role and segments, or with a role and a text. The
//! format is from Zed's source (August 2026); the program itself was not run.

use hob_domain::memory::TurnRole;
use jiff::Timestamp;
use serde_json::Value;

use crate::parsed_session::ParsedSession;
use crate::turn::TranscriptTurn;

/// One thread of Zed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ZedThread {
    /// Its turns, and the folder that was open when it began.
    pub session: ParsedSession,
    /// When it began, or else when it last changed. Its messages have no times.
    pub started: Option<Timestamp>,
    /// Whether an agent has started the thread. It is then nobody's.
    pub is_child: bool,
    /// How many of its messages have an unknown format.
    pub unknown_messages: usize,
}

impl ZedThread {
    /// Reads the data of a thread. Returns `None` if their format is not known.
    pub fn parse(value: &Value) -> Option<ZedThread> {
        let messages = value["messages"].as_array()?;
        let snapshot = &value["initial_project_snapshot"];
        let folder = snapshot["worktree_snapshots"][0]["worktree_path"].as_str();
        let time = |text: &Value| text.as_str()?.parse::<Timestamp>().ok();
        let mut thread = ZedThread {
            started: time(&snapshot["timestamp"]).or_else(|| time(&value["updated_at"])),
            is_child: value["subagent_context"].is_object(),
            ..ZedThread::default()
        };
        thread.session.cwd = folder.map(str::to_owned);
        for message in messages {
            match read_message(message) {
                Some(turn) => thread.session.turns.extend(turn),
                None => thread.unknown_messages += 1,
            }
        }
        let is_known = messages.is_empty() || thread.unknown_messages < messages.len();
        is_known.then_some(thread)
    }
}

/// Returns the folder of a thread that was opened first. `paths` has the folders, sorted, each on its own line; `order`
/// says for each of them when it was opened.
pub fn zed_folder(paths: &str, order: &str) -> Option<String> {
    let paths: Vec<&str> = paths.split('\n').collect();
    let first = order.split(',').position(|number| number == "0").unwrap_or_default();
    let path = paths.get(first).or(paths.first()).filter(|path| !path.is_empty())?;
    Some((*path).to_owned())
}

/// Returns the turn that a message is, which is none if it has no text. Returns `None` if its format is not known.
fn read_message(message: &Value) -> Option<Option<TranscriptTurn>> {
    // A summary repeats what was said, and "Resume" is a button.
    if *message == "Resume" || message.get("Compaction").is_some() {
        return Some(None);
    }
    if let Some(content) = message["User"]["content"].as_array() {
        let text: String = content.iter().filter_map(prompt_piece).collect();
        return Some(turn(TurnRole::User, &text));
    }
    if let Some(content) = message["Agent"]["content"].as_array() {
        let texts = content.iter().filter_map(|piece| piece["Text"].as_str());
        return Some(turn(TurnRole::Assistant, &joined(texts)));
    }
    let role = message["role"].as_str()?;
    let text = match message["segments"].as_array() {
        Some(segments) => {
            let texts = segments.iter().filter(|segment| segment["type"] == "text");
            joined(texts.filter_map(|segment| segment["text"].as_str()))
        }
        None => message["text"].as_str()?.to_owned(),
    };
    let role = TurnRole::parse(role).filter(|_| message["is_hidden"] != true);
    Some(role.and_then(|role| turn(role, &text)))
}

/// Returns a piece of a prompt. Of something that the user mentions its name is kept; Zed adds its content.
fn prompt_piece(piece: &Value) -> Option<String> {
    if let Some(text) = piece["Text"].as_str() {
        return Some(text.to_owned());
    }
    let mentioned = piece["Mention"]["uri"].as_object()?.values().next()?;
    let name = ["abs_path", "file_path", "url", "name"];
    let name = name.iter().find_map(|key| mentioned[*key].as_str())?;
    Some(format!("@{name}"))
}

fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let texts: Vec<&str> = texts.map(str::trim).filter(|text| !text.is_empty()).collect();
    texts.join("\n\n")
}

fn turn(role: TurnRole, text: &str) -> Option<TranscriptTurn> {
    let text = text.trim();
    (!text.is_empty()).then(|| TranscriptTurn {
        // Answers have no ids, and prompts get others when Zed rewrites a thread of an earlier version.
        id: None,
        role,
        text: text.to_owned(),
        ts: None,
        message_id: None,
        prompt_id: None,
        work: Vec::new(),
    })
}
