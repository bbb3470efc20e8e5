//! Where Hob keeps its state. The only crate that names a database.
//!
//! Ledger and memory in SQLite files encrypted whole with SQLCipher, or in a PostgreSQL database.
//! Callers see the storage ports of `hob-domain`; only the composition root and tests see this crate.
#![allow(clippy::disallowed_types, reason = "this is the crate that names a database")]

mod index;
mod moving;
mod postgres;
mod sqlite;
mod values;

pub use moving::{
    Analyse, Analysed, Move, MoveError, MoveProgress, MovedTable, Tell, ledger_to_postgres,
    ledger_to_sqlite, memory_to_postgres, memory_to_sqlite,
};
pub use postgres::{
    Alone, BadUrl, ConnectError, PostgresLedger, PostgresMemory, ServerState, StoreUrl,
};
pub use sqlite::{Ledger, Memory, OpenError, opens_with, rekey};
