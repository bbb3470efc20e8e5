//! Text analysis: the terms of a text, and what writing systems need.

pub(crate) mod analyse;
pub(crate) mod indexed_text;
pub(crate) mod writing_systems;
