//! Running agents. The only crate that knows an agent's protocol.
//!
//! - [`driver`] starts an agent and talks to it, whatever its protocol.
//! - [`claude`] keeps real Claude Code processes warm and answers whole conversations with them.
//! - [`Walls`] makes the environment and the confinement of every agent; [`mcp_servers`] reads the MCP
//!   servers an agent is given; [`LiveLimit`] bounds how many agents are live at once.

pub mod claude;
pub mod driver;
mod live_limit;
pub mod mcp_servers;
mod sandbox;

pub use live_limit::{LiveLimit, LivePermit, Spare};
pub use sandbox::Walls;
