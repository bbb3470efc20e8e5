//! `/sessions`: durable conversations of apps.

pub(crate) mod control;
pub(crate) mod events;
pub(crate) mod list;
pub(crate) mod manage;
pub(crate) mod settings;
pub(crate) mod shapes;
mod stream;
pub(crate) mod turns;
