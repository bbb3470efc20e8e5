//! One file per command.

pub mod app;
pub mod completions;
pub mod doctor;
pub mod serve;
pub mod status;
