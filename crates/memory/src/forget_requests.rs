//! Requests of agents to forget turns of the owner, which wait for the owner to confirm them. Each is a small file.

use std::io;
use std::path::{Path, PathBuf};

use hob_domain::Timestamp;
use hob_domain::memory::TurnKey;
use hob_files::owned;
use serde::{Deserialize, Serialize};

/// Further requests are refused until the owner has answered some.
const MAX_REQUESTS: usize = 1000;
const MAX_FILE_BYTES: u64 = 64 << 10;
const MAX_ID_BYTES: usize = 1024;
const EXTENSION: &str = "json";

/// A request to forget a record or a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetRequest {
    pub id: String,
    pub at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The project of the agent's working folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
}

/// The folder of the requests.
#[derive(Debug, Clone)]
pub struct ForgetRequests {
    folder: PathBuf,
}

impl ForgetRequests {
    pub fn new(folder: PathBuf) -> ForgetRequests {
        ForgetRequests { folder }
    }

    /// Stores a request and returns it. A request for the same turns is stored once.
    pub fn add(
        &self,
        record_id: Option<String>,
        session_id: Option<String>,
        project: Option<String>,
        now: Timestamp,
    ) -> io::Result<ForgetRequest> {
        let is_long = |id: &Option<String>| id.as_ref().is_some_and(|id| id.len() > MAX_ID_BYTES);
        if is_long(&record_id) || is_long(&session_id) {
            return Err(io::Error::other("the ID is too long"));
        }
        let all = self.all();
        let is_known = |request: &&ForgetRequest| {
            request.record_id == record_id && request.session_id == session_id
        };
        if let Some(known) = all.iter().find(is_known) {
            return Ok(known.clone());
        }
        if all.len() >= MAX_REQUESTS {
            let text = "too many requests wait for the owner; `hob forget --requests` lists them";
            return Err(io::Error::other(text));
        }
        let text = |id: &Option<String>| id.clone().unwrap_or_default();
        let key = TurnKey::of(&["forget", &text(&record_id), &text(&session_id)]);
        let id = key.to_hex()[..12].to_owned();
        let request = ForgetRequest { id, at: now.to_string(), record_id, session_id, project };
        owned::create_dir_all(&self.folder)?;
        hob_files::write_over(&self.path(&request.id), &serde_json::to_vec(&request)?, 0o600)?;
        Ok(request)
    }

    /// Returns all requests, oldest first.
    pub fn all(&self) -> Vec<ForgetRequest> {
        let entries = owned::entries(&self.folder);
        let read = |path: &Path| -> Option<ForgetRequest> {
            let request: ForgetRequest =
                serde_json::from_slice(&hob_files::read_regular(path, MAX_FILE_BYTES).ok()?)
                    .ok()?;
            // The name of the file is the ID, and nothing else.
            (self.path(&request.id) == path && path.file_stem()?.to_str()? == request.id)
                .then_some(request)
        };
        let mut all: Vec<ForgetRequest> =
            entries.filter_map(|entry| read(&entry.path())).take(MAX_REQUESTS).collect();
        all.sort_by(|a, b| (&a.at, &a.id).cmp(&(&b.at, &b.id)));
        all
    }

    pub fn remove(&self, request: &ForgetRequest) -> io::Result<()> {
        owned::remove_file(self.path(&request.id))
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(id).with_extension(EXTENSION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_kept_once_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let requests = ForgetRequests::new(folder.path().join("requests"));
        assert!(requests.all().is_empty());
        let now = Timestamp::now();
        let one = requests.add(Some("r1".into()), None, Some("/p".into()), now).unwrap();
        let two = requests.add(None, Some("s1".into()), None, now).unwrap();
        assert_eq!(requests.add(Some("r1".into()), None, None, now).unwrap(), one);
        assert_eq!(requests.all().len(), 2);
        requests.remove(&one).unwrap();
        assert_eq!(requests.all(), [two]);
    }
}
