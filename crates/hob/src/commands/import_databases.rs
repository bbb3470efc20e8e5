//! The databases that `hob import` reads: from the rows of a client to turns.

use std::collections::HashSet;
use std::path::Path;

use hob_domain::Timestamp;
use hob_domain::json_size::has_too_many_values;
use hob_files::read_regular;
use hob_memory::{TranscriptUpdate, opencode_update, session_update};
use hob_store::{
    CursorChatDatabase, CursorDatabase, ForeignError, GooseDatabase, OpencodeDatabase, ZedDatabase,
};
use hob_transcript::{
    CursorChat, CursorChatRoot, CursorConversation, CursorMessage, GooseMessage, OpencodeMessage,
    ParsedSession, RecordDatabase, RecordedClient, ZedThread, add_cursor_chat_message,
    goose_session, zed_folder,
};
use serde_json::Value;

/// Longer descriptions of a chat are not read.
const MAX_DESCRIPTION_BYTES: u64 = 1 << 20;
/// How many bytes of threads are read from one database of Zed: a small file can be decompressed to any number of them.
const MAX_ZED_BYTES: usize = 1 << 30;

/// Reads the sessions of a database.
pub fn read_database(
    path: &Path,
    kind: RecordDatabase,
) -> Result<Vec<TranscriptUpdate>, ForeignError> {
    match kind {
        RecordDatabase::Opencode => read_opencode(path),
        RecordDatabase::Goose => read_goose(path),
        RecordDatabase::Cursor => read_cursor(path),
        RecordDatabase::CursorChat => read_cursor_chat(path).map(|chat| vec![chat]),
        RecordDatabase::Zed => read_zed(path),
    }
}

fn read_opencode(path: &Path) -> Result<Vec<TranscriptUpdate>, ForeignError> {
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

fn read_goose(path: &Path) -> Result<Vec<TranscriptUpdate>, ForeignError> {
    let database = GooseDatabase::open(path)?;
    let mut updates = Vec::new();
    for session in database.sessions()? {
        let mut parsed = ParsedSession { cwd: Some(session.folder), ..ParsedSession::default() };
        let mut unreadable = 0;
        for row in database.messages(&session.id)? {
            let Some(content) = json(row.content.as_bytes()) else {
                unreadable += 1;
                continue;
            };
            let metadata = json(row.metadata.as_bytes()).unwrap_or_default();
            let (role, created) = (row.role.as_str(), row.created);
            let message = GooseMessage { role, content: &content, created, metadata: &metadata };
            parsed.turns.extend(message.turn());
        }
        let name = goose_session(&session.id, &session.created);
        let update = session_update(name, RecordedClient::Goose, parsed, Timestamp::now());
        updates.push(TranscriptUpdate { unreadable, ..update });
    }
    Ok(updates)
}

fn read_cursor(path: &Path) -> Result<Vec<TranscriptUpdate>, ForeignError> {
    let database = CursorDatabase::open(path)?;
    let mut found: Vec<(String, CursorConversation)> = Vec::new();
    let mut unknown = 0;
    for id in database.conversations()? {
        let value = database.conversation(&id)?.and_then(|bytes| json(&bytes));
        match value.as_ref().and_then(CursorConversation::parse) {
            Some(conversation) => found.push((id, conversation)),
            None => unknown += 1,
        }
    }
    if found.is_empty() && unknown > 0 {
        let reason = format!("none of its {unknown} conversations has a known format");
        return Err(ForeignError::Unknown { program: "Cursor", reason });
    }
    let children: HashSet<String> =
        found.iter().flat_map(|(_, conversation)| conversation.children.iter().cloned()).collect();
    let mut updates = Vec::new();
    for (id, conversation) in found {
        // What an agent says to another is no conversation.
        if !conversation.is_child && !children.contains(&id) {
            updates.push(read_cursor_conversation(&database, id, conversation)?);
        }
    }
    if let Some(first) = updates.first_mut() {
        first.unreadable += unknown;
    }
    Ok(updates)
}

fn read_cursor_conversation(
    database: &CursorDatabase,
    id: String,
    conversation: CursorConversation,
) -> Result<TranscriptUpdate, ForeignError> {
    let mut parsed = ParsedSession { cwd: conversation.cwd, ..ParsedSession::default() };
    let mut unreadable = 0;
    let mut add = |parsed: &mut ParsedSession, message: Option<CursorMessage>| match message {
        Some(message) => {
            parsed.cwd = parsed.cwd.take().or(message.cwd);
            parsed.turns.extend(message.turn);
        }
        None => unreadable += 1,
    };
    for message in conversation.contained {
        add(&mut parsed, Some(message));
    }
    for name in &conversation.messages {
        let value = database.message(&id, name)?.and_then(|bytes| json(&bytes));
        add(&mut parsed, value.as_ref().and_then(CursorMessage::parse));
    }
    let started = conversation.created.unwrap_or_else(Timestamp::now);
    let update = session_update(id, RecordedClient::Cursor, parsed, started);
    Ok(TranscriptUpdate { unreadable, ..update })
}

fn read_cursor_chat(path: &Path) -> Result<TranscriptUpdate, ForeignError> {
    let unknown = |reason: &str| {
        let reason = reason.to_owned();
        ForeignError::Unknown { program: "Cursor", reason }
    };
    let database = CursorChatDatabase::open(path)?;
    let description = database.description()?.and_then(|bytes| String::from_utf8(bytes).ok());
    let chat = description.as_deref().and_then(CursorChat::parse);
    let chat = chat.ok_or_else(|| unknown("it does not describe its chat"))?;
    let root = database.blob(&chat.root)?.and_then(|bytes| CursorChatRoot::parse(&bytes));
    let root = root.ok_or_else(|| unknown("it does not list its messages"))?;
    let mut parsed = ParsedSession { cwd: root.cwd, ..ParsedSession::default() };
    let mut unreadable = 0;
    for id in &root.messages {
        let message = database.blob(id)?.and_then(|bytes| json(&bytes));
        if !message.is_some_and(|message| add_cursor_chat_message(&mut parsed, &message)) {
            unreadable += 1;
        }
    }
    if unreadable > 0 && unreadable == root.messages.len() {
        return Err(unknown("none of its messages has a known format"));
    }
    // What an agent says to another is no conversation.
    let meta = read_regular(&path.with_file_name("meta.json"), MAX_DESCRIPTION_BYTES).ok();
    let meta = meta.and_then(|bytes| json(&bytes));
    if meta.is_some_and(|meta| meta["isSubagent"] == true) {
        parsed.turns.clear();
    }
    // `chats/PROJECT/SESSION/store.db`
    let session = path.parent().and_then(Path::file_name).unwrap_or_default();
    let session = session.to_string_lossy().into_owned();
    let started = chat.created.unwrap_or_else(Timestamp::now);
    let update = session_update(session, RecordedClient::Cursor, parsed, started);
    Ok(TranscriptUpdate { unreadable, ..update })
}

fn read_zed(path: &Path) -> Result<Vec<TranscriptUpdate>, ForeignError> {
    let database = ZedDatabase::open(path)?;
    let mut updates = Vec::new();
    let mut unknown = 0;
    let mut read_bytes = 0;
    for row in database.threads()? {
        let data = if read_bytes < MAX_ZED_BYTES { database.data(&row.id)? } else { None };
        read_bytes += data.as_ref().map_or(0, Vec::len);
        let value = data.and_then(|bytes| json(&bytes));
        let Some(thread) = value.as_ref().and_then(ZedThread::parse) else {
            unknown += 1;
            continue;
        };
        // What an agent says to another is no conversation.
        if thread.is_child {
            continue;
        }
        let mut parsed = thread.session;
        parsed.cwd = zed_folder(&row.folders, &row.order).or(parsed.cwd.take());
        let started = thread.started.unwrap_or_else(Timestamp::now);
        let update = session_update(row.id, RecordedClient::Zed, parsed, started);
        updates.push(TranscriptUpdate { unreadable: thread.unknown_messages, ..update });
    }
    if updates.is_empty() && unknown > 0 {
        let reason = format!("none of its {unknown} threads has a known format");
        return Err(ForeignError::Unknown { program: "Zed", reason });
    }
    if let Some(first) = updates.first_mut() {
        first.unreadable += unknown;
    }
    Ok(updates)
}

/// Parses a value that others wrote.
fn json(bytes: &[u8]) -> Option<Value> {
    if has_too_many_values(bytes) {
        return None;
    }
    serde_json::from_slice(bytes).ok()
}
