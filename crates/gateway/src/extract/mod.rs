//! Extractors: they turn parts of a request into typed values, with errors of Hob's own shape.

pub(crate) mod body;
pub(crate) mod caller;
pub(crate) mod path_and_query;
pub(crate) mod session_id;
