//! Transcripts, as agents write them.

use hob_transcript::claude::{LiveRecord, TurnReader, echoes, last_text, synthesize_turn_messages};
use hob_transcript::{
    CursorChat, CursorChatRoot, CursorConversation, CursorMessage, ParsedSession, ReadProgress,
    RecordedClient, TranscriptTurn, ZedThread, add_cursor_chat_message, parse_chunk,
    parse_document,
};
use serde_json::Value;

/// How many times as long as its transcript the text of all turns may be. A byte that is no character becomes three, and
/// a reader may join what it has read.
const MAX_GROWTH: usize = 8;

/// Reads Claude Code's transcript for capture.
pub fn claude_transcript(bytes: &[u8]) {
    read_lines(bytes, Some(RecordedClient::Claude));
}

/// Reads a rollout of Codex.
pub fn codex_transcript(bytes: &[u8]) {
    read_lines(bytes, Some(RecordedClient::Codex));
}

/// Reads transcripts of all other clients: lines, documents, and values of databases.
pub fn other_transcripts(bytes: &[u8]) {
    let clients = [
        RecordedClient::Gemini,
        RecordedClient::Copilot,
        RecordedClient::Qwen,
        RecordedClient::Goose,
        RecordedClient::Entire,
    ];
    for client in [None].into_iter().chain(clients.map(Some)) {
        read_lines(bytes, client);
    }
    read_values(bytes);
    let Some(document) = parse_document(bytes) else { return };
    let turns = document.sessions.iter().flat_map(|session| &session.turns);
    check_growth(turns, bytes);
    assert_eq!(parse_document(bytes), Some(document), "a document is read alike twice");
}

/// Reads values of Cursor's and Zed's databases.
fn read_values(bytes: &[u8]) {
    if let Some(root) = CursorChatRoot::parse(bytes) {
        assert!(root.messages.iter().all(|id| id.len() == 64), "ids are digests");
    }
    CursorChat::parse(&String::from_utf8_lossy(bytes));
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
    if let Some(conversation) = CursorConversation::parse(&value) {
        check_growth(conversation.contained.iter().filter_map(|one| one.turn.as_ref()), bytes);
    }
    if let Some(CursorMessage { turn: Some(turn), .. }) = CursorMessage::parse(&value) {
        check_growth([&turn].into_iter(), bytes);
    }
    if let Some(thread) = ZedThread::parse(&value) {
        check_growth(thread.session.turns.iter(), bytes);
    }
    let mut chat = ParsedSession::default();
    add_cursor_chat_message(&mut chat, &value);
    check_growth(chat.turns.iter(), bytes);
}

/// Reads Claude Code's transcript for the live backend.
pub fn claude_live(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut reader = TurnReader::default();
    let mut events = Vec::new();
    for line in text.lines() {
        let Some(record) = LiveRecord::parse(line) else { continue };
        assert_eq!(&*record.raw, line.trim(), "a record keeps its line");
        events.extend(reader.push(vec![record]).into_iter().map(|(event, _)| event));
    }
    reader.finish();
    assert!(reader.end().is_some(), "a finished turn has an end");
    synthesize_turn_messages(&events);
    echoes(&events);
    last_text(&events);
}

/// Reads a transcript in one piece, and in two that are cut in the middle of a line.
fn read_lines(bytes: &[u8], client: Option<RecordedClient>) {
    let start = || ReadProgress { client, ..ReadProgress::default() };
    let mut progress = start();
    let whole = parse_chunk(bytes, &mut progress);
    let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    assert_eq!(whole.consumed, complete, "the complete lines are consumed");
    check_growth(whole.turns.iter(), bytes);
    let saved = serde_json::to_vec(&progress).expect("the progress can be saved");
    let loaded: ReadProgress = serde_json::from_slice(&saved).expect("and loaded");
    assert_eq!(loaded, ReadProgress { work: Vec::new(), ..progress.clone() });

    let mut progress = start();
    let first = parse_chunk(&bytes[..bytes.len() / 2], &mut progress);
    let second = parse_chunk(&bytes[first.consumed..], &mut progress);
    assert_eq!(first.consumed + second.consumed, complete, "no line is skipped or read twice");
}

fn check_growth<'a>(turns: impl Iterator<Item = &'a TranscriptTurn>, bytes: &[u8]) {
    let length: usize = turns.map(|turn| turn.text.len()).sum();
    assert!(length <= MAX_GROWTH * bytes.len(), "{length} bytes of text from {}", bytes.len());
}
