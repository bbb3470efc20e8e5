//! The folder a session works in, and the marker of the last turn that ran there.
//!
//! In a cluster the folder may exist on one node only. The marker lies next to the folders that Hob
//! makes, so it is shared between nodes exactly where they are.

use std::io;
use std::path::{Path, PathBuf};

use hob_domain::{AgentName, AppName, StoreError};
use hob_files::owned;

use super::context::TURN_MARKERS;
use super::error::SessionError;
use super::handle::SessionHandle;
use super::options::SessionsOptions;

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
        // A home that was moved or restored from a backup must not work in the folders of the earlier one.
        let is_elsewhere = match is_shared {
            true => !stored.is_dir(),
            false => !is_in(&stored, workspaces),
        };
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

/// Returns whether a folder lies directly in another, whose path may lead through links.
fn is_in(folder: &Path, parent: &Path) -> bool {
    let Some(above) = folder.parent() else { return false };
    let real = |path: &Path| path.canonicalize().ok();
    above == parent || real(above).is_some_and(|above| Some(above) == real(parent))
}

/// Returns the folder that the caller chose, if any. The owner may choose any folder outside of
/// Hob's home.
pub(super) fn chosen_folder(
    options: &SessionsOptions,
    app: &AppName,
    agent: &AgentName,
    cwd: Option<&str>,
) -> Result<Option<PathBuf>, SessionError> {
    let Some(cwd) = cwd else { return Ok(None) };
    let sandbox = &options.runtime.sandbox;
    let folder = match app.is_owner() {
        true => check_folder(cwd, &["/".into()], &sandbox.home),
        false => check_folder(cwd, &options.roots, &sandbox.home),
    }?;
    let is_open = |agent| sandbox.may_work_in(app, agent, &folder);
    if options.agents.get(agent).is_some_and(|agent| !is_open(agent)) {
        let is_above = sandbox.user_home().is_some_and(|home| {
            Path::new(home).canonicalize().is_ok_and(|home| home.starts_with(&folder))
        });
        let advice = match is_above {
            true => "choose a folder inside the home",
            false => "`writable` in the agent's entry opens it",
        };
        let text = format!("{cwd:?} holds settings or credentials of the user; {advice}");
        return Err(SessionError::Folder(text));
    }
    Ok(Some(folder))
}

/// Checks a folder that a caller chose: it must exist, and its real path must lie inside of a root
/// and outside of Hob's home.
fn check_folder(cwd: &str, roots: &[PathBuf], home: &Path) -> Result<PathBuf, SessionError> {
    if !Path::new(cwd).is_absolute() {
        return Err(SessionError::Folder(format!("{cwd:?} is not an absolute path")));
    }
    // A missing folder and one outside of the roots get the same answer: callers learn nothing
    // about the rest.
    let outside = || SessionError::Folder(format!("{cwd:?} is not a folder inside sessions.roots"));
    let real = Path::new(cwd).canonicalize().map_err(|_| outside())?;
    let inside = |root: &PathBuf| root.canonicalize().is_ok_and(|root| real.starts_with(root));
    let in_home = home.canonicalize().is_ok_and(|home| real.starts_with(home));
    if real.is_dir() && !in_home && roots.iter().any(inside) { Ok(real) } else { Err(outside()) }
}

/// Makes the folder of a session that has none of its caller.
pub(super) fn make_folder(path: &Path) -> Result<PathBuf, SessionError> {
    let made = owned::create_dir_all(path).and_then(|()| path.canonicalize());
    made.map_err(|error| {
        StoreError::Failed(format!("cannot make the session's folder: {error}")).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_folder_must_lie_in_a_root() {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("root");
        std::fs::create_dir_all(root.join("project")).unwrap();
        std::fs::create_dir_all(outside.path().join("root-not")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.join("out")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        let roots = [root.clone()];
        let home = root.join("home");
        std::fs::create_dir_all(home.join("inside")).unwrap();
        let check = |path: PathBuf| check_folder(path.to_str().unwrap(), &roots, &home);
        assert_eq!(check(root.clone()).unwrap(), root.canonicalize().unwrap());
        assert!(check(root.join("project")).is_ok());
        assert!(check(root.join("project/../project")).is_ok());
        for bad in
            ["out", "out/root-not", "../root-not", "file", "missing", "..", "home", "home/inside"]
        {
            assert!(matches!(check(root.join(bad)), Err(SessionError::Folder(_))), "{bad}");
        }
        assert!(matches!(check_folder("project", &roots, &home), Err(SessionError::Folder(_))));
        assert!(matches!(check_folder("/", &[], &home), Err(SessionError::Folder(_))));
    }
}
