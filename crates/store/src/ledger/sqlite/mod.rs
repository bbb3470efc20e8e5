//! The ledger in a SQLite file.

mod apps;
mod audit;
mod documents;
mod fences;
mod leases;
mod migrate;
mod session_lists;
mod session_rows;
mod sessions;
mod store;
mod turns;

pub use store::Ledger;
