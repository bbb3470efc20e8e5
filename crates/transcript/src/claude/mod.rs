//! Claude Code's transcript: one JSON record a line, each with a link to its parent.

mod order;
mod record;
mod words;

pub use record::{Block, Message, Reader, speaks};
