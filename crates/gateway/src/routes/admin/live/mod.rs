//! `/admin/live`: live agents, their screens, and typing into their terminals.

pub(crate) mod attach;
mod events;
mod find;
pub(crate) mod list;
pub(crate) mod screen;
pub(crate) mod stream;
