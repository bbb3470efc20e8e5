//! The socket in the home, by which the owner's commands and agents reach the server.

pub mod client;
pub mod frame;
mod listener;
mod owner_git;
mod peer_limits;
mod protocol;
pub mod server;
mod tool_backends;

pub use listener::bind;
pub use protocol::{Answer, Call, FRAME_LIMIT, GitRequest, Hello, PROTOCOL};
