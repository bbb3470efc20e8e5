//! The transcript file: its path, and how records are written.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::new_id;

/// A transcript that is appended to as the real one is.
pub struct Transcript {
    session: String,
    path: PathBuf,
    cwd: String,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    last: Option<String>,
    /// Whether the file's preamble is still to be written.
    fresh: bool,
    /// Records that wait for the first batch to be complete.
    held: Option<Vec<Value>>,
    torn: bool,
}

/// A prompt whose tools have been called in part.
#[derive(Debug, Default)]
pub struct Unfinished {
    pub prompt: String,
    pub calls: usize,
    pub last_result: String,
}

impl Unfinished {
    fn new(prompt: &str) -> Unfinished {
        Unfinished { prompt: prompt.to_owned(), ..Unfinished::default() }
    }

    fn read(&mut self, block: &Value) {
        match (block["type"].as_str(), &block["content"]) {
            (Some("tool_use"), _) => self.calls += 1,
            (Some("tool_result"), Value::String(text)) => self.last_result.clone_from(text),
            (Some("tool_result"), content) => {
                self.last_result = content[0]["text"].as_str().unwrap_or_default().to_owned();
            }
            _ => {}
        }
    }
}

impl Transcript {
    /// Opens a new or a resumed session. The error is the message that the real CLI prints.
    pub fn open(new: Option<&str>, resumed: Option<&str>) -> Result<Transcript, String> {
        let session = resumed.or(new).map_or_else(new_id, str::to_owned);
        let cwd = std::env::current_dir().unwrap_or_default().display().to_string();
        let config =
            std::env::var_os("CLAUDE_CONFIG_DIR").map(PathBuf::from).unwrap_or_else(|| {
                PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".claude")
            });
        let path = config.join("projects").join(munged(&cwd)).join(format!("{session}.jsonl"));
        let mut inner = Inner { fresh: true, ..Inner::default() };
        if resumed.is_some() {
            let text = fs::read_to_string(&path)
                .map_err(|_| format!("No conversation found with session ID: {session}"))?;
            let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            for record in records {
                let message = &record["message"];
                if record["type"] == "assistant"
                    && (message["model"].is_null() || !message["content"].is_array())
                {
                    return Err(format!("Failed to resume session {session}"));
                }
                if let Some(id) = record["uuid"].as_str() {
                    inner.last = Some(id.to_owned());
                }
            }
            inner.fresh = false;
        } else if path.exists() {
            return Err(format!("Session ID {session} is already in use."));
        }
        Ok(Transcript { session, path, cwd, inner: Mutex::new(inner) })
    }

    pub fn session(&self) -> &str {
        &self.session
    }

    /// Returns the texts of all earlier messages, of user and assistant.
    pub fn history(&self) -> String {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let texts = records.flat_map(|record| match &record["message"]["content"] {
            Value::String(text) => vec![text.clone()],
            Value::Array(blocks) => {
                blocks.iter().filter_map(|b| b["text"].as_str().map(str::to_owned)).collect()
            }
            _ => Vec::new(),
        });
        texts.collect::<Vec<_>>().join(" | ")
    }

    /// Returns the last prompt of the user, if results of tools follow it: how many tools were called since, and the last
    /// result.
    pub fn unfinished(&self) -> Option<Unfinished> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let mut found = Unfinished::default();
        for record in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let is_user = record["type"] == "user";
            match &record["message"]["content"] {
                Value::String(prompt) if is_user => found = Unfinished::new(prompt),
                Value::Array(blocks) => {
                    for block in blocks {
                        match block["text"].as_str() {
                            Some(prompt) if is_user => found = Unfinished::new(prompt),
                            _ => found.read(block),
                        }
                    }
                }
                _ => {}
            }
        }
        (found.calls > 0).then_some(found)
    }

    /// Holds records back from now on, to be written in another order.
    pub fn hold(&self) {
        self.lock().held = Some(Vec::new());
    }

    /// Writes the records held back, with the last answer and the end of the turn right after the modes: the
    /// first batch of the real CLI sometimes has this order.
    pub fn release(&self) {
        let mut inner = self.lock();
        if let Some(mut held) = inner.held.take() {
            let early = held.split_off(held.len().saturating_sub(2));
            let at = held.len().min(2);
            held.splice(at..at, early);
            for record in &held {
                self.write(&inner, record);
            }
        }
    }

    /// Writes every line in two pieces from now on.
    pub fn tear(&self) {
        self.lock().torn = true;
    }

    /// Writes a record of the conversation, with the one before as its parent, and returns its id.
    pub fn record(&self, mut record: Value) -> String {
        let mut inner = self.lock();
        if std::mem::take(&mut inner.fresh) {
            self.append(
                &mut inner,
                json!({"type": "mode", "mode": "normal", "sessionId": self.session}),
            );
            self.append(
                &mut inner,
                json!({"type": "permission-mode", "permissionMode": "default",
                "sessionId": self.session}),
            );
            let id = new_id();
            self.append(
                &mut inner,
                json!({"type": "file-history-snapshot", "messageId": id,
                "snapshot": {"messageId": id, "trackedFileBackups": {}, "timestamp": now()},
                "isSnapshotUpdate": false}),
            );
        }
        let id = new_id();
        let common = json!({"parentUuid": inner.last, "isSidechain": false, "userType": "external",
            "entrypoint": "cli", "cwd": self.cwd, "sessionId": self.session, "version": "2.1.197",
            "gitBranch": "", "uuid": id, "timestamp": now()});
        for (key, value) in common.as_object().into_iter().flatten() {
            record[key] = value.clone();
        }
        inner.last = Some(id.clone());
        self.append(&mut inner, record);
        id
    }

    /// Writes a record of a local command, which is not part of the conversation's preamble.
    pub fn local(&self, record: Value) {
        self.record(record);
    }

    /// Writes a record without an id.
    pub fn note(&self, mut record: Value) {
        record["timestamp"] = json!(now());
        let mut inner = self.lock();
        self.append(&mut inner, record);
    }

    fn append(&self, inner: &mut Inner, record: Value) {
        match &mut inner.held {
            Some(held) => held.push(record),
            None => self.write(inner, &record),
        }
    }

    fn write(&self, inner: &Inner, record: &Value) {
        let Ok(mut file) = self.file() else { return };
        let line = format!("{record}\n");
        if inner.torn {
            let (first, second) = line.as_bytes().split_at(line.len() / 2);
            let _ = file.write_all(first);
            std::thread::sleep(Duration::from_millis(3));
            let _ = file.write_all(second);
        } else {
            let _ = file.write_all(line.as_bytes());
        }
    }

    fn file(&self) -> std::io::Result<File> {
        fs::create_dir_all(self.path.parent().expect("a folder"))?;
        OpenOptions::new().create(true).append(true).open(&self.path)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the folder name for a working folder: every UTF-16 unit that is no ASCII letter or digit
/// becomes a dash; a long name is cut and gets a hash.
fn munged(cwd: &str) -> String {
    let name: String = cwd
        .encode_utf16()
        .map(|unit| match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii_alphanumeric() => char::from(byte),
            _ => '-',
        })
        .collect();
    if name.len() <= 200 {
        return name;
    }
    let hash = cwd
        .encode_utf16()
        .fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    format!("{}-{}", &name[..200], base36(hash.unsigned_abs()))
}

fn base36(mut number: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit(number % 36, 36).expect("a digit"));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

fn now() -> String {
    Timestamp::now().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transcript_folders_are_named_like_the_real_ones() {
        assert_eq!(munged("/srv/m/a.b_c d"), "-srv-m-a-b-c-d");
        assert_eq!(munged("/日本語"), "----");
        assert_eq!(munged("/🎉"), "---");
        let long = munged(&format!("/{}", "x".repeat(300)));
        assert_eq!(long.len(), 200 + 1 + long.rsplit('-').next().unwrap().len());
    }
}
