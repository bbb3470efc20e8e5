//! The terms of a turn, counted.

use super::postings::{LONGEST_RUN, Posting, length_class};

/// Each term as often as it occurs.
pub(crate) fn each(terms: &str) -> impl Iterator<Item = &str> {
    terms.split(' ').filter(|term| !term.is_empty())
}

/// How often each term occurs, in the order of the terms.
pub(crate) fn counted(terms: &str) -> Vec<(&str, u32)> {
    let mut all: Vec<&str> = each(terms).collect();
    all.sort_unstable();
    all.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32)).collect()
}

/// How many terms those are, repeated as they occur.
pub(crate) fn total(counts: &[(&str, u32)]) -> u32 {
    counts.iter().map(|(_, times)| times).sum()
}

pub(crate) fn posting(seq: i64, session: i64, times: u32, length: u32) -> Posting {
    let times = u8::try_from(times).unwrap_or(u8::MAX);
    Posting { seq, session: session as u32, times, length: length_class(length) }
}

/// How many postings surely fit a run that has so many bytes.
pub(crate) fn room(bytes: usize) -> usize {
    LONGEST_RUN.saturating_sub(bytes) / 6
}
