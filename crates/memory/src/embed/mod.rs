//! Vectors of texts: from the built-in table, and from a sentence model if one is configured.

pub(crate) mod model;
pub(crate) mod model_embedder;
pub(crate) mod quantize;
mod table;
pub(crate) mod table_embedder;
