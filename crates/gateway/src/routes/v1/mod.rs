//! `/v1`: Anthropic's Messages API, OpenAI's Chat Completions and OpenAI's Responses on Claude Code.
//!
//! Each API has its own wire types ([`anthropic`], [`openai`], [`responses`]) and error shapes
//! ([`dialect`]). All render a [`reply`], which consists of [`parts`]. Images and documents become files whose paths
//! the agent receives ([`attachments`], [`content`]). A response header lists the fields without effect ([`ignored`]).

pub(crate) mod agent_sessions;
pub(crate) mod anthropic;
mod attachments;
pub(crate) mod batches;
pub(crate) mod bodies;
mod content;
pub(crate) mod conversations;
pub(crate) mod count_tokens;
mod dialect;
pub(crate) mod fallback;
mod ignored;
mod items_page;
mod metadata;
pub(crate) mod models;
pub(crate) mod openai;
mod parts;
mod reply;
pub(crate) mod responses;
mod schema_cost;
mod schemas;
mod structured;
mod system_prompt;
mod tools;
