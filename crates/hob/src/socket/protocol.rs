//! The protocol of the socket. Only processes of the same user may connect.
//!
//! A frame is a length of four bytes, big-endian, followed by that many bytes of JSON. Every
//! connection begins with a hello that carries the protocol's version, so that an older and a newer
//! Hob recognise each other.

use hob_domain::memory::Stored;
use hob_memory::CaptureBatch;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the frames and calls below.
pub const PROTOCOL: u32 = 2;
/// The largest frame; a longer one is refused.
pub const FRAME_LIMIT: usize = 64 << 20;

/// A call from a client.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    Hello {
        protocol: u32,
        /// The caller's home, for a call that is about its data. Another home's server refuses it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        home: Option<String>,
    },
    /// Stores turns in the memory; the answer comes once they are durable.
    Capture { batch: CaptureBatch },
    /// Calls one of the memory's tools.
    Tool {
        name: String,
        arguments: Value,
        /// The caller's working folder.
        cwd: Option<String>,
        /// The app whose memory is used instead of the owner's. Only for the owner.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        app: Option<String>,
    },
    /// Switches the connection to MCP, one message per line.
    Mcp { cwd: Option<String> },
    /// Switches the connection to MCP with the tools of a client of `/v1`.
    ClientTools {
        /// Names the live process whose agent calls the tools.
        key: String,
    },
    /// Asks for the memory of a project, for an agent that starts a session in `cwd`.
    SessionStart { cwd: String, session_id: Option<String>, budget_tokens: usize },
    /// Switches the connection to HTTP, with the owner's rights.
    Http,
    /// Asks for the owner's credential for a host, for Git in an agent.
    GitCredential { request: GitRequest },
    /// Asks for the original text of a record, with its secrets unmasked. Only for the owner.
    Unseal { record_id: String },
    /// Forgets a record or a session, or restores it. Only for the owner.
    Forget {
        record_id: Option<String>,
        session_id: Option<String>,
        #[serde(default)]
        undo: bool,
    },
}

/// What Git wants a credential for, in the terms of its helpers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitRequest {
    #[serde(default)]
    pub protocol: String,
    /// The host, with its port if Git was given one.
    #[serde(default)]
    pub host: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
}

/// The server's answer to [`Call::Hello`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub version: String,
    pub pid: u32,
    /// The URL of the HTTP gateway; `None` if HTTP is off.
    pub http: Option<String>,
    /// The identity of the server's home.
    #[serde(default)]
    pub home: String,
    /// The server's build ID; servers of earlier builds have none.
    #[serde(default)]
    pub build: String,
}

/// An answer to a call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Hello(Hello),
    Captured(Stored),
    Result(Value),
    Text(String),
    /// The connection has switched to MCP.
    Mcp,
    /// The connection has switched to HTTP.
    Http,
    /// The server understood the call and refuses it; the text is for the user.
    Refused(String),
    /// The call is unknown, or failed; the text gives the reason.
    Error(String),
}
