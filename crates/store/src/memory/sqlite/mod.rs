//! The memory in a SQLite file.

mod cache;
mod candidates;
mod facets;
mod forget;
mod merge;
mod metadata;
mod migrate;
mod names;
mod posting_list;
mod postings;
mod remask;
mod rows;
mod salvage;
mod scope;
mod sign_codes;
mod store;
mod store_turns;
mod vector_cache;
mod vectors;

pub(crate) use migrate::MemoryInFile;
pub(crate) use salvage::SalvagedTurns;
pub use store::Memory;
