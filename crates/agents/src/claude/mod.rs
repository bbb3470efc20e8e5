//! Claude Code as a backend: the real interactive `claude`, kept warm in a pseudo-terminal.
//!
//! [`ClaudeBackend::complete`] takes a whole conversation. The live process that has just said its
//! last word is found by the fingerprint of the history, and only the new text is typed; answers are
//! read from the transcript file, never from the screen.
//!
//! - Transcript side: [`hob_transcript::claude`] reads records, assembles turns and writes a history
//!   for `--resume`; [`tail`] reads a file as it grows.
//! - Terminal side: [`input`] makes a prompt safe to type, [`screen`] reads what is shown.
//! - [`live`] is one process in a terminal, [`stream`] one without, [`list`] all of them, [`pool`] the
//!   idle ones, [`backend`] the whole.

mod backend;
mod config;
mod counts;
mod error;
pub(crate) mod input;
mod list;
mod live;
mod mcp_config;
mod options;
mod outfit;
mod pool;
mod process;
mod request;
mod screen;
mod stream;
mod tail;
mod tidy;

pub(crate) use live::{Launch, Limits, LiveSession, TurnEnd};
pub(crate) use mcp_config::McpConfigs;
pub use request::Request;
pub use tail::Changes;

pub use backend::{ClaudeBackend, Completion};
pub use config::{ConfigFolder, prepare_own_folder};
pub use counts::{BackendFigures, Origin};
pub use error::BackendError;
pub use hob_transcript::claude::{
    Event, TurnResult, Usage, synthesize_turn_messages, transcript_path,
};
pub use list::LiveInfo;
pub use options::{BackendOptions, HistoryMode, Profile, Way};
pub use outfit::temporary_scope;
pub use outfit::{BehindWalls, Outfit, Outfitter};
