//! Capture: turns on their way into the memory, from hooks, transcripts and deferral files.

pub mod batch;
pub mod deferral;
pub mod follow;
pub mod import;
pub mod project;
pub mod seal;
