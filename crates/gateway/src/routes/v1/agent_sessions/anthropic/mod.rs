//! Anthropic's Managed Agents: agents, environments, sessions and their events.

pub(super) mod agents;
pub(crate) mod environments;
pub(crate) mod events;
mod objects;
mod render;
pub(crate) mod send;
pub(crate) mod sessions;
