//! What `hob setup` has changed, so that `hob setup --undo` takes that back and nothing else.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use hob_files::owned;
use hob_transcript::AgentClient;
use serde::{Deserialize, Serialize};

use crate::home::Home;
use crate::hooks::ClientFolders;

const MAX_FILE_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupRecord {
    /// Folders that did not exist before, the outermost first.
    #[serde(default)]
    pub folders: Vec<PathBuf>,
    /// The entries of `hob mcp` in settings files.
    #[serde(default)]
    pub entries: Vec<RecordedEntry>,
    /// The clients into whose settings hooks were added.
    #[serde(default)]
    pub hooks: Vec<RecordedHooks>,
    /// The folder of the service's units.
    #[serde(default)]
    pub unit_folder: Option<PathBuf>,
}

/// Hooks that `hob setup` has added. The variables that name the folders may have other values later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedHooks {
    pub client: AgentClient,
    pub folders: ClientFolders,
}

/// An entry of `hob mcp` that `hob setup` has added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedEntry {
    pub client: AgentClient,
    pub file: PathBuf,
    /// The file did not exist before.
    pub is_new_file: bool,
    /// The file had no list of MCP servers before.
    pub is_new_list: bool,
}

impl SetupRecord {
    /// Reads the record of a home. Without one, nothing was changed.
    pub fn load(home: &Home) -> anyhow::Result<SetupRecord> {
        let path = home.setup_record();
        match hob_files::read_regular(&path, MAX_FILE_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(SetupRecord::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                anyhow::anyhow!(
                    "{} is damaged ({error}), so Hob does not know what `hob setup` changed; restore the file from a backup, or delete it and undo the setup with `hob hooks uninstall` and `hob service uninstall`",
                    path.display()
                )
            }),
        }
    }

    /// Writes the record, or removes it if nothing was changed.
    pub fn save(&self, home: &Home) -> io::Result<()> {
        let path = home.setup_record();
        if *self == SetupRecord::default() {
            return match owned::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        hob_files::write_over(&path, &serde_json::to_vec(self)?, 0o600)
    }

    /// Notes which folders up to this one do not exist.
    pub fn note_missing_folders(&mut self, folder: &Path) {
        let missing: Vec<PathBuf> =
            folder.ancestors().take_while(|path| !path.exists()).map(Path::to_owned).collect();
        self.folders.extend(missing.into_iter().rev());
    }

    /// Removes the noted folders that are empty.
    pub fn remove_folders(&mut self) {
        for folder in std::mem::take(&mut self.folders).into_iter().rev() {
            let is_there = owned::remove_dir(&folder).is_err() && folder.exists();
            // What is not empty holds hooks that are still to be removed, or else something of the user by now.
            if is_there && !self.hooks.is_empty() {
                self.folders.insert(0, folder);
            }
        }
    }

    pub fn entry(&self, file: &Path) -> Option<&RecordedEntry> {
        self.entries.iter().find(|entry| entry.file == file)
    }

    /// Notes an entry before it is written. What was noted about its file before stays true.
    pub fn note_entry(&mut self, entry: RecordedEntry) {
        if self.entry(&entry.file).is_none() {
            self.entries.push(entry);
        }
    }

    pub fn drop_entry(&mut self, file: &Path) {
        self.entries.retain(|entry| entry.file != file);
    }

    /// Returns whether hooks were added to the settings of a client in this folder.
    pub fn has_hooks(&self, client: AgentClient, folders: &ClientFolders) -> bool {
        let is_same = |known: &RecordedHooks| {
            known.client == client && known.folders.folder(client) == folders.folder(client)
        };
        self.hooks.iter().any(is_same)
    }

    pub fn note_hooks(&mut self, client: AgentClient, folders: &ClientFolders) {
        if !self.has_hooks(client, folders) {
            self.hooks.push(RecordedHooks { client, folders: folders.clone() });
        }
    }
}
