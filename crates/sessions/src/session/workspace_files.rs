//! The files that an agent leaves in its session's own folder.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hob_domain::Timestamp;
use hob_domain::session::Session;
use hob_files::{Folder, files_below};

use crate::files::on_disk;

/// The most entries of a folder that are read.
const MAX_ENTRIES: usize = 20_000;
/// How many folders inside each other are read.
const MAX_DEPTH: usize = 16;

/// The own folder of a session on this node.
#[derive(Debug, Clone)]
pub struct SessionWorkspace {
    workspaces: PathBuf,
    name: PathBuf,
}

/// A file in the own folder of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceFile {
    /// The path below the folder.
    pub path: String,
    pub bytes: u64,
    /// When the file changed last.
    pub changed_at: Timestamp,
}

impl SessionWorkspace {
    /// Returns the folder that Hob made for a session, here or on another node. A session that works in a folder of the
    /// caller has none.
    pub(super) fn of(workspaces: &Path, session: &Session) -> Option<SessionWorkspace> {
        let name = OsStr::new(session.id.as_str());
        let is_own = Path::new(&session.setup.cwd).file_name() == Some(name);
        is_own.then(|| SessionWorkspace { workspaces: workspaces.to_owned(), name: name.into() })
    }

    /// Returns the folder's path.
    pub fn path(&self) -> PathBuf {
        self.workspaces.join(&self.name)
    }

    /// Returns the regular files in the folder, in the order of their paths. Hidden ones are left out.
    pub async fn files(&self) -> io::Result<Vec<WorkspaceFile>> {
        let workspace = self.clone();
        on_disk(move || workspace.list()).await
    }

    /// Opens a file. Returns `None` if it has changed since it was listed.
    pub async fn open(&self, file: &WorkspaceFile) -> io::Result<Option<File>> {
        let (workspace, file) = (self.clone(), file.clone());
        on_disk(move || workspace.open_unchanged(&file)).await
    }

    fn folder(&self) -> io::Result<Option<Folder>> {
        match Folder::open(&self.workspaces).and_then(|folder| folder.folder(&self.name)) {
            Ok(folder) => Ok(Some(folder)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn list(&self) -> io::Result<Vec<WorkspaceFile>> {
        let Some(folder) = self.folder()? else { return Ok(Vec::new()) };
        let files = files_below(&folder, MAX_ENTRIES, MAX_DEPTH)?.into_iter().filter_map(|found| {
            let path = found.path.to_str()?.to_owned();
            let changed_at = Timestamp::try_from(found.changed_at).ok()?;
            Some(WorkspaceFile { path, bytes: found.bytes, changed_at })
        });
        Ok(files.collect())
    }

    fn open_unchanged(&self, wanted: &WorkspaceFile) -> io::Result<Option<File>> {
        let Some(folder) = self.folder()? else { return Ok(None) };
        // A file that has become a link or a folder has changed, too.
        let Ok(file) = folder.file(Path::new(&wanted.path)) else { return Ok(None) };
        let status = file.metadata()?;
        let changed_at = i32::try_from(status.ctime_nsec())
            .ok()
            .and_then(|nanoseconds| Timestamp::new(status.ctime(), nanoseconds).ok());
        let is_unchanged = status.len() == wanted.bytes && changed_at == Some(wanted.changed_at);
        Ok(is_unchanged.then_some(file))
    }
}
