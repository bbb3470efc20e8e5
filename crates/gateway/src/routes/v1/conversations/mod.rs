//! OpenAI's Conversations: the conversations ([`manage`]) and their items ([`items`]).

mod body;
pub(crate) mod items;
pub(crate) mod manage;
