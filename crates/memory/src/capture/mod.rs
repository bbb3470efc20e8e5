//! Capture: turns on their way into the memory, from hooks, transcripts and deferral files.
//!
//! - [`follow`] reads what is new in a transcript; [`mark`] knows how far, and which turn is which.
//! - [`documents`] reads records that are no growing lines; [`memory_files`] reads notes of agents.
//! - [`batch`] is what is captured; [`prepare`] masks, seals and indexes it for the store.
//! - [`deferral`] writes batches to files for the server; [`backlog`] counts them, [`attempt_file`] the attempts.
//! - [`import`] finds past transcripts; [`project`] resolves the project of a folder.
//! - [`work_words`] keeps what an agent did after a turn as words that the turn is found by.
//! - [`seal`] has the keys by which [`sealed_text`] keeps secrets.

pub mod attempt_file;
pub mod backlog;
pub mod batch;
pub mod deferral;
pub mod documents;
pub mod follow;
pub mod import;
pub mod mark;
pub mod memory_files;
pub mod prepare;
pub mod project;
pub mod seal;
pub mod sealed_text;
mod work_words;
