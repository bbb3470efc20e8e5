//! The socket in the home, by which the owner's commands and agents reach the server.

pub mod client;
mod protocol;
pub mod server;
mod tool_backends;

pub use protocol::{Answer, Call, Hello, PROTOCOL};
