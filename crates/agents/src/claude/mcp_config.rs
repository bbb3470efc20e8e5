//! `--mcp-config` files: written at first use with mode 0600, removed at close.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value, json};

const PREFIX: &str = "mcp-";

/// The files of one backend, one per set of servers.
#[derive(Debug)]
pub struct McpConfigs {
    folder: PathBuf,
    files: Mutex<HashMap<String, PathBuf>>,
}

impl McpConfigs {
    /// Creates the set and removes the files that a crash left in the folder, which only this set uses.
    pub fn new(folder: PathBuf) -> McpConfigs {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                let _ = fs::remove_file(entry.path());
            }
        }
        McpConfigs { folder, files: Mutex::default() }
    }

    /// Returns the file for these servers, or `None` if there are no servers.
    pub fn path(&self, servers: &Map<String, Value>) -> io::Result<Option<PathBuf>> {
        if servers.is_empty() {
            return Ok(None);
        }
        let body = json!({"mcpServers": servers}).to_string();
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = files.get(&body) {
            return Ok(Some(path.clone()));
        }
        fs::create_dir_all(&self.folder)?;
        let path = self.folder.join(format!("{PREFIX}{}.json", uuid::Uuid::new_v4().simple()));
        hob_files::create(&path, body.as_bytes())?;
        files.insert(body, path.clone());
        Ok(Some(path))
    }

    /// Removes all files.
    pub fn remove(&self) {
        for (_, path) in self.files.lock().unwrap_or_else(PoisonError::into_inner).drain() {
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for McpConfigs {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Seed 002.
    #[test]
    fn mcp_config_argument_writes_temp_file_lazily() {
        let folder = tempfile::tempdir().unwrap();
        let configs = McpConfigs::new(folder.path().join("runtime"));
        assert!(!folder.path().join("runtime").exists());
        let servers = json!({"echo": {"command": "/bin/echo", "args": []}});
        let servers = servers.as_object().unwrap();
        let path = configs.path(servers).unwrap().unwrap();
        let body: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(body, json!({"mcpServers": {"echo": {"command": "/bin/echo", "args": []}}}));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(configs.path(servers).unwrap().unwrap(), path, "no second file");
        configs.remove();
        assert!(!path.exists());
        // Files that a crash left are removed at the next start.
        fs::write(folder.path().join("runtime/mcp-stale.json"), "{}").unwrap();
        let _again = McpConfigs::new(folder.path().join("runtime"));
        assert!(!folder.path().join("runtime/mcp-stale.json").exists());
    }

    /// Seed 002.
    #[test]
    fn no_mcp_config_returns_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(McpConfigs::new(folder.path().into()).path(&Map::new()).unwrap(), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
