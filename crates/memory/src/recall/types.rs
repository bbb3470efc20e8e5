//! Candidates and records with their scores.

use hob_domain::Timestamp;
use hob_domain::memory::Record;

/// A candidate with its rank value, before its record is read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScoredCandidate {
    pub(crate) seq: i64,
    pub(crate) ts: Timestamp,
    /// The sum of all that speaks for and against the turn. Any number; greater is better.
    pub(crate) sum: f64,
    pub(crate) evidence: Evidence,
}

/// A record with its rank value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScoredRecord {
    pub(crate) record: Record,
    /// The sum of all that speaks for and against the turn. Any number; greater is better.
    pub(crate) sum: f64,
    pub(crate) evidence: Evidence,
}

/// What speaks for a turn, to be explained to the user.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Evidence {
    /// The query's terms in the turn, by their index.
    pub(crate) terms: Vec<usize>,
    /// Whether the turn's vector is near that of the query.
    pub(crate) similar_meaning: bool,
    /// Whether the turn is from a period that the query asks for.
    pub(crate) in_period: bool,
    /// How many other turns have the same text and are not shown.
    pub(crate) duplicates: usize,
    /// The speaker of the turn, if the query names them.
    pub(crate) named_speaker: Option<String>,
    /// Whether the turn says that something changed.
    pub(crate) says_changed: bool,
}
