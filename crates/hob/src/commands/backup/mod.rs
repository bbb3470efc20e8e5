//! `hob backup` and `hob restore`: the home in one file.
//!
//! The file is a tar archive: a manifest, the two databases as they are encrypted in the home, the key, the settings,
//! uploaded files and captures that wait for the server. Workspaces of sessions are not in it.

mod archive;
mod create;
mod home_mark;
mod restore;
mod sealed_stream;

pub use create::{BackupArgs, Existing, KeyInBackup, backup, create};
pub use home_mark::{home_mark, partial_prefix};
pub use restore::{RestoreArgs, restore};
