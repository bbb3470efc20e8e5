//! The memory's tools, as agents see them. The only crate that speaks MCP.
//!
//! [`tools`] says what there is, [`Tools`] does it, [`McpServer`] speaks the protocol over a bridge's
//! stream ([`serve_stream`]) or over HTTP ([`http_service`]). A bridge only passes lines on; what it
//! says where there is nobody to pass them to is in [`alone`].

// What the owner's own pages ask the memory with, beside the tools.
pub use hob_memory::{Backlog, Found, Question};

mod run;
mod server;
mod shapes;

pub use run::{Here, ToolError, Tools};
pub use server::{
    Backend, Caller, McpServer, ToolService, alone, http_service, serve_stream, tools,
};
pub use shapes::{
    CaptureArguments, CorrectArguments, ForgetArguments, Hit, RecallArguments, RecallResult,
    TimelineArguments, TimelineTurn,
};
