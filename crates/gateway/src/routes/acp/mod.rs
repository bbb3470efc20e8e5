//! `/acp`: Hob as an agent of the Agent Client Protocol, over WebSocket and streamable HTTP.
//!
//! A [`connection`] carries JSON-RPC messages between a client and its [`methods`]; [`web_socket`] and [`http`] are its
//! two transports. A [`mailbox`] keeps what a stream of the latter did not deliver. Sessions outlive connections: a client that connects again loads its session and sees the turn that
//! still runs.

mod connection;
mod connections;
mod dispatch;
pub(crate) mod http;
mod mailbox;
mod messages;
mod methods;
mod turn;
mod watch;
pub(crate) mod web_socket;

pub(crate) use connections::AcpConnections;
