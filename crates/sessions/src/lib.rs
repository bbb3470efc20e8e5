//! Running agents. The only crate that knows an agent's protocol.
//!
//! It holds one-shot runs ([`Runner`]), durable sessions ([`session::Sessions`]), the Claude backend
//! ([`claude`]) and the drivers they need. It never sees a database or HTTP; it is handed what it needs.

pub mod claude;
mod completions;
mod driver;
mod files;
mod live;
pub mod mcp_servers;
mod one_turn;
mod runner;
pub mod session;
pub mod terminal;
mod walls;
mod workspace;

pub use completions::{
    Answering, AskError, Completions, CompletionsOptions, Conversation, ConversationSetup,
    conversation_folder,
};
pub use files::{FileRoom, StoredFile, Upload, UploadError};
pub use live::{LiveLimit, LivePermit, Spare};
pub use runner::{Runner, RunnerOptions};
pub use walls::Walls;
