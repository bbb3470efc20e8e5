//! OpenAI's Agents API: agents, sessions, turns, items and events.

pub(super) mod agents;
mod environment;
pub(crate) mod events;
mod objects;
mod render;
pub(crate) mod sessions;
pub(crate) mod turns;
