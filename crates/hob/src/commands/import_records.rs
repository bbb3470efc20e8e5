//! The records that `hob import` reads: from a file of any known client to turns.

use std::io;
use std::path::{Path, PathBuf};

use hob_domain::memory::TurnSource;
use hob_memory::{
    CaptureBatch, TranscriptUpdate, folder_of_record, locate_project, read_all, read_document,
    read_memory_file, read_opencode_session,
};
use hob_store::ForeignError;
use hob_transcript::{RecordFile, RecordedClient};

use super::import_databases::read_database;

/// Why a file was not imported.
#[derive(Debug)]
pub enum Unread {
    /// It has no format that Hob knows, or nothing was said in it.
    Unknown,
    Failed(String),
}

impl Unread {
    /// Returns the reason in words.
    pub fn reason(&self) -> String {
        match self {
            Unread::Unknown => "unknown format or no turns".to_owned(),
            Unread::Failed(reason) => reason.clone(),
        }
    }
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Unread {
        match error.kind() {
            io::ErrorKind::InvalidData => Unread::Unknown,
            _ => Unread::Failed(error.to_string()),
        }
    }
}

impl From<ForeignError> for Unread {
    fn from(error: ForeignError) -> Unread {
        Unread::Failed(error.to_string())
    }
}

/// The folders in which clients record, by their real paths. Agents in a sandbox cannot write there.
pub struct ClientFolders(Vec<PathBuf>);

impl ClientFolders {
    pub fn new(folders: impl Iterator<Item = PathBuf>) -> ClientFolders {
        ClientFolders(folders.filter_map(|folder| folder.canonicalize().ok()).collect())
    }

    /// Returns the source of the turns in a file. Agents may have written a file elsewhere, such as one in a repository.
    pub fn source_of(&self, path: &Path) -> TurnSource {
        let real = path.canonicalize().unwrap_or_default();
        match self.0.iter().any(|folder| real.starts_with(folder)) {
            true => TurnSource::Import,
            false => TurnSource::Repository,
        }
    }
}

/// Reads the sessions of a file.
pub fn read_records(path: &Path) -> Result<Vec<TranscriptUpdate>, Unread> {
    Ok(match RecordFile::of_named(path) {
        RecordFile::Lines => vec![read_all(path, None)?],
        RecordFile::Document => read_document(path, None)?,
        RecordFile::OpencodeSession => vec![read_opencode_session(path)?],
        RecordFile::Database(kind) => read_database(path, kind)?,
        RecordFile::MemoryFile(client) => vec![read_memory_file(path, client)?],
    })
}

/// Returns whether a file's size and time tell that it has not changed. New rows of a database are
/// in its log, so the file itself does not tell.
pub fn shows_changes(path: &Path) -> bool {
    !matches!(RecordFile::of_named(path), RecordFile::Database(_))
}

/// Returns the turns of a session as they are imported.
pub fn batch(path: &Path, update: TranscriptUpdate, source: TurnSource) -> CaptureBatch {
    let folder = update.cwd.map(PathBuf::from);
    let folder = folder.or_else(|| folder_of_record(path, update.client?));
    let folder = folder.or_else(|| path.parent().map(PathBuf::from));
    CaptureBatch {
        session: update.session,
        place: locate_project(&folder.unwrap_or_else(|| PathBuf::from("/"))),
        client: update.client.map_or("unknown", RecordedClient::as_str).to_owned(),
        source,
        turns: update.turns,
    }
}
