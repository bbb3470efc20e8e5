//! Remembered turns and what finds them: one implementation per database, over the decisions they
//! share.

mod block_limit;
mod candidate_plan;
mod hidden;
mod identity;
#[cfg(test)]
mod index_tests;
pub(crate) mod migrate;
pub(crate) mod postgres;
mod range;
pub(crate) mod sqlite;
mod standing;
