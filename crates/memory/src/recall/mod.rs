//! Recall: from a query to the turns that answer it, ranked, explained and within a token budget.
//!
//! The types along the way, each made from the one before:
//!
//! 1. `RecallQuery` (engine): what a caller asks: a text, a scope, a limit and a budget.
//! 2. [`AnalysedQuery`](analysed_query::AnalysedQuery): the text's terms, related terms, vector and
//!    periods.
//! 3. `CandidateQuery` (domain): the part of it that a store needs.
//! 4. `CandidateSet` of `Candidate`s (domain): what the store returns: counts and vectors, no
//!    texts.
//! 5. [`ScoredCandidate`](types::ScoredCandidate): a candidate with its sum and
//!    [`Evidence`](types::Evidence).
//! 6. [`ScoredRecord`](types::ScoredRecord): a candidate whose record has been read, so that its
//!    text counts.
//! 7. `RecallHit` (engine): a record in the answer, with a score from 0 to 1 and a reason in words.
//!
//! Everything in this folder is pure. docs/recall.md says what each part of the ranking adds.

pub(crate) mod analysed_query;
mod boilerplate;
mod change_words;
mod expected_terms;
mod features;
pub(crate) mod newest;
pub(crate) mod pack;
pub(crate) mod passage;
mod period;
mod person_names;
pub(crate) mod rank;
mod reason;
pub(crate) mod rerank;
pub(crate) mod scores;
pub(crate) mod session_start;
mod speakers;
mod standing_rules;
mod tokens;
pub(crate) mod types;
pub(crate) mod user_rules;
pub(crate) mod weights;
