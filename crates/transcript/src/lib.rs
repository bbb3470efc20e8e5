//! The transcripts that coding agents write: Claude Code's JSONL files and Codex's rollouts.
//!
//! The crate is pure: it reads bytes that a caller has loaded, and it knows no files, processes or
//! clocks. Parsing is tolerant and incremental: it returns what it could read, counts what it
//! could not, and continues where it stopped.
//!
//! - [`parse_chunk`] returns the turns of a transcript of either client, for capture.
//! - [`claude`] reads Claude Code's records as they are written, for the live backend, and writes
//!   a history as a transcript that Claude Code can resume.

mod block;
pub mod claude;
mod client;
mod codex;
mod json;
mod progress;
mod reader;
mod turn;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_codex;
#[cfg(test)]
mod tests_random;

pub use client::{AgentClient, ClientDescription};
pub use progress::{CodexProgress, CodexSource, ReadProgress, TurnDigest};
pub use reader::{ParsedChunk, parse_chunk};
pub use turn::TranscriptTurn;
