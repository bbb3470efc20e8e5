//! Deferral files: turns that wait in a folder for the server. Version 1.
//!
//! The first line is a header, each further line a turn. The files are plain JSON, so secrets in them
//! are masked, and the originals are sealed in a field of their own.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hob_domain::Timestamp;
use hob_domain::json_size::has_too_many_values;
use hob_domain::memory::{ProjectLocation, Tier, TurnRole, TurnSource, words_key};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::batch::{CaptureBatch, RawTurn};
use super::project::locate_project;
use super::seal::{OpeningKeys, SealingKey};
use super::sealed_text::{SealedText, restore_secrets, seal_secrets};
use crate::redact::{self, masked_name};

/// The version of the file format.
pub const VERSION: u64 = 1;
/// How many names are tried for a new file.
const MAX_NAME_ATTEMPTS: u32 = 10_000;
/// The maximum length of the session's part of a file name, and of a cue.
const MAX_NAME_CHARS: usize = 120;
const MAX_CUE_CHARS: usize = 120;

#[derive(Serialize, Deserialize)]
struct DeferralHeader {
    version: u64,
    #[serde(default)]
    session_id: Option<String>,
    deferred_at: Option<String>,
    #[serde(default)]
    cwd: Option<String>,
    /// Fields that Hob writes in addition to those of the documented format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<ProjectLocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct DeferralLine {
    text: String,
    #[serde(default)]
    cue: Option<String>,
    #[serde(default)]
    tier: Option<String>,
    role: TurnRole,
    #[serde(default)]
    ts: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    n: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<String>,
    /// The words of the work after the turn. `cue` is the prompt before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    work: Option<String>,
}

/// Writes the content of a file with turns of a session into a new file of the folder, as a whole or not at all. Returns
/// the file's path. The file is not synced.
pub fn write(folder: &Path, session: &str, content: &[u8], now: Timestamp) -> io::Result<PathBuf> {
    let session = file_name(&masked_name(session));
    let seconds = now.as_second();
    for attempt in 0..MAX_NAME_ATTEMPTS {
        let name = match attempt {
            0 => format!("{session}-{seconds}.jsonl"),
            attempt => format!("{session}-{seconds}-{attempt}.jsonl"),
        };
        let path = folder.join(name);
        if !path.exists() && hob_files::write_new_unsynced(&path, content)? {
            return Ok(path);
        }
    }
    Err(io::Error::other("cannot choose an unused file name for the deferred turns"))
}

/// Returns the content of a file with a batch.
pub fn encode(
    batch: &CaptureBatch,
    cwd: &str,
    key: &SealingKey,
    now: Timestamp,
) -> io::Result<Vec<u8>> {
    let mut content = serde_json::to_vec(&DeferralHeader {
        version: VERSION,
        session_id: Some(masked_name(&batch.session)),
        deferred_at: Some(now.to_string()),
        cwd: Some(redact::mask(cwd).text),
        place: Some(batch.place.clone()),
        client: Some(batch.client.clone()),
    })?;
    content.push(b'\n');
    let mut prompt = String::new();
    for turn in &batch.turns {
        let SealedText { text, sealed } = seal_secrets(&turn.text, key);
        if turn.role == TurnRole::User {
            prompt = first_line(&text);
        }
        let cue = turn.cue.as_ref().map(|cue| redact::mask(cue).text);
        let (cue, work) = match turn.tier {
            Tier::Episodic => (None, cue),
            Tier::Semantic => (cue, None),
        };
        let line = DeferralLine {
            cue: Some(cue.unwrap_or_else(|| prompt.clone())),
            text,
            tier: Some(turn.tier.as_str().to_owned()),
            role: turn.role,
            ts: Some(turn.ts.to_string()),
            id: turn.id.clone(),
            n: turn.id.is_none().then_some(turn.n),
            at: turn.at.map(|at| at.to_string()),
            answer: turn.answer.clone(),
            sealed: sealed.map(|bytes| BASE64.encode(bytes)),
            work,
        };
        serde_json::to_writer(&mut content, &line)?;
        content.push(b'\n');
    }
    Ok(content)
}

/// Returns the first line of a prompt: the cue of the turns after it.
fn first_line(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default()
        .chars()
        .take(MAX_CUE_CHARS)
        .collect()
}

/// Returns a text as the name of a file: characters that are not plainly allowed become `_`.
pub fn file_name(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name: String =
        text.chars().map(|c| if allowed(c) { c } else { '_' }).take(MAX_NAME_CHARS).collect();
    // A name that begins with a dot would be hidden, and an empty one is not a name.
    match name.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None if name.is_empty() => "_".to_owned(),
        None => name,
    }
}

/// The content of a deferral file.
#[derive(Debug, Clone, PartialEq)]
pub struct DeferralFile {
    pub batch: CaptureBatch,
    /// The numbers of the lines that could not be read; the header is line 1.
    pub bad_lines: Vec<usize>,
}

/// Why a file cannot be read as a deferral file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeferralError {
    #[error(
        "the file has format version {0}, but this hob reads only version {VERSION}; update hob"
    )]
    Version(u64),
    #[error("not a deferred-capture file: {0}")]
    Malformed(String),
}

/// Reads the content of a file named `name`. Lines that cannot be read are skipped and reported.
pub fn decode(
    content: &[u8],
    name: &str,
    keys: &OpeningKeys,
) -> Result<DeferralFile, DeferralError> {
    let mut lines = content.split(|byte| *byte == b'\n').enumerate().peekable();
    if lines.peek().is_some_and(|(_, line)| has_too_many_values(line)) {
        return Err(DeferralError::Malformed("its header has too many values".to_owned()));
    }
    let header = match lines.peek().map(|(_, line)| serde_json::from_slice::<Value>(line)) {
        Some(Ok(value)) if value.get("version").is_some() => {
            lines.next();
            value
        }
        // A file without a header begins with a turn.
        Some(Ok(value)) if value.get("role").is_some() => Value::Null,
        Some(Err(error)) => {
            return Err(DeferralError::Malformed(format!("its header is damaged ({error})")));
        }
        _ => return Err(DeferralError::Malformed("it has no header".to_owned())),
    };
    match header.get("version").map(Value::as_u64) {
        None | Some(Some(VERSION)) => {}
        Some(version) => return Err(DeferralError::Version(version.unwrap_or_default())),
    }
    let deferred_at = header.get("deferred_at").and_then(Value::as_str);
    let deferred_at = deferred_at.and_then(|at| at.parse().ok());
    let mut file = DeferralFile { batch: empty_batch(&header, name), bad_lines: Vec::new() };
    let mut counts = HashMap::new();
    for (index, line) in lines {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let turn = serde_json::from_slice::<DeferralLine>(line)
            .ok()
            .and_then(|line| raw_turn(line, deferred_at, keys));
        match turn {
            Some((mut turn, is_numbered)) => {
                let count = counts.entry(words_key(turn.role, &turn.text)).or_insert(0_u32);
                *count += 1;
                if !is_numbered {
                    turn.n = *count;
                }
                file.batch.turns.push(turn);
            }
            None => file.bad_lines.push(index + 1),
        }
    }
    Ok(file)
}

/// Returns the batch that a header describes, without its turns.
fn empty_batch(header: &Value, name: &str) -> CaptureBatch {
    let text = |key: &str| header.get(key).and_then(Value::as_str).map(str::to_owned);
    let session = text("session_id").filter(|session| !session.is_empty());
    let place = header.get("place").and_then(|place| serde_json::from_value(place.clone()).ok());
    let locate = || locate_project(Path::new(text("cwd").as_deref().unwrap_or("/")));
    CaptureBatch {
        session: session.unwrap_or_else(|| session_of_name(name)),
        place: place.unwrap_or_else(locate),
        client: text("client").unwrap_or_else(|| "unknown".to_owned()),
        source: TurnSource::Deferral,
        turns: Vec::new(),
    }
}

/// Returns the session of a file without a header: the part of its name before the time.
fn session_of_name(name: &str) -> String {
    let stem = name.strip_suffix(".jsonl").unwrap_or(name);
    let is_time = |part: &str| part.len() >= 9 && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = stem.split('-').collect();
    match parts.iter().rposition(|part| is_time(part)) {
        Some(at) if at > 0 => parts[..at].join("-"),
        _ => stem.to_owned(),
    }
}

/// Returns the turn of a line, and whether the line has the occurrence number of its text.
fn raw_turn(
    line: DeferralLine,
    deferred_at: Option<Timestamp>,
    keys: &OpeningKeys,
) -> Option<(RawTurn, bool)> {
    if line.text.trim().is_empty() {
        return None;
    }
    // The original is restored, so that this turn is the same as one that came directly.
    let original = line
        .sealed
        .as_deref()
        .and_then(|sealed| BASE64.decode(sealed).ok())
        .and_then(|sealed| keys.open(&sealed))
        .and_then(|clear| restore_secrets(&line.text, &clear));
    let tier = line.tier.as_deref().and_then(Tier::parse).unwrap_or_default();
    let ts = line.ts.as_deref().and_then(|ts| ts.parse().ok()).or(deferred_at);
    let turn = RawTurn {
        id: line.id,
        role: line.role,
        text: original.unwrap_or(line.text),
        ts: ts.unwrap_or_default(),
        at: line.at.as_deref().and_then(|at| at.parse().ok()),
        n: line.n.unwrap_or(1),
        answer: line.answer,
        tier,
        // The cue of an episodic turn is the prompt before it, which is stored as well.
        cue: match tier {
            Tier::Episodic => line.work,
            Tier::Semantic => line.cue,
        },
    };
    Some((turn, line.n.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hob_domain::DataKey;

    fn key() -> OpeningKeys {
        OpeningKeys::from(crate::OpeningKey::of(&DataKey::from_bytes([3; 32])))
    }

    fn turn(role: TurnRole, text: &str) -> RawTurn {
        RawTurn {
            id: None,
            role,
            text: text.to_owned(),
            ts: "2026-01-02T03:04:05Z".parse().unwrap(),
            at: None,
            n: 1,
            answer: None,
            tier: Tier::Episodic,
            cue: None,
        }
    }

    #[test]
    fn written_files_read_back_exactly_and_show_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let secret = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
        let said = format!("my token is {secret}, ok?\n\u{0}\u{1F600}");
        let batch = CaptureBatch {
            session: "a/b".to_owned(),
            place: ProjectLocation { project: "/p".to_owned(), worktree: "/p".to_owned() },
            client: "claude".to_owned(),
            source: TurnSource::Deferral,
            turns: vec![turn(TurnRole::User, &said), turn(TurnRole::Assistant, "fine")],
        };
        let now = "2026-01-02T03:04:06Z".parse().unwrap();
        let content = encode(&batch, "/some/cwd", &key().sealing_key(), now).unwrap();
        let first = write(folder.path(), &batch.session, &content, now).unwrap();
        let second = write(folder.path(), &batch.session, &content, now).unwrap();
        assert_eq!(first.file_name().unwrap(), "a_b-1767323046.jsonl");
        assert_ne!(first, second);
        let content = std::fs::read(&first).unwrap();
        let text = String::from_utf8(content.clone()).unwrap();
        assert!(!text.contains(&secret) && !text.contains("a1B2c3"), "{text}");
        let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!((&header["version"], &header["cwd"]), (&1.into(), &"/some/cwd".into()));
        let read = decode(&content, "a_b-1767323046.jsonl", &key()).unwrap();
        assert_eq!(read, DeferralFile { batch, bad_lines: vec![] });
    }

    #[test]
    fn damaged_files_are_read_as_far_as_possible() {
        let content = br#"{"version":1,"session_id":"s","deferred_at":"2026-01-02T03:04:05Z","cwd":"/nowhere"}
{"text":"go on","cue":"x","tier":"episodic","role":"user","ts":"2026-01-02T03:00:00Z"}
not json
{"text":"done","role":"assistant"}
{"text":"go on","role":"user"}
{"text":"  ","role":"user"}"#;
        let read = decode(content, "s-1.jsonl", &key()).unwrap();
        let turns: Vec<(&str, u32)> =
            read.batch.turns.iter().map(|turn| (turn.text.as_str(), turn.n)).collect();
        assert_eq!(turns, [("go on", 1), ("done", 1), ("go on", 2)]);
        assert_eq!(read.bad_lines, [3, 6]);
        assert_eq!(read.batch.session, "s");
        assert_eq!(read.batch.place.project, "/nowhere");
        let bad = |content: &[u8]| decode(content, "s-1.jsonl", &key()).unwrap_err();
        assert_eq!(bad(b"{\"version\":99}\n"), DeferralError::Version(99));
        assert!(matches!(bad(b"\x00\xff"), DeferralError::Malformed(_)));
    }
}
