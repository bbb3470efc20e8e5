//! One long memory: capture, redaction, drain, recall.
//!
//! The only crate that knows how to rank. The store proposes candidates; what they are worth, and what
//! of them fits, is decided here, so that every store answers alike.

mod capture;
mod drain;
mod embed;
mod engine;
mod recall;
pub mod redact;
mod text;

pub use capture::backlog::{Backlog, backlog, waiting_turns};
pub use capture::batch::{CaptureBatch, RawTurn};
pub use capture::deferral;
pub use capture::follow::{PartialLine, ReadOptions, TranscriptUpdate, read_all, read_update};
pub use capture::import::{find_transcripts, import_mark, transcript_folders};
pub use capture::mark::TranscriptMark;
pub use capture::prepare::index_turn;
pub use capture::project::locate_project;
pub use capture::seal::{OpeningKey, OpeningKeys, SealingKey};
pub use drain::Drain;
pub use embed::embedder::{Embedder, TableEmbedder};
pub use embed::model::{ModelError, SentenceModel};
pub use embed::upgrade::{UpgradeProgress, UpgradeState};
pub use engine::{Engine, Found, Note, Prepared, Question, Recall};
pub use text::analyse::Analyser;
