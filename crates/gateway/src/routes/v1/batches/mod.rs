//! `/v1/messages/batches`: Anthropic's message batches.

pub(crate) mod manage;
mod worker;
