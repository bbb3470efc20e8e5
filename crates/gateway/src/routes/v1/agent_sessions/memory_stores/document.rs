//! A memory as the ledger stores it, and the rules for its path and size.

use hob_domain::{AppName, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use unicode_normalization::is_nfc;
use uuid::Uuid;

use crate::error::ApiError;
use crate::routes::v1::agent_sessions::respond::time;

/// The longest text of a memory, in bytes.
const MAX_CONTENT_BYTES: usize = 100 << 10;
const MAX_PATH_BYTES: usize = 1024;
const MAX_PATH_SEGMENTS: usize = 20;
/// The most versions of a memory that are kept.
const MAX_VERSIONS: usize = 20;
/// The most bytes of text that the kept versions of a memory have.
const MAX_VERSION_BYTES: usize = 512 << 10;

/// A memory and its history.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct MemoryDocument {
    pub store_id: String,
    /// The versions that are kept, oldest first. There is at least one. The last one is a deletion if the memory is
    /// deleted.
    pub versions: Vec<MemoryVersion>,
}

/// A change of a memory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct MemoryVersion {
    pub id: String,
    pub operation: Operation,
    pub at: Timestamp,
    /// `None` if the version is redacted.
    pub path: Option<String>,
    /// `None` if the version is redacted or a deletion.
    pub content: Option<String>,
    pub redacted_at: Option<Timestamp>,
    /// The note in the app's memory that has this text. It is forgotten when the version is no longer the newest.
    pub record_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Operation {
    Created,
    Modified,
    Deleted,
}

/// Whether an answer has the texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    Basic,
    Full,
}

impl MemoryVersion {
    pub fn new(operation: Operation, path: String, content: Option<String>) -> MemoryVersion {
        MemoryVersion {
            id: format!("memver_{}", Uuid::new_v4().simple()),
            operation,
            at: Timestamp::now(),
            path: Some(path),
            content,
            redacted_at: None,
            record_id: None,
        }
    }

    /// Removes what the version says. Its time and kind stay.
    pub fn redact(&mut self) {
        if self.redacted_at.is_none() {
            self.redacted_at = Some(Timestamp::now());
        }
        (self.path, self.content, self.record_id) = (None, None, None);
    }

    pub fn render(&self, app: &AppName, memory_id: &str, store_id: &str, view: View) -> Value {
        let content = self.content.as_deref();
        let actor = json!({"type": "api_actor", "api_key_id": app.as_str()});
        json!({"id": self.id, "type": "memory_version", "memory_id": memory_id,
            "memory_store_id": store_id, "operation": self.operation, "created_at": time(self.at),
            "created_by": actor, "path": self.path,
            "content": content.filter(|_| view == View::Full),
            "content_sha256": content.map(sha256),
            "content_size_bytes": content.map(str::len),
            "redacted_at": self.redacted_at.map(time),
            "redacted_by": self.redacted_at.map(|_| actor.clone())})
    }
}

impl MemoryDocument {
    /// Returns the notes of all versions. Those of earlier ones should be forgotten already.
    pub fn record_ids(&self) -> Vec<String> {
        self.versions.iter().filter_map(|version| version.record_id.clone()).collect()
    }

    pub fn newest(&self) -> &MemoryVersion {
        &self.versions[self.versions.len() - 1]
    }

    pub fn is_deleted(&self) -> bool {
        self.newest().operation == Operation::Deleted
    }

    /// Returns the path; nothing if the memory is deleted.
    pub fn path(&self) -> Option<&str> {
        self.newest().path.as_deref().filter(|_| !self.is_deleted())
    }

    /// Adds a version, and drops the oldest ones if there are too many.
    pub fn add(&mut self, version: MemoryVersion) {
        self.versions.push(version);
        let size = |versions: &[MemoryVersion]| -> usize {
            versions.iter().filter_map(|version| version.content.as_ref()).map(String::len).sum()
        };
        while self.versions.len() > MAX_VERSIONS
            || (self.versions.len() > 1 && size(&self.versions) > MAX_VERSION_BYTES)
        {
            self.versions.remove(0);
        }
    }

    pub fn render(&self, id: &str, created_at: Timestamp, view: View) -> Value {
        let newest = self.newest();
        let content = newest.content.as_deref().unwrap_or_default();
        json!({"id": id, "type": "memory", "memory_store_id": self.store_id,
            "memory_version_id": newest.id, "path": newest.path,
            "content": (view == View::Full).then_some(content),
            "content_sha256": sha256(content), "content_size_bytes": content.len(),
            "created_at": time(created_at), "updated_at": time(newest.at)})
    }
}

/// Returns the SHA-256 digest of a text in hexadecimal digits.
pub(super) fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks the text of a memory.
pub(super) fn check_content(content: &str) -> Result<(), ApiError> {
    match content.len() > MAX_CONTENT_BYTES {
        true => Err(ApiError::bad_request(format!("content: exceeds {MAX_CONTENT_BYTES} bytes"))),
        false => Ok(()),
    }
}

/// Checks the path of a memory.
pub(super) fn check_path(path: &str) -> Result<(), ApiError> {
    let wrong = |text: String| Err(ApiError::bad_request(format!("path: {text}")));
    let Some(rest) = path.strip_prefix('/') else {
        return wrong("must start with /".to_owned());
    };
    if path.len() > MAX_PATH_BYTES {
        return wrong(format!("exceeds {MAX_PATH_BYTES} bytes"));
    }
    let segments: Vec<&str> = rest.split('/').collect();
    if segments.len() > MAX_PATH_SEGMENTS {
        return wrong(format!("has more than {MAX_PATH_SEGMENTS} segments"));
    }
    if segments.iter().any(|segment| matches!(*segment, "" | "." | "..")) {
        return wrong("a segment must not be empty, \".\" or \"..\"".to_owned());
    }
    if path.contains(is_unprintable) {
        return wrong("must not contain control or format characters".to_owned());
    }
    if !is_nfc(path) {
        return wrong("must be in Unicode Normalization Form C".to_owned());
    }
    Ok(())
}

/// Returns whether a character is a control or format character, or separates lines or paragraphs.
fn is_unprintable(character: char) -> bool {
    let is_format = matches!(character,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0001}' | '\u{e0020}'..='\u{e007f}');
    character.is_control() || is_format || matches!(character, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_the_rules() {
        for path in ["/a", "/projects/foo/notes.md", "/Größe/日本", "/a b"] {
            assert!(check_path(path).is_ok(), "{path}");
        }
        let long = format!("/{}", "a".repeat(MAX_PATH_BYTES));
        let deep = "/a".repeat(MAX_PATH_SEGMENTS + 1);
        let wrong =
            ["", "a", "/", "/a/", "/a//b", "/./a", "/a/..", "/a\n", "/a\u{200b}", "/u\u{308}"];
        for path in wrong.into_iter().chain([long.as_str(), &deep]) {
            assert!(check_path(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn old_versions_are_dropped() {
        let version = |bytes: usize| {
            MemoryVersion::new(Operation::Modified, "/a".to_owned(), Some("x".repeat(bytes)))
        };
        let mut document = MemoryDocument { store_id: "s".to_owned(), versions: vec![version(10)] };
        for number in 1..MAX_VERSIONS + 5 {
            document.add(version(10));
            assert_eq!(document.versions.len(), (number + 1).min(MAX_VERSIONS));
        }
        // A large text replaces as many old ones as it must, and itself stays.
        document.add(version(MAX_VERSION_BYTES));
        assert_eq!(document.versions.len(), 1);
    }
}
