//! OpenAI's Agents API: agents, sessions, turns, items, events and artifacts.

pub(super) mod agents;
pub(crate) mod artifacts;
mod environment;
pub(crate) mod events;
mod objects;
mod render;
pub(crate) mod sessions;
pub(crate) mod turns;
