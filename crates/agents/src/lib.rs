//! Running agents. The only crate that knows an agent's protocol.
//!
//! - [`driver`] starts an agent and talks to it, whatever its protocol.
//! - [`claude`] keeps real Claude Code processes warm and answers whole conversations with them.
//! - [`SandboxConfig`] makes the environment and the confinement of every agent.
//! - `work_folders` says which folders of the user a session may work in.
//! - [`sandbox_denials`] names the setting that allows what the sandbox denied.
//! - [`client_tools`] lets an agent call tools that a client of `/v1` runs.
//! - [`call_choice`] says which of these tools an answer may call.
//! - [`json_lines`] reads the lines of an agent's standard output.
//! - [`mcp_servers`] reads the MCP servers that an agent is given.
//! - [`app_permits`] bounds what one app keeps in memory.
//! - [`LiveLimit`] bounds how many agents are live at once.
//! - [`Runtime`] is what all of them share.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make and look at files"))]

pub mod app_permits;
pub mod call_choice;
pub mod claude;
pub mod client_tools;
pub mod driver;
mod git_settings;
pub mod json_lines;
mod live_limit;
pub mod mcp_servers;
mod owner_copy;
mod runtime;
mod sandbox;
pub mod sandbox_denials;
mod work_folders;

pub use live_limit::{IdleAgents, LiveLimit, LivePermit};
pub use runtime::Runtime;
pub use sandbox::{AGENT_HOME_VARIABLE, SandboxConfig, SandboxLayers};
