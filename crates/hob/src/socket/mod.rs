//! The socket in the home: the owner's way in. Same user only.
//!
//! Frames are four bytes of length and as many bytes of JSON. Every connection begins with a hello
//! that carries the protocol's version, so that an older and a newer Hob can tell each other apart.

pub mod client;
pub mod server;

use serde::{Deserialize, Serialize};

/// The version of the frames and calls below.
pub const PROTOCOL: u32 = 1;
/// A frame longer than this is not one.
pub const FRAME_LIMIT: usize = 64 << 20;

/// A call from a client.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    Hello { protocol: u32 },
}

/// The server's answer to [`Call::Hello`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub version: String,
    pub pid: u32,
    /// Where HTTP is served, unless it is off.
    pub http: Option<String>,
}

/// An answer to a call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Hello(Hello),
    /// The call is unknown or cannot be done; the text says why.
    Error(String),
}
