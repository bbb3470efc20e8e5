//! The memory's tools, as agents see them. The only crate that speaks MCP.
//!
//! [`tools`] says what there is, [`Tools`] does it, [`McpServer`] speaks the protocol over standard
//! input and output or, through [`http_service`], over HTTP. The bridge `hob mcp` has a server whose
//! [`Backend`] asks the daemon; the daemon's own has one that asks the memory.

mod run;
mod server;
mod shapes;

pub use run::{Here, ToolError, Tools};
pub use server::{Backend, Caller, McpServer, ToolService, http_service, serve_stdio, tools};
pub use shapes::{
    CaptureArguments, CorrectArguments, ForgetArguments, Hit, RecallArguments, RecallResult,
    TimelineArguments, TimelineTurn,
};
