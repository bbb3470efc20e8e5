//! The socket in the home: the owner's way in. Same user only.
//!
//! Frames are four bytes of length and as many bytes of JSON. Every connection begins with a hello
//! that carries the protocol's version, so that an older and a newer Hob can tell each other apart.

pub mod client;
pub mod server;

use hob_domain::memory::Stored;
use hob_memory::Batch;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the frames and calls below.
pub const PROTOCOL: u32 = 2;
/// A frame longer than this is not one.
pub const FRAME_LIMIT: usize = 64 << 20;

/// A call from a client.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    Hello {
        protocol: u32,
    },
    /// Turns to remember; answered once they are durable.
    Capture {
        batch: Batch,
    },
    /// One of the memory's tools.
    Tool {
        name: String,
        arguments: Value,
        /// The caller's working folder.
        cwd: Option<String>,
    },
    /// From now on this connection carries MCP, a message a line.
    Mcp {
        cwd: Option<String>,
    },
    /// What to tell an agent that begins to work in a folder.
    SessionStart {
        cwd: String,
        session_id: Option<String>,
        budget_tokens: usize,
    },
    /// From now on this connection carries HTTP, as the owner.
    Http,
    /// A record's text as it was said.
    Unseal {
        record_id: String,
    },
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
    Captured(Stored),
    Result(Value),
    Text(String),
    /// The connection carries MCP now.
    Mcp,
    /// The connection carries HTTP now.
    Http,
    /// The call was understood and refused; the text is for whoever asked.
    Refused(String),
    /// The call is unknown or cannot be done; the text says why.
    Error(String),
}
