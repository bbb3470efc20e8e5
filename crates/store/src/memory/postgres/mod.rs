//! The memory in a PostgreSQL database.

mod batch;
mod cache;
mod candidates;
mod cipher;
mod exclusive_lock;
mod forget;
mod merge;
mod migrate;
mod migrate_rows;
mod migrate_turns;
mod names;
mod nearest;
mod postings;
mod remask;
mod restore;
mod rows;
mod scope;
mod sign_codes;
mod store;
mod store_turns;
mod vectors;
mod write_turns;

pub use exclusive_lock::ExclusiveLock;
pub(crate) use migrate::MemoryOnServer;
pub use store::PostgresMemory;
