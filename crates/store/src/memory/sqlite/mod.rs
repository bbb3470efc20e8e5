//! The memory in a SQLite file.

mod cache;
mod candidates;
mod facets;
mod forget;
mod merge;
mod migrate;
mod postings;
mod rows;
mod sign_codes;
mod store;
mod store_turns;
mod vector_cache;
mod vectors;

pub(crate) use migrate::MemoryInFile;
pub use store::Memory;
