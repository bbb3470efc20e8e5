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

pub use capture::batch::{Batch, RawTurn, indexed};
pub use capture::seal::{OpeningKey, OpeningKeys, SealingKey};
pub use capture::{deferral, follow, import, project};
pub use drain::{Backlog, Drain, backlog, waiting_turns};
pub use embed::embedder::{Embedder, TableEmbedder};
pub use embed::model::{ModelError, SentenceModel};
pub use embed::upgrade::{UpgradeProgress, UpgradeState};
pub use engine::{Engine, Found, Note, Prepared, Question, Recall};
pub use text::analyse::Analyser;
