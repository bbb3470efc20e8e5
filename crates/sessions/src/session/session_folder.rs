//! The folder a session works in, and the marker of the last turn that ran there.
//!
//! In a cluster the folder may exist on one node only. The marker lies next to the folders that Hob
//! makes, so it is shared between nodes exactly where they are.

use std::io;
use std::path::{Path, PathBuf};

use hob_files::owned;

use super::context::TURN_MARKERS;
use super::handle::SessionHandle;

/// Where a session works on this node.
pub(super) struct SessionFolder {
    pub path: PathBuf,
    /// Whether Hob made the folder for this session, here or on another node.
    is_own: bool,
    is_shared: bool,
    session: String,
}

/// Why a session cannot work in its folder.
pub(super) enum FolderError {
    /// The folder is gone, or another one has taken its place.
    Missing,
    Failed(io::Error),
}

impl From<io::Error> for FolderError {
    fn from(error: io::Error) -> FolderError {
        FolderError::Failed(error)
    }
}

impl SessionFolder {
    /// Finds the session's folder. One that another node made and does not share is replaced by one
    /// of this node.
    pub fn of(handle: &SessionHandle, workspaces: &Path) -> SessionFolder {
        let stored = PathBuf::from(&handle.setup.cwd);
        let local = workspaces.join(handle.id.as_str());
        let is_own = stored.file_name() == local.file_name();
        let is_shared = handle.is_shared();
        let is_elsewhere = is_shared && !stored.is_dir();
        let path = if is_elsewhere && is_own { local } else { stored };
        SessionFolder { path, is_own, is_shared, session: handle.id.to_string() }
    }

    /// Makes the folder if it is one of Hob's own, else checks that it is still the one that was
    /// chosen.
    pub fn prepare(&self, workspaces: &Path) -> Result<(), FolderError> {
        if self.path.starts_with(workspaces) {
            return Ok(owned::create_dir_all(&self.path)?);
        }
        // Someone may have replaced the folder by a link that leads outside of the allowed folders.
        let is_same = |real: PathBuf| real == self.path && real.is_dir();
        match self.path.canonicalize().is_ok_and(is_same) {
            true => Ok(()),
            false => Err(FolderError::Missing),
        }
    }

    /// Returns whether the folder is missing here and may exist on another node.
    pub fn is_elsewhere(&self) -> bool {
        self.is_shared && !self.path.is_dir()
    }

    /// Returns the number of the last turn that ran with this folder, as far as it is recorded.
    pub fn last_turn(&self) -> Option<u32> {
        owned::read_to_string(self.marker()?).ok()?.trim().parse().ok()
    }

    /// Records the last turn that ran with this folder, in a cluster only.
    pub fn write_last_turn(&self, turn: u32) -> io::Result<()> {
        let Some(path) = self.marker() else { return Ok(()) };
        path.parent().map(owned::create_dir_all).transpose()?;
        hob_files::write_over_unsynced(&path, turn.to_string().as_bytes(), 0o644)
    }

    fn marker(&self) -> Option<PathBuf> {
        let workspaces = self.path.parent().filter(|_| self.is_own && self.is_shared)?;
        Some(workspaces.join(TURN_MARKERS).join(&self.session))
    }
}
