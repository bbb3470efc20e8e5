use std::ops::Range;

/// One secret in a text. Findings are in order, never overlap, and begin and end between characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub range: Range<usize>,
    pub kind: &'static str,
}
