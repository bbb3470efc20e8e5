//! Recall: from a question to the turns that answer it, ranked, explained and within a budget.

mod answers;
mod names;
pub(crate) mod pack;
mod period;
mod phrases;
pub(crate) mod rank;
pub(crate) mod recurring;
pub(crate) mod rerank;
pub(crate) mod search;
pub(crate) mod session_start;
