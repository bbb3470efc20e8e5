//! The commands: one file, or one folder, each.

pub mod acp;
pub mod app;
pub mod attach;
pub mod backup;
pub mod capture_transcript;
pub mod capture_turn;
pub mod claude;
pub mod completions;
mod confirm;
mod context;
pub mod doctor;
pub mod export;
pub mod forget;
pub mod hooks;
pub mod import;
pub mod key;
pub mod mcp;
pub mod recall;
pub mod run;
pub mod serve;
pub mod service;
pub mod session_start;
pub mod sessions;
pub mod setup;
pub mod status;
pub mod store;

pub use context::{Context, Exit, own_path};
