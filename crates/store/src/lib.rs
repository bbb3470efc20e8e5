//! Where Hob keeps its state. The only crate that names a database.
//!
//! Today: SQLite files encrypted whole with SQLCipher. Callers see the storage ports of
//! `hob-domain`; only the composition root and tests see this crate.
#![allow(clippy::disallowed_types, reason = "this is the crate that names a database")]

mod sqlite;

pub use sqlite::{Ledger, Memory, OpenError, opens_with, rekey};
