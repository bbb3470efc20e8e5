//! Faults that must not harm the memory: dead, hung, saturated and older servers, full disks, locked stores,
//! kills at any moment, torn files, other users, and one turn captured in several ways at once.
//!
//! The tests compare what was captured with what `hob export` prints. Small counts here; `HOB_CAMPAIGN=1`
//! runs the full ones and prints figures.
#![allow(clippy::disallowed_methods, reason = "tests start hob to look at it from outside")]

mod deferral_files;
mod disk;
mod duplicates;
mod hooks;
mod kills;
mod locked_store;
mod servers;
mod transcript;
mod transcripts;
mod users;
