//! SQLite: encrypted files with one writer, several readers and a write-ahead log.

mod copy;
mod database;
mod error;
pub(crate) mod migrations;
mod writer;

pub use copy::{copy_database, memory_mark, verify_database};
pub(crate) use database::{BUSY_TIMEOUT, Database, MIN_CACHE_KIB, Reading, set_cache_share};
pub use database::{opens_with, rekey};
pub use error::OpenError;
pub(crate) use error::failed;
