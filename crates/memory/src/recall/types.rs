//! Candidates and records with their scores.

use hob_domain::Timestamp;
use hob_domain::memory::Record;

use crate::recall::features::Features;

/// A candidate with its rank value, before its record is read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScoredCandidate {
    pub(crate) seq: i64,
    pub(crate) ts: Timestamp,
    /// The sum of all that speaks for and against the turn. Any number; greater is better.
    pub(crate) sum: f64,
    pub(crate) features: Features,
    pub(crate) likelihood: Likelihood,
    pub(crate) evidence: Evidence,
}

impl ScoredCandidate {
    /// Takes the likelihood from a wider search that found the turn, too. Its rank value stays.
    pub(crate) fn judge_by(&mut self, wider: &ScoredCandidate) {
        let sum_shift = wider.sum - self.sum;
        self.likelihood = Likelihood { sum_shift, ..wider.likelihood };
    }
}

/// A record with its rank value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScoredRecord {
    pub(crate) record: Record,
    /// The sum of all that speaks for and against the turn. Any number; greater is better.
    pub(crate) sum: f64,
    pub(crate) features: Features,
    pub(crate) likelihood: Likelihood,
    pub(crate) evidence: Evidence,
    /// Whether the record's text is only the passage of it that answers.
    pub(crate) is_cut: bool,
}

/// How likely a turn answers the query, apart from its place among the hits.
///
/// Sums only order the candidates of one query: also the best turn about something else has a great
/// one. What tells whether a turn answers is how much of the query it has.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Likelihood {
    /// The share of the query's terms that the turn has, from 0 to 1. A related term counts by its
    /// cosine.
    pub(crate) coverage: f64,
    /// The greatest cosine of the turn and the turns nearby.
    pub(crate) best_cosine_nearby: f64,
    /// The number of candidates.
    pub(crate) candidates: usize,
    /// What to add to the turn's sum to compare it with the sums of a wider search.
    pub(crate) sum_shift: f64,
}

/// What speaks for a turn, to be explained to the user.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Evidence {
    /// The query's terms in the turn, by their index.
    pub(crate) terms: Vec<usize>,
    /// Whether the turn's vector is near that of the query.
    pub(crate) similar_meaning: bool,
    /// Whether a turn nearby has terms of the query.
    pub(crate) near_match: bool,
    /// Whether the turn is from a period that the query asks for.
    pub(crate) in_period: bool,
    /// How many other turns have the same text and are not shown.
    pub(crate) duplicates: usize,
    /// The speaker of the turn, if the query names them.
    pub(crate) named_speaker: Option<String>,
    /// Whether the turn says that something changed.
    pub(crate) says_changed: bool,
    /// Whether the turn is above an older one on the same subject.
    pub(crate) replaces_older: bool,
}

impl Evidence {
    /// Returns whether anything in the turn, or near it, has to do with the query.
    pub(crate) fn speaks_for_it(&self) -> bool {
        self.is_in_turn() || self.near_match
    }

    /// Returns whether anything in the turn itself has to do with the query.
    pub(crate) fn is_in_turn(&self) -> bool {
        !self.terms.is_empty() || self.similar_meaning || self.in_period
    }
}
