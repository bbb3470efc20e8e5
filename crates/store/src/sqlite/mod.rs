//! SQLite: encrypted files with one writer, several readers and a write-ahead log.

mod commit_mark;
mod copy;
mod database;
mod error;
mod inspect;
pub(crate) mod migrations;
mod records;
mod writer;

pub use commit_mark::{forget_commits, is_behind, noted_commit};
pub use copy::copy_database;
pub use database::{Access, opens_with, rekey};
pub(crate) use database::{
    BUSY_TIMEOUT, Database, EarlierSchema, MIN_CACHE_KIB, Reading, connect, connect_leniently,
    set_cache_share,
};
pub use error::OpenError;
pub(crate) use error::{failed, open_error};
pub use inspect::{
    DatabaseState, MemoryMark, advance_generation, begin_run, generation, inspect_database,
    latest_run, memory_mark, retry_set_aside, verify_database,
};
pub use records::{
    CursorChatDatabase, CursorDatabase, ForeignError, GooseDatabase, GooseMessageRow,
    GooseSessionRow, OpencodeDatabase, OpencodePartRow, OpencodeSessionRow, ZedDatabase,
    ZedThreadRow,
};
