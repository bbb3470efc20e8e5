//! The ledger in a PostgreSQL database.

mod apps;
mod audit;
mod cluster;
mod documents;
mod fences;
mod heartbeat;
mod leases;
mod migrate;
mod session_lists;
mod session_rows;
mod sessions;
mod store;
mod turns;

pub use store::{PostgresLedger, ServerState};
