//! The vendors' session APIs on Hob's sessions: Anthropic's Managed Agents and OpenAI's Agents API, and Anthropic's
//! memory stores.
//!
//! Both stand on [`sessions`] (a session with a description), [`agents`] (stored agents in versions) and [`steps`] (the
//! event log, folded into what happened). The folders translate these into each API's objects and events.

mod agents;
pub(crate) mod anthropic;
mod body;
mod creation;
mod cursor;
mod feed;
mod incoming;
pub(crate) mod memory_stores;
pub(crate) mod openai;
mod prompt;
mod repeats;
mod respond;
mod sessions;
pub(crate) mod shared_paths;
mod steps;
mod tool_call;
mod tool_shapes;
