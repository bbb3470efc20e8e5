//! The long-term memory: capture, redaction, recall.
//!
//! Only this crate ranks. A store returns candidates; their order and what fits the budget are
//! decided here, so that every store gives the same answers.
//!
//! From the ground up: [`redact`] and `text` know texts, `embed` makes vectors, `capture` prepares
//! turns, `recall` ranks, and the [`Engine`] puts them over a store. [`Drain`] feeds it deferred
//! captures.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make and look at files"))]

mod capture;
mod drain;
mod embed;
mod engine;
mod forget_requests;
mod indexer;
mod recall;
pub mod redact;
mod text;

pub use capture::backlog::{Backlog, backlog, waiting_turns};
pub use capture::batch::{CaptureBatch, RawTurn};
pub use capture::deferral;
pub use capture::documents::{
    folder_of_record, opencode_export_update, opencode_update, read_document,
    read_opencode_session, session_update,
};
pub use capture::follow::{PartialLine, ReadOptions, TranscriptUpdate, read_all, read_update};
pub use capture::import::{find_transcripts, import_mark, is_of_an_app, record_folders};
pub use capture::mark::TranscriptMark;
pub use capture::memory_files::read_memory_file;
pub use capture::project::locate_project;
pub use capture::seal::{OpeningKey, OpeningKeys, SealingKey};
pub use drain::Drain;
pub use embed::model::{ModelError, SentenceModel};
pub use embed::model_embedder::{ModelProgress, ModelState};
pub use engine::{Engine, Note, PreparedTurns, Recall, RecallHit, RecallQuery};
pub use forget_requests::{ForgetRequest, ForgetRequests};
pub use indexer::{IndexEntry, TextIndexer};
pub use recall::session_start::BRIEFING_TOKENS;
pub use text::analyse::Analyser;
