//! What a recall asks of a store, and what the store returns: candidates with everything there is
//! to rank them by. The ranking itself is in `hob-memory`, so that every store is ranked alike.

use std::sync::Arc;

use jiff::Timestamp;

use crate::vectors::KindVector;

/// A query for candidates.
#[derive(Debug, Clone, PartialEq)]
pub struct CandidateQuery {
    pub terms: Vec<QueryTerm>,
    /// A vector of the built-in table. The turns with the nearest vectors are candidates, too. A
    /// zero vector selects none.
    pub vector: Vec<i8>,
    /// A vector of a model, which is compared with the turns that have one of the same kind.
    pub model_vector: Option<KindVector>,
    /// The number of turns that are selected by their terms, and by each kind of vector. Their
    /// neighbours come in addition.
    pub limit: usize,
}

/// A term in the index's own spelling, and its weight.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryTerm {
    pub term: String,
    pub weight: f32,
}

/// The candidates for a query, without their texts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CandidateSet {
    /// The number of turns in the projects in scope.
    pub turns: u64,
    /// The length of these turns, in terms.
    pub length: u64,
    /// The number of their sessions.
    pub sessions: u64,
    /// In the order of the query's terms.
    pub document_frequencies: Vec<DocumentFrequency>,
    /// In the order of `seq`, each once.
    pub candidates: Vec<Candidate>,
    /// The sessions of the candidates.
    pub session_statistics: Vec<SessionStatistics>,
}

/// How many turns and sessions in the projects in scope have a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DocumentFrequency {
    pub turns: u64,
    /// An estimate.
    pub sessions: u64,
}

/// How often a term of the query occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TermCount {
    /// The place of the term in the query.
    pub term: usize,
    pub times: u32,
}

/// A turn that was selected by its terms or by its vector, or that is a neighbour of such a turn:
/// at most two turns before or after it in its session.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub seq: i64,
    /// The session, as in [`SessionStatistics`].
    pub session: i64,
    /// The turn before it in its session, if that is a candidate, too.
    pub previous: Option<i64>,
    pub ts: Timestamp,
    /// In terms.
    pub length: u32,
    pub counts: Vec<TermCount>,
    pub vector: Arc<[i8]>,
    /// The vector of the query's model; empty if the turn has none yet.
    pub model_vector: Vec<i8>,
    /// Whether the turn may be a result. Otherwise it only helps to rank its neighbours.
    pub in_scope: bool,
}

/// The statistics of a candidate's session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionStatistics {
    pub session: i64,
    /// The length of all its turns, in terms.
    pub length: u64,
    pub counts: Vec<TermCount>,
}
