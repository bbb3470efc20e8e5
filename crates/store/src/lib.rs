//! Hob's stores. The only crate that names a database.
//!
//! The ledger and the memory are SQLite files, each encrypted as a whole with SQLCipher, or a PostgreSQL database. Callers
//! use the storage ports of `hob-domain`; only the composition root and tests use this crate.
#![allow(clippy::disallowed_types, reason = "this is the crate that names a database")]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make and look at files"))]

mod ledger;
mod memory;
mod migrate;
mod postgres;
mod salvage;
mod sqlite;
mod values;

// `rusqlite` uses this library through its C interface.
use hob_sqlcipher as _;

pub use ledger::migrate::{ledger_to_postgres, ledger_to_sqlite};
pub use ledger::postgres::{PostgresLedger, ServerState};
pub use ledger::sqlite::Ledger;
pub use memory::migrate::{memory_to_postgres, memory_to_sqlite};
pub use memory::postgres::{ExclusiveLock, PostgresMemory};
pub use memory::sqlite::Memory;
pub use migrate::{
    Analyse, Analysed, MigrateError, MigratedTable, Migration, MigrationProgress, ReportProgress,
};
pub use postgres::{BadUrl, ConnectError, Encryption, StoreUrl};
pub use salvage::{SalvagedTable, salvage_ledger, salvage_memory};
pub use sqlite::{
    Access, CursorChatDatabase, CursorDatabase, DatabaseState, ForeignError, GooseDatabase,
    GooseMessageRow, GooseSessionRow, MemoryMark, OpenError, OpencodeDatabase, OpencodePartRow,
    OpencodeSessionRow, ZedDatabase, ZedThreadRow, advance_generation, begin_run, copy_database,
    forget_commits, generation, inspect_database, is_behind, latest_run, memory_mark, noted_commit,
    opens_with, rekey, retry_set_aside, verify_database,
};
