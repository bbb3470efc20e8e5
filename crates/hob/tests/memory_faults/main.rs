//! The faults that the memory has to live with: dead, hung, saturated and older servers, full disks, locked
//! stores, kills at any moment, torn files, other users, and the same turn coming by several ways at once.
//!
//! Everything is counted from outside: what was sent against what `hob export` has. Small counts here;
//! `HOB_CAMPAIGN=1` runs the full ones, and prints figures.
#![allow(clippy::disallowed_methods, reason = "tests start hob to look at it from outside")]

mod deferral_files;
mod disk;
mod hooks;
mod kills;
mod locked;
mod mixing;
mod servers;
mod transcript;
mod transcripts;
mod users;
