//! What a store is asked for when something is looked for, and what it proposes. It counts; what the
//! counts are worth is decided elsewhere, so that every store answers alike.

use std::sync::Arc;

use jiff::Timestamp;

use crate::vectors::KindVector;

/// What to look for.
#[derive(Debug, Clone, PartialEq)]
pub struct CandidateQuery {
    pub terms: Vec<QueryTerm>,
    /// Turns whose vectors point about the same way are proposed as well; all zero asks for none.
    pub vector: Vec<i8>,
    /// The same by the vectors of a model, as far as turns have them.
    pub model_vector: Option<KindVector>,
    /// How many turns are proposed at most for their terms, and how many for their vectors; those
    /// beside them come on top.
    pub limit: usize,
}

/// A term in the index's own spelling, and what it counts.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryTerm {
    pub term: String,
    pub weight: f32,
}

/// What the store has for a probe: enough to rank by, nothing yet to read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CandidateSet {
    /// How many turns the projects in scope have, with how many terms, in how many sessions.
    pub turns: u64,
    pub length: u64,
    pub sessions: u64,
    /// In the order of the probe's terms.
    pub document_frequencies: Vec<DocumentFrequency>,
    /// In order of `seq`, each once.
    pub candidates: Vec<Candidate>,
    /// The sessions of the candidates.
    pub session_statistics: Vec<SessionStatistics>,
}

/// How common a term is in the projects in scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DocumentFrequency {
    pub turns: u64,
    /// About how many sessions have it.
    pub sessions: u64,
}

/// How often a term of the probe, by its number, occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TermCount {
    pub term: usize,
    pub times: u32,
}

/// A turn the store proposes: because terms of the probe are in it, because its vector is near, or
/// because it stands within two turns of such a one.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub seq: i64,
    /// The session, as [`SessionStatistics`] names it.
    pub session: i64,
    /// The turn before it in its session, where that is a candidate too.
    pub previous: Option<i64>,
    pub ts: Timestamp,
    /// How many terms it has.
    pub length: u32,
    pub counts: Vec<TermCount>,
    pub vector: Arc<[i8]>,
    /// That of the probe's model; empty where there is none yet.
    pub model_vector: Vec<i8>,
    /// Whether it may be an answer, and not only stands beside one.
    pub in_scope: bool,
}

/// A session of candidates as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionStatistics {
    pub session: i64,
    /// How many terms all its turns have.
    pub length: u64,
    pub counts: Vec<TermCount>,
}
