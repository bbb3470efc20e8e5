//! One file per command.

pub mod app;
pub mod claude;
pub mod completions;
pub mod doctor;
pub mod serve;
pub mod status;
