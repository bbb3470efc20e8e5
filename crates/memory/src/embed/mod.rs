//! Vectors of texts: the built-in table, and the sentence model that may be added to it.

pub(crate) mod embedder;
pub(crate) mod model;
mod table;
pub(crate) mod upgrade;
