//! Text analysis: from a text to the terms it is found by.

pub(crate) mod analyse;
pub(crate) mod indexed_text;
mod stem_cache;
pub(crate) mod term_filter;
pub(crate) mod work;
pub(crate) mod writing_systems;
