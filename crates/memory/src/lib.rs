//! One long memory: capture, redaction, drain, recall.
//!
//! The only crate that knows how to rank. The store proposes candidates; what they are worth, and what
//! of them fits, is decided here, so that every store answers alike.

pub mod analyse;
mod answers;
pub mod batch;
pub mod deferral;
pub mod drain;
pub mod embed;
mod engine;
pub mod follow;
pub mod import;
pub mod model;
mod names;
pub mod pack;
pub mod period;
mod phrases;
pub mod project;
pub mod rank;
mod recurring;
pub mod redact;
mod scripts;
pub mod seal;
mod search;
mod second_look;
mod session_start;
mod table;
pub mod transcript;
mod upgrade;

pub use batch::{Batch, RawTurn};
pub use drain::{Backlog, Drain, backlog, waiting_turns};
pub use engine::{Engine, Found, Note, Prepared, Question, Recall};
pub use model::{ModelError, SentenceModel};
pub use seal::{OpeningKey, OpeningKeys, SealingKey};
pub use upgrade::{UpgradeProgress, UpgradeState};
