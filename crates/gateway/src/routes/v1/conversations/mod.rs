//! OpenAI's Conversations: the conversations ([`manage`]) and their items ([`items`]).

pub(crate) mod body;
pub(crate) mod items;
pub(crate) mod manage;
