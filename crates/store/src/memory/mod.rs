//! Remembered turns and what finds them: one implementation per database, over the decisions they share.

mod block_limit;
mod candidate_plan;
#[cfg(test)]
mod index_tests;
pub(crate) mod postgres;
pub(crate) mod sqlite;
