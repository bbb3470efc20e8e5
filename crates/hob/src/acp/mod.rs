//! Hob as an agent of the Agent Client Protocol: editors start `hob acp` and get Hob's durable sessions.
//!
//! [`server`] answers the editor's requests, [`turn`] follows a prompt to its end, [`settings`] are those of the agent, and [`wire`] reads and writes the
//! messages. Everything is passed on to the running server with the owner's rights.

mod server;
mod settings;
mod turn;
mod wire;

pub use server::AcpServer;
