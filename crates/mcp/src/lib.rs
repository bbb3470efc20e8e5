//! The memory's tools for agents, and the tools of clients. Only this crate speaks MCP.
//!
//! [`tools`] lists the tools, [`Tools`] runs them, and [`McpServer`] speaks the protocol, over the
//! stream of a bridge ([`serve_stream`]) or over HTTP ([`http_service`]). A bridge only forwards
//! lines; [`offline`] has its answers for the case that no server runs, and [`message`] refuses messages that are no
//! requests. [`serve_client_tools`] serves the tools that a client of `/v1` runs.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make and look at files"))]

mod client_tool_server;
mod definitions;
pub mod message;
pub mod offline;
mod server;
mod time_argument;
mod tools;
mod unread_request;
mod wire;

pub use client_tool_server::{ClientToolBackend, ToolDefinition, ToolReply, serve_client_tools};
pub use definitions::{SERVER_NAME, tools};
pub use server::{Caller, McpServer, ToolBackend, ToolService, http_service, serve_stream};
pub use time_argument::{DayEdge, parse_time};
pub use tools::{CallerContext, ToolError, Tools};
pub use wire::{
    CaptureArguments, CorrectArguments, ForgetArguments, Hit, RecallArguments, RecallResult,
    TimelineArguments, TimelineTurn,
};
