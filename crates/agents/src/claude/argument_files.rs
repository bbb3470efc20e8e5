//! Files that arguments name instead of containing their text, which every process of the machine could read: MCP servers
//! and system prompts. They are written at first use with mode 0600, and removed at close.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use hob_files::owned;
use serde_json::{Map, Value, json};

const PREFIX: &str = "argument-";
/// The prefix of earlier versions.
const EARLIER_PREFIX: &str = "mcp-";

/// The files of one backend: one per set of MCP servers, and one per process for its prompts.
#[derive(Debug)]
pub struct ArgumentFiles {
    folder: PathBuf,
    /// The files of MCP servers, by their content.
    files: Mutex<HashMap<String, PathBuf>>,
}

impl ArgumentFiles {
    /// Creates the set and removes the files that a crash left in the folder, which only this set uses.
    pub fn new(folder: PathBuf) -> ArgumentFiles {
        for entry in owned::entries(&folder) {
            let name = entry.file_name();
            let is_ours = |prefix: &&str| name.to_string_lossy().starts_with(prefix);
            if [PREFIX, EARLIER_PREFIX].iter().any(is_ours) {
                let _ = owned::remove_file(entry.path());
            }
        }
        ArgumentFiles { folder, files: Mutex::default() }
    }

    /// Returns the file for `--mcp-config`, or `None` if there are no servers.
    pub fn mcp_config(&self, servers: &Map<String, Value>) -> io::Result<Option<PathBuf>> {
        if servers.is_empty() {
            return Ok(None);
        }
        let body = json!({"mcpServers": servers}).to_string();
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = files.get(&body) {
            return Ok(Some(path.clone()));
        }
        let path = self.new_path("json")?;
        hob_files::create(&path, body.as_bytes())?;
        files.insert(body, path.clone());
        Ok(Some(path))
    }

    /// Writes a prompt into a new file; `None` if there is no prompt.
    pub fn prompt(&self, text: Option<&str>) -> io::Result<Option<ProcessFile>> {
        text.map(|text| self.process_file(text, "txt")).transpose()
    }

    /// Creates the file into which one process writes its cost.
    pub fn cost(&self) -> io::Result<ProcessFile> {
        self.process_file("", "cost")
    }

    /// Writes MCP servers of which one belongs to a single process.
    pub fn process_mcp_config(&self, servers: &Map<String, Value>) -> io::Result<ProcessFile> {
        self.process_file(&json!({"mcpServers": servers}).to_string(), "json")
    }

    /// Writes a file for one process. It is removed with the result: such files differ from process to process, and would
    /// pile up.
    fn process_file(&self, text: &str, extension: &str) -> io::Result<ProcessFile> {
        let path = self.new_path(extension)?;
        hob_files::create(&path, text.as_bytes())?;
        Ok(ProcessFile { path })
    }

    fn new_path(&self, extension: &str) -> io::Result<PathBuf> {
        owned::create_dir_all(&self.folder)?;
        Ok(self.folder.join(format!("{PREFIX}{}.{extension}", uuid::Uuid::new_v4().simple())))
    }

    /// Removes the files of MCP servers.
    pub fn remove(&self) {
        for (_, path) in self.files.lock().unwrap_or_else(PoisonError::into_inner).drain() {
            let _ = owned::remove_file(path);
        }
    }
}

/// A file of one process, which is removed with this value.
#[derive(Debug)]
pub struct ProcessFile {
    pub path: PathBuf,
}

impl Drop for ProcessFile {
    fn drop(&mut self) {
        let _ = owned::remove_file(&self.path);
    }
}

impl Drop for ArgumentFiles {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// Seed 002.
    #[test]
    fn mcp_config_argument_writes_temp_file_lazily() {
        let folder = tempfile::tempdir().unwrap();
        let files = ArgumentFiles::new(folder.path().join("runtime"));
        assert!(!folder.path().join("runtime").exists());
        let servers = json!({"echo": {"command": "/bin/echo", "args": []}});
        let servers = servers.as_object().unwrap();
        let path = files.mcp_config(servers).unwrap().unwrap();
        let body: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(body, json!({"mcpServers": {"echo": {"command": "/bin/echo", "args": []}}}));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(files.mcp_config(servers).unwrap().unwrap(), path, "no second file");
        files.remove();
        assert!(!path.exists());
        // Files that a crash left are removed at the next start.
        fs::write(folder.path().join("runtime/mcp-stale.json"), "{}").unwrap();
        let _again = ArgumentFiles::new(folder.path().join("runtime"));
        assert!(!folder.path().join("runtime/mcp-stale.json").exists());
    }

    /// Seed 002.
    #[test]
    fn no_mcp_config_returns_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(ArgumentFiles::new(folder.path().into()).mcp_config(&Map::new()).unwrap(), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
