//! What `hob setup` has created, so that `hob setup --undo` removes it and nothing else.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::home::Home;

const MAX_FILE_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupRecord {
    /// Folders that did not exist before, the outermost first.
    #[serde(default)]
    pub folders: Vec<PathBuf>,
    /// Settings files that did not exist before.
    #[serde(default)]
    pub files: Vec<PathBuf>,
    /// Settings files that had no list of MCP servers before.
    #[serde(default)]
    pub server_lists: Vec<PathBuf>,
}

impl SetupRecord {
    /// Reads the record of a home. Without one, nothing was created.
    pub fn load(home: &Home) -> SetupRecord {
        let bytes = hob_files::read_regular(&home.setup_record(), MAX_FILE_BYTES);
        bytes.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    /// Writes the record, or removes it if nothing was created.
    pub fn save(&self, home: &Home) -> io::Result<()> {
        let path = home.setup_record();
        if *self == SetupRecord::default() {
            return match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        hob_files::write_over(&path, &serde_json::to_vec(self)?, 0o600)
    }

    /// Creates a folder and notes which of the folders above it did not exist.
    pub fn create_folder(&mut self, folder: &Path) -> io::Result<()> {
        let missing: Vec<PathBuf> =
            folder.ancestors().take_while(|path| !path.exists()).map(Path::to_owned).collect();
        std::fs::create_dir_all(folder)?;
        self.folders.extend(missing.into_iter().rev());
        Ok(())
    }

    /// Removes the noted folders that are empty.
    pub fn remove_folders(&mut self) {
        for folder in self.folders.drain(..).rev() {
            // What is not empty holds something of the user by now.
            let _ = std::fs::remove_dir(folder);
        }
    }

    /// Notes that a file or a list is new, or returns whether it was.
    pub fn note(list: &mut Vec<PathBuf>, path: &Path) {
        if !list.iter().any(|noted| noted == path) {
            list.push(path.to_owned());
        }
    }

    /// Removes a note. Returns whether there was one.
    pub fn take(list: &mut Vec<PathBuf>, path: &Path) -> bool {
        let count = list.len();
        list.retain(|noted| noted != path);
        list.len() < count
    }
}
