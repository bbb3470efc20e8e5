//! The transcripts that coding agents write: Claude Code's JSONL files and Codex's rollouts.
//!
//! The crate is pure: it reads bytes that a caller has loaded, and it knows no files, processes or
//! clocks. Parsing is tolerant and incremental: it returns what it could read, counts what it
//! could not, and continues where it stopped.

mod claude;
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

pub use client::Client;
pub use progress::{CodexProgress, Given, Progress, Source};
pub use reader::{Reading, read};
pub use turn::ReadTurn;
