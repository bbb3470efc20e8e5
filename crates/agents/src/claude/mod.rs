//! Claude Code as a backend: the real interactive `claude`, kept warm in a pseudo-terminal.
//!
//! [`ClaudeBackend::complete`] takes a whole conversation. It finds the live process that has just
//! finished the same history by the fingerprint of that history, and types only the new prompt. Answers
//! are read from the transcript file, never from the screen.
//!
//! - Transcript side: [`hob_transcript::claude`] reads records, assembles turns and writes a history for
//!   `--resume`; [`transcript_tail`] follows a transcript file.
//! - Terminal side: [`input`] makes a prompt safe to type, [`screen`] recognises what is shown.
//! - [`cost`] reads what a process in a terminal has cost.
//! - [`terminal_session`] is one process in a terminal, [`stream_session`] one without, [`starter`] starts
//!   them, [`process_list`] lists all of them, [`pool`] holds the idle ones, [`turn_output`] is what a turn
//!   has said, [`backend`] puts everything together.

mod argument_files;
mod backend;
mod config;
mod cost;
mod counts;
mod error;
pub(crate) mod input;
mod interrupt;
mod launch_spec;
mod options;
pub(crate) mod pipes;
mod pool;
mod process;
mod process_list;
mod profile;
mod request;
pub mod screen;
mod starter;
mod stream_session;
mod terminal_session;
mod tidy_input;
mod transcript_file;
mod transcript_tail;
mod turn_output;

pub(crate) use argument_files::ArgumentFiles;
pub use request::{AnswerCheck, CONTINUE_PROMPT, CompletionRequest};
pub(crate) use terminal_session::{Launch, TerminalSession, TurnEnd, TurnTimeouts};
pub(crate) use transcript_file::TranscriptFile;
pub use transcript_tail::TranscriptWatcher;

pub use backend::{ClaudeBackend, Completion};
pub use config::{ConfigFolder, prepare_own_folder};
pub use cost::{CostMeter, FirstCost};
pub use counts::{BackendFigures, Origin};
pub use error::BackendError;
pub use hob_transcript::claude::{
    Event, PausedTurn, TurnResult, Usage, synthesize_turn_messages, transcript_path,
};
pub use launch_spec::temporary_scope;
pub use launch_spec::{LaunchSpec, LaunchSpecProvider, SandboxedLauncher};
pub use options::{BackendOptions, HistoryMode, LateCost};
pub use process_list::ProcessInfo;
pub(crate) use profile::{ArgumentPaths, STREAM_ARGUMENTS};
pub use profile::{ClaudeTransport, Profile};
