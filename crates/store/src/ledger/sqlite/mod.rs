//! The ledger in a SQLite file.

mod apps;
mod audit;
mod fences;
mod leases;
mod migrate;
mod responses;
mod session_lists;
mod session_rows;
mod sessions;
mod store;
mod turns;

pub use store::Ledger;
