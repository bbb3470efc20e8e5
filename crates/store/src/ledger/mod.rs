//! Apps, sessions, turns, events, audit and nodes: one implementation per database.

pub(crate) mod migrate;
pub(crate) mod postgres;
pub(crate) mod sqlite;
