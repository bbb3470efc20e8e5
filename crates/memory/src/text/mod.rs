//! Text analysis: from a text to the terms it is found by.

pub(crate) mod analyse;
pub(crate) mod indexed_text;
pub(crate) mod work;
pub(crate) mod writing_systems;
