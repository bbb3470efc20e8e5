//! Conversations with agents: one-shot runs ([`Runner`]), durable sessions ([`session::Sessions`])
//! and completions ([`Completions`]).
//!
//! The agents themselves run in `hob-agents`. This crate never sees a database or HTTP; its callers
//! pass in what it needs.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make and look at files"))]

mod completions;
mod files;
mod one_turn;
mod run_workspace;
mod runner;
pub mod session;
mod steady_clock;
mod turn_count;
mod upload_quota;

pub use completions::{
    AdmittedCompletion, CompletionError, CompletionStream, Completions, CompletionsOptions,
    Conversation, ConversationSetup, conversation_folder,
};
pub use files::{StoredFile, Upload, UploadError, UploadStore};
pub use runner::{Runner, RunnerOptions};
pub use steady_clock::{ClockState, SteadyClock};
pub use upload_quota::OverQuota;
