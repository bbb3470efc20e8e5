//! Memory stores of Anthropic's API: texts under paths, in versions.
//!
//! The ledger keeps what the API shows, byte for byte. The memory has the current text of each path as a note of the app,
//! so that `memory_recall` finds it.

pub(super) mod attached;
mod document;
pub(crate) mod memories;
mod notes;
mod page;
mod stored;
pub(crate) mod stores;
pub(crate) mod versions;
