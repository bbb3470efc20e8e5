//! Sessions of goose. Since version 1.10 they are in SQLite (`sessions.db`); earlier versions wrote JSONL, a header and
//! then messages, and left these files where they were. The format is from goose's source (schemas 1 to 10); the program
//! itself was not run.

use hob_domain::memory::TurnRole;
use jiff::Timestamp;
use serde_json::Value;

use crate::progress::ReadProgress;
use crate::turn::TranscriptTurn;

/// Later times are in milliseconds, not in seconds.
const MAX_SECONDS: i64 = 100_000_000_000;
/// How many digits a number of the day has at most. Ids with more end with a time.
const MAX_NUMBER_DIGITS: usize = 5;

/// One message of a session.
#[derive(Debug)]
pub struct GooseMessage<'a> {
    pub role: &'a str,
    /// The list of its contents.
    pub content: &'a Value,
    /// The seconds since 1970 at which it was created.
    pub created: Option<i64>,
    pub metadata: &'a Value,
}

impl GooseMessage<'_> {
    /// Returns the turn that the message is, unless it has no text that the user could see.
    pub fn turn(&self) -> Option<TranscriptTurn> {
        let role = TurnRole::parse(self.role)?;
        // A summary that only the agent sees repeats what was said.
        if self.metadata["userVisible"] == false {
            return None;
        }
        let contents = self.content.as_array().into_iter().flatten();
        let texts = contents.filter(|content| content["type"] == "text");
        let texts = texts.filter_map(|content| content["text"].as_str()).map(str::trim);
        let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
        (!texts.is_empty()).then(|| TranscriptTurn {
            // The ids of messages change when goose replaces a conversation.
            id: None,
            role,
            text: texts.join("\n\n"),
            ts: self.created.and_then(|at| match at > MAX_SECONDS {
                true => Timestamp::from_millisecond(at).ok(),
                false => Timestamp::from_second(at).ok(),
            }),
            message_id: None,
            prompt_id: None,
            work: Vec::new(),
        })
    }
}

/// Reads one line of an earlier version's file. Returns the turn that it is, if any.
pub fn line(line: &Value, progress: &mut ReadProgress) -> Option<TranscriptTurn> {
    if let Some(folder) = line["working_dir"].as_str() {
        progress.cwd.get_or_insert_with(|| folder.to_owned());
    }
    let message = GooseMessage {
        role: line["role"].as_str()?,
        content: &line["content"],
        created: line["created"].as_i64(),
        metadata: &line["metadata"],
    };
    message.turn()
}

/// Returns the name of a session. An id such as `20251118_2` is a number of the day, which every machine has; the time
/// of the session's creation is added to it. The ids of earlier versions' sessions are times or chosen names.
pub fn goose_session(id: &str, created: &str) -> String {
    let is_number = id.split_once('_').is_some_and(|(day, number)| {
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        day.len() == 8 && is_digits(day) && number.len() <= MAX_NUMBER_DIGITS && is_digits(number)
    });
    // The id has the day already.
    let time: String = created.chars().filter(char::is_ascii_digit).skip(8).take(6).collect();
    match is_number && !time.is_empty() {
        true => format!("goose-{id}-{time}"),
        false => format!("goose-{id}"),
    }
}
