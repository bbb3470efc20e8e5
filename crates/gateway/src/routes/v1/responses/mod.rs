//! OpenAI's Responses: making one ([`create`]), and those that are stored ([`stored`]).

pub(crate) mod create;
mod history;
pub(super) mod input;
mod keeper;
mod object;
pub(crate) mod stored;
mod stream;
