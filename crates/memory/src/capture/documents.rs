//! Reads records that are no growing lines: documents, and what is in databases.

use std::io;
use std::path::{Path, PathBuf};

use hob_domain::Timestamp;
use hob_domain::json_size::has_too_many_values;
use hob_domain::memory::TurnKey;
use hob_files::{Folder, read_regular};
use hob_transcript::{
    OpencodeMessage, ParsedSession, RecordedClient, document_client, parse_document, parse_export,
};
use serde_json::Value;

use super::follow::{TranscriptUpdate, neighbour, session_of_path};
use super::mark::TranscriptMark;

/// Longer documents are not read. A document must fit in memory.
const MAX_DOCUMENT_BYTES: u64 = 64 << 20;
/// Longer files of OpenCode's messages and parts are not read.
const MAX_PART_BYTES: u64 = 8 << 20;
/// How many messages of a session, and parts of a message, are read at most.
const MAX_PARTS: usize = 20_000;
/// The longest name of a project's folder.
const MAX_PATH_BYTES: u64 = 4096;

/// Reads all sessions of a document. Fails with [`io::ErrorKind::InvalidData`] if its format is not
/// known.
pub fn read_document(path: &Path, session: Option<&str>) -> io::Result<Vec<TranscriptUpdate>> {
    let bytes = read_regular(path, MAX_DOCUMENT_BYTES)?;
    if has_too_many_values(&bytes) {
        return Err(io::Error::other("the document has too many values"));
    }
    let document = parse_document(&bytes).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "the format of the document is not known")
    })?;
    let modified = modified(path);
    let client = document_client(path, document.client);
    let read = |parsed: ParsedSession| {
        let name = session.map_or_else(|| session_name(path, client, &parsed), str::to_owned);
        let task = name.strip_prefix("cline-").or_else(|| name.strip_prefix("roo-"));
        let started = task.and_then(|task| task.parse().ok());
        let started = started.and_then(|at| Timestamp::from_millisecond(at).ok());
        session_update(name, client, parsed, started.unwrap_or(modified))
    };
    Ok(document.sessions.into_iter().map(read).collect())
}

/// Reads a session that an earlier OpenCode stored as files. `path` is `storage/session/…/ID.json`.
pub fn read_opencode_session(path: &Path) -> io::Result<TranscriptUpdate> {
    let info = json(&read_regular(path, MAX_PART_BYTES)?)?;
    let id = info["id"].as_str().unwrap_or_default();
    let storage = path.ancestors().nth(3).filter(|_| is_name(id));
    let storage = Folder::open(storage.ok_or(io::ErrorKind::InvalidData)?)?;
    let mut messages = Vec::new();
    // The session of a sub-agent is no conversation.
    if info["parentID"].is_null() {
        for message in objects(&storage, &Path::new("message").join(id))? {
            let name = message["id"].as_str().unwrap_or_default().to_owned();
            let parts = match is_name(&name) {
                true => objects(&storage, &Path::new("part").join(&name))?,
                false => Vec::new(),
            };
            messages.push(OpencodeMessage { id: name, info: message, parts });
        }
    }
    messages.sort_by_key(|message| message.info["time"]["created"].as_i64());
    Ok(opencode_update(id, info["directory"].as_str(), &messages, modified(path)))
}

/// Returns the turns of a session of OpenCode. `modified` is the time of messages without one.
pub fn opencode_update(
    session: &str,
    directory: Option<&str>,
    messages: &[OpencodeMessage],
    modified: Timestamp,
) -> TranscriptUpdate {
    // The next import reads an answer that is being written now.
    let complete = messages.iter().filter(|message| message.is_complete());
    let parsed = ParsedSession {
        session: None,
        cwd: directory.map(str::to_owned),
        turns: complete.filter_map(OpencodeMessage::turn).collect(),
    };
    session_update(session.to_owned(), RecordedClient::Opencode, parsed, modified)
}

/// Returns the turns of a session as `opencode export` prints it, and as Hob's plugin in OpenCode sends it. Returns
/// `None` if it is something else. `now` is the time of messages without one.
pub fn opencode_export_update(export: &Value, now: Timestamp) -> Option<TranscriptUpdate> {
    let parsed = parse_export(export)?;
    let session = parsed.session.clone()?;
    Some(session_update(session, RecordedClient::Opencode, parsed, now))
}

/// Returns the folder that a record belongs to, if the record itself does not name it.
pub fn folder_of_record(path: &Path, client: RecordedClient) -> Option<PathBuf> {
    match client {
        // `REPOSITORY/.aider.chat.history.md`
        RecordedClient::Aider => path.parent().map(Path::to_owned),
        // `REPOSITORY/.specstory/history/NAME.md`
        RecordedClient::Specstory => path.ancestors().nth(3).map(Path::to_owned),
        // `ID.json` next to `ID.messages.json`
        RecordedClient::Cline => {
            let id = path.file_name()?.to_str()?.strip_suffix(".messages.json")?;
            let manifest = neighbour(path, &format!("{id}.json"))?;
            Some(PathBuf::from(manifest["cwd"].as_str()?)).filter(|cwd| cwd.is_absolute())
        }
        // `PROJECT/.project_root` next to `PROJECT/chats/NAME`
        RecordedClient::Gemini => {
            let root = path.ancestors().nth(2)?.join(".project_root");
            let root = String::from_utf8(read_regular(&root, MAX_PATH_BYTES).ok()?).ok()?;
            Some(PathBuf::from(root.trim())).filter(|root| root.is_absolute())
        }
        _ => None,
    }
}

/// Identifies the turns of a whole session. `started` is the time of its first turns if they have none.
pub fn session_update(
    session: String,
    client: RecordedClient,
    parsed: ParsedSession,
    started: Timestamp,
) -> TranscriptUpdate {
    let mut mark = TranscriptMark::default();
    let mut last = started;
    let turns = parsed.turns.into_iter().map(|turn| mark.number(&session, turn, &mut last));
    let turns = turns.collect();
    let (cwd, client) = (parsed.cwd, Some(client));
    TranscriptUpdate { session, cwd, client, turns, ..TranscriptUpdate::default() }
}

/// Returns the name of a session. A name that is no random id is joined with the file's.
fn session_name(path: &Path, client: RecordedClient, parsed: &ParsedSession) -> String {
    match (client, &parsed.session) {
        (RecordedClient::Aider, Some(started)) => {
            let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let digest = TurnKey::of(&["aider", &real.to_string_lossy()]).to_hex();
            let started: String = started.chars().filter(char::is_ascii_digit).collect();
            format!("aider-{}-{started}", &digest[..8])
        }
        // A task is known by its folder.
        (RecordedClient::Cline | RecordedClient::Roo, None) => {
            let task = path.parent().and_then(Path::file_name).unwrap_or_default();
            format!("{}-{}", client.as_str(), task.to_string_lossy())
        }
        (_, Some(session)) => session.clone(),
        (_, None) => session_of_path(path),
    }
}

fn modified(path: &Path) -> Timestamp {
    let modified = std::fs::symlink_metadata(path).and_then(|metadata| metadata.modified()).ok();
    modified.and_then(|at| Timestamp::try_from(at).ok()).unwrap_or_default()
}

/// Reads the JSON files of a folder in the order of their names, which is that of their creation.
fn objects(storage: &Folder, below: &Path) -> io::Result<Vec<Value>> {
    let folder = match storage.folder(below) {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = folder.names(MAX_PARTS)?;
    names.retain(|name| Path::new(name).extension().is_some_and(|ending| ending == "json"));
    names.sort();
    names.iter().map(|name| json(&folder.read(Path::new(name), MAX_PART_BYTES)?)).collect()
}

fn json(bytes: &[u8]) -> io::Result<Value> {
    if has_too_many_values(bytes) {
        return Err(io::Error::other("the file has too many values"));
    }
    serde_json::from_slice(bytes).map_err(io::Error::from)
}

/// Returns whether an id may be the name of a folder.
fn is_name(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
