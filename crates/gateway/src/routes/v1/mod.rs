//! `/v1`: Anthropic's Messages API and OpenAI's Chat Completions on Claude Code.
//!
//! Each dialect has its own wire types ([`anthropic`], [`openai`]) and error shapes
//! ([`dialect`]). Both render a [`reply`]. Images and documents become files whose paths
//! the agent receives ([`attachments`]).

pub(crate) mod anthropic;
mod attachments;
pub(crate) mod count_tokens;
mod dialect;
pub(crate) mod fallback;
pub(crate) mod models;
pub(crate) mod openai;
mod reply;
mod schema_cost;
mod structured;
mod tools;
