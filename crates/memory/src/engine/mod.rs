//! The memory as its callers use it: one [`Engine`] over a store.

mod browse;
mod capture;
mod forget;
mod masking;
mod memory_files;
mod notes;
mod recall;
mod state;

pub use capture::PreparedTurns;
pub use notes::Note;
pub use recall::{Recall, RecallHit, RecallQuery};
pub use state::Engine;
