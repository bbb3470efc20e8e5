//! Any agent that speaks the Agent Client Protocol on its standard streams.
//!
//! The protocol library matches requests with responses and knows the message shapes. The process and
//! its lines belong to Hob: every line of the agent is taken unchanged before the library sees it. The
//! library receives the responses to Hob's requests and the agent's own requests, but no notifications:
//! an update that the library cannot parse is still an event.

mod agent;
mod answers;
mod connection;
mod files;
mod questions;
mod replay;
mod setting;
mod setup;
mod terminals;

pub(super) use agent::start;
