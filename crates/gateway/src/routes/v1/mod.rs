//! Claude Code in the words of other APIs: Anthropic's messages and OpenAI's chat completions.
//!
//! Each dialect has wire types of its own ([`anthropic`], [`openai`]) and its own shape of errors
//! ([`dialect`]); what both mean is a [`reply`] to a conversation. Images and documents become files
//! that the agent is told of ([`attachments`]).

pub(crate) mod anthropic;
mod attachments;
mod dialect;
pub(crate) mod fallback;
pub(crate) mod models;
pub(crate) mod openai;
mod reply;
