//! The transcripts that coding agents write: lines of JSON, documents, and rows of a database.
//!
//! The crate is pure: it reads bytes that a caller has loaded, and it knows no files, processes or
//! clocks. Parsing is tolerant and incremental: it returns what it could read, counts what it
//! could not, and continues where it stopped.
//!
//! - [`parse_chunk`] returns the turns of a transcript of lines, for capture; [`parse_document`]
//!   those of a document. [`OpencodeMessage`], [`GooseMessage`], [`CursorMessage`],
//!   [`add_cursor_chat_message`] and [`ZedThread`] read what is in databases.
//! - [`RECORDS`] lists the clients and the folders of their records.
//! - [`claude`] reads Claude Code's records as they are written, for the live backend, and writes
//!   a history as a transcript that Claude Code can resume.

mod aider;
mod block;
pub mod claude;
mod client;
mod cline;
mod cline_session;
mod codex;
mod codex_work;
mod copilot;
mod cursor;
mod cursor_chat;
mod document;
mod entire;
mod file_uri;
mod gemini;
mod goose;
mod json;
mod memory_file;
mod opencode;
mod parsed_session;
mod progress;
mod qwen;
mod reader;
mod record_file;
mod specstory;
mod turn;
mod work;
mod zed;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_clients;
#[cfg(test)]
mod tests_codex;
#[cfg(test)]
mod tests_editors;
#[cfg(test)]
mod tests_random;
#[cfg(test)]
mod tests_work;

pub use client::{AgentClient, RECORDS, RecordDescription, RecordPlace, RecordedClient};
pub use cursor::{CursorConversation, CursorMessage};
pub use cursor_chat::{CursorChat, CursorChatRoot, add_cursor_chat_message};
pub use document::{ParsedDocument, document_client, parse_document};
pub use goose::{GooseMessage, goose_session};
pub use memory_file::{memory_file_client, memory_file_folder};
pub use opencode::{OpencodeMessage, parse_export};
pub use parsed_session::ParsedSession;
pub use progress::{CodexProgress, CodexSource, ReadProgress, TurnDigest};
pub use reader::{MAX_LINE_BYTES, ParsedChunk, parse_chunk};
pub use record_file::{RecordDatabase, RecordFile};
pub use turn::TranscriptTurn;
pub use work::WorkItem;
pub use zed::{ZedThread, zed_folder};
