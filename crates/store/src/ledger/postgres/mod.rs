//! The ledger in a PostgreSQL database.

mod apps;
mod audit;
mod cluster;
mod fences;
mod heartbeat;
mod leases;
mod migrate;
mod responses;
mod session_lists;
mod session_rows;
mod sessions;
mod store;
mod turns;

pub use store::{PostgresLedger, ServerState};
