//! SpecStory's histories, `.specstory/history/*.md`: one conversation of another client as Markdown,
//! with a line such as `_**User**_` before each turn and `---` after it. The format is from public
//! histories; the program itself was not run.

use hob_domain::memory::TurnRole;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::parsed_session::ParsedSession;
use crate::turn::TranscriptTurn;

/// Returns whether a text is a history of SpecStory.
pub fn is_history(text: &str) -> bool {
    text.lines().any(|line| speaker(line).is_some())
        && text.get(..600).unwrap_or(text).contains("SpecStory")
}

/// Reads a history.
pub fn session(text: &str) -> ParsedSession {
    let mut turns: Vec<TranscriptTurn> = Vec::new();
    let mut speaking: Option<(TurnRole, Option<Timestamp>)> = None;
    let mut said: Vec<&str> = Vec::new();
    // The lines of a tool call are inside an element of HTML.
    let mut depth = 0usize;
    let mut end = |speaking: Option<(TurnRole, Option<Timestamp>)>, said: &mut Vec<&str>| {
        let text = std::mem::take(said).join("\n");
        let text = text.trim().trim_end_matches("---").trim();
        if let (Some((role, ts)), false) = (speaking, text.is_empty()) {
            turns.push(TranscriptTurn {
                id: None,
                role,
                text: text.to_owned(),
                ts,
                message_id: None,
                prompt_id: None,
                work: Vec::new(),
            });
        }
    };
    for line in text.lines() {
        if let Some(next) = speaker(line).filter(|_| depth == 0) {
            end(speaking, &mut said);
            speaking = next;
            continue;
        }
        let opened = line.matches("<details").count() + line.matches("<tool-use").count();
        let closed = line.matches("</details>").count() + line.matches("</tool-use>").count();
        if depth == 0 && opened == 0 {
            said.push(line);
        }
        depth = (depth + opened).saturating_sub(closed);
    }
    end(speaking, &mut said);
    ParsedSession { session: session_name(text), cwd: None, turns }
}

/// Returns who speaks after this line, or `None` if the line names no speaker. A tool is no speaker.
fn speaker(line: &str) -> Option<Option<(TurnRole, Option<Timestamp>)>> {
    let name = line.trim().strip_prefix("_**")?.strip_suffix("**_")?;
    let word = name.split_whitespace().next().unwrap_or_default();
    let time = name.split_once('(').and_then(|(_, rest)| rest.split(['Z', ')', ',']).next());
    let time = time.and_then(|text| DateTime::strptime("%Y-%m-%d %H:%M", text.trim()).ok());
    let time = time.and_then(|at| at.to_zoned(TimeZone::UTC).ok()).map(|at| at.timestamp());
    Some(match word {
        "User" => Some((TurnRole::User, time)),
        "Assistant" | "Agent" => Some((TurnRole::Assistant, time)),
        _ => None,
    })
}

/// Returns the id of the session, from a comment such as `<!-- cursor Session ID (time) -->`.
fn session_name(text: &str) -> Option<String> {
    let comment = text.lines().take(12).find_map(|line| {
        line.trim().strip_prefix("<!--")?.strip_suffix("-->")?.split_once("Session ")
    });
    let name = comment?.1.split_whitespace().next()?;
    (name.len() >= 8).then(|| name.to_owned())
}
