//! The records that `hob import` reads: from a file of any known client to turns.

use std::io;
use std::path::{Path, PathBuf};

use hob_domain::Timestamp;
use hob_domain::memory::TurnSource;
use hob_memory::{
    CaptureBatch, TranscriptUpdate, folder_of_record, locate_project, opencode_update, read_all,
    read_document, read_memory_file, read_opencode_session,
};
use hob_store::{ForeignError, OpencodeDatabase};
use hob_transcript::{OpencodeMessage, RecordFile, RecordedClient};
use serde_json::Value;

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

/// Reads the sessions of a file.
pub fn read_records(path: &Path) -> Result<Vec<TranscriptUpdate>, Unread> {
    Ok(match RecordFile::of_named(path) {
        RecordFile::Lines => vec![read_all(path, None)?],
        RecordFile::Document => read_document(path, None)?,
        RecordFile::OpencodeSession => vec![read_opencode_session(path)?],
        RecordFile::OpencodeDatabase => read_opencode_database(path)?,
        RecordFile::MemoryFile(client) => vec![read_memory_file(path, client)?],
    })
}

/// Returns whether a file's size and time tell that it has not changed. New rows of a database are
/// in its log, so the file itself does not tell.
pub fn shows_changes(path: &Path) -> bool {
    RecordFile::of_named(path) != RecordFile::OpencodeDatabase
}

/// Returns the turns of a session as they are imported.
pub fn batch(path: &Path, update: TranscriptUpdate) -> CaptureBatch {
    let folder = update.cwd.map(PathBuf::from);
    let folder = folder.or_else(|| folder_of_record(path, update.client?));
    let folder = folder.or_else(|| path.parent().map(PathBuf::from));
    CaptureBatch {
        session: update.session,
        place: locate_project(&folder.unwrap_or_else(|| PathBuf::from("/"))),
        client: update.client.map_or("unknown", RecordedClient::as_str).to_owned(),
        source: TurnSource::Import,
        turns: update.turns,
    }
}

fn read_opencode_database(path: &Path) -> Result<Vec<TranscriptUpdate>, Unread> {
    let database = OpencodeDatabase::open(path)?;
    let mut updates = Vec::new();
    for session in database.sessions()? {
        let mut messages: Vec<OpencodeMessage> = Vec::new();
        for row in database.parts(&session.id)? {
            let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
            if messages.last().is_none_or(|last| last.id != row.message) {
                let info = parse(&row.message_data);
                messages.push(OpencodeMessage { id: row.message, info, parts: Vec::new() });
            }
            if let Some(message) = messages.last_mut() {
                message.parts.push(parse(&row.part_data));
            }
        }
        let directory = Some(session.directory.as_str());
        updates.push(opencode_update(&session.id, directory, &messages, Timestamp::now()));
    }
    Ok(updates)
}
