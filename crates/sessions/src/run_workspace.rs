//! The temporary folder a one-shot run works in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hob_agents::Runtime;
use hob_files::owned;
use uuid::Uuid;

const PREFIX: &str = "run-";

/// A temporary folder. Dropping it removes the folder with its contents, so drop it only when no
/// process runs in it.
pub(crate) struct RunWorkspace {
    path: PathBuf,
    runtime: Runtime,
}

impl RunWorkspace {
    pub fn create(parent: &Path, runtime: &Runtime) -> io::Result<RunWorkspace> {
        let path = parent.join(format!("{PREFIX}{}", Uuid::new_v4()));
        owned::create_dir_all(&path)?;
        // Agents name their transcripts after the real path.
        Ok(RunWorkspace { path: fs::canonicalize(path)?, runtime: runtime.clone() })
    }

    /// Returns the folder's last path component.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunWorkspace {
    fn drop(&mut self) {
        self.runtime.discard(&self.path);
    }
}

/// Removes the folders that the runs of a killed Hob left.
pub(crate) fn remove_leftovers(parent: &Path, runtime: &Runtime) {
    for entry in owned::entries(parent) {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            runtime.discard(&entry.path());
        }
    }
}
