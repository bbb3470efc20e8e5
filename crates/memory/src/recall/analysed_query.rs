//! A query's terms, vector and periods: what the store is asked for, and what candidates are ranked
//! by.

use hob_domain::Timestamp;
use hob_domain::memory::{CandidateQuery, CandidateSet, KindVector, QueryTerm};

use crate::indexer::TextIndexer;
use crate::recall::expected_terms::expected_terms;
use crate::recall::passage::PassageFinder;
use crate::recall::period::{Period, periods};
use crate::recall::person_names::without_names;
use crate::recall::rank::{RankingQuery, rank, turn_idfs};
use crate::recall::reason::reason;
use crate::recall::types::{ScoredCandidate, ScoredRecord};
use crate::recall::weights::WEIGHTS;
use crate::text::analyse::{Analyser, is_compound, is_single_ideograph};
use crate::text::work::work_term;
use crate::text::writing_systems::is_katakana_part;

/// A query that is ready to be searched for.
pub(crate) struct AnalysedQuery {
    text: String,
    /// The query's own terms, then the added ones.
    terms: Vec<QueryTerm>,
    /// For each added term the index of the own term that it is related to. Terms that the answer
    /// is expected to have are related to none.
    related_to: Vec<Option<usize>>,
    vector: Vec<i8>,
    model_vector: Option<KindVector>,
    periods: Vec<Period>,
}

/// Returns the text to embed with a model before anything is known about the turns.
pub(crate) fn without_any_names(query: &str) -> String {
    without_names(query, |_| true)
}

impl AnalysedQuery {
    /// Analyses a query. `model_vector` is the vector of the query without its names, if there is a
    /// model.
    pub(crate) fn new(
        indexer: &TextIndexer,
        text: &str,
        model_vector: Option<KindVector>,
        now: Timestamp,
    ) -> AnalysedQuery {
        let own = indexer.analyser.query_terms(text);
        let mut terms: Vec<QueryTerm> = own
            .iter()
            .map(|term| QueryTerm { term: term.clone(), weight: own_term_weight(term, &own) })
            .collect();
        let mut related_to = Vec::new();
        let words = own.iter().enumerate().filter(|(_, term)| !is_compound(term));
        for (index, term) in words {
            for (related, cosine) in indexer.embedder.related_terms(term) {
                if related_to.len() < WEIGHTS.max_related_terms && !has_term(&terms, related) {
                    let weight = WEIGHTS.related_term * cosine * cosine;
                    terms.push(QueryTerm { term: related.to_owned(), weight });
                    related_to.push(Some(index));
                }
            }
        }
        for (expected, weight) in expected_terms(text) {
            if !has_term(&terms, expected) {
                terms.push(QueryTerm { term: expected.to_owned(), weight });
                related_to.push(None);
            }
        }
        for index in 0..own.len() {
            let weight = WEIGHTS.work_term * terms[index].weight;
            terms.push(QueryTerm { term: work_term(&own[index]), weight });
            related_to.push(Some(index));
        }
        let weighted: Vec<(&str, f32)> = own.iter().map(|term| (term.as_str(), 1.0)).collect();
        AnalysedQuery {
            vector: indexer.embedder.embed_query(&weighted),
            text: text.to_owned(),
            model_vector,
            terms,
            related_to,
            periods: periods(text, now),
        }
    }

    /// Returns the query for `limit` candidates by their terms, and as many by their vectors.
    pub(crate) fn candidate_query(&self, limit: usize) -> CandidateQuery {
        CandidateQuery {
            terms: self.terms.clone(),
            vector: self.vector.clone(),
            model_vector: self.model_vector.clone(),
            limit,
        }
    }

    /// Returns the text to embed with a model: the query without names that most of these turns
    /// have.
    pub(crate) fn without_common_names(&self, indexer: &TextIndexer, set: &CandidateSet) -> String {
        let share = |term: &String| {
            let index = self.terms.iter().position(|known| known.term == *term)?;
            let turns = set.document_frequencies.get(index)?.turns;
            Some(turns as f64 / (set.turns as f64).max(1.0))
        };
        without_names(&self.text, |name| {
            let mut terms = indexer.analyser.query_terms(name).into_iter();
            terms.all(|term| share(&term).is_some_and(|share| share >= WEIGHTS.common_name_share))
        })
    }

    /// Ranks candidates. `model_vector` is the query's vector by the model, if there is one. The
    /// best `explained` candidates get evidence.
    pub(crate) fn rank(
        &self,
        indexer: &TextIndexer,
        set: &CandidateSet,
        model_vector: Option<&KindVector>,
        explained: usize,
    ) -> Vec<ScoredCandidate> {
        // A term that all turns have says nothing in this index, whatever it says elsewhere. The
        // query is therefore embedded again with the idf of its terms.
        let idfs = turn_idfs(set);
        let own = self.terms.iter().zip(&idfs).take(self.own_terms());
        let weighted: Vec<(&str, f32)> =
            own.map(|(term, idf)| (term.term.as_str(), *idf as f32)).collect();
        let vector = indexer.embedder.embed_query(&weighted);
        let has_vector: Vec<bool> =
            weighted.iter().map(|(term, _)| indexer.embedder.has_term(term)).collect();
        let query = RankingQuery {
            terms: &self.terms,
            related_to: &self.related_to,
            has_vector: &has_vector,
            vector: &vector,
            model_vector: model_vector.map_or(&[], |model| &model.vector),
            periods: &self.periods,
            explained,
        };
        rank(set, &query)
    }

    /// Returns the reason why a record was found, in words for the user.
    pub(crate) fn reason(&self, scored: &ScoredRecord, analyser: &Analyser) -> String {
        reason(scored, &self.terms, self.own_terms(), analyser)
    }

    /// Returns what finds the passage of a long text that answers the query.
    pub(crate) fn passages<'a>(
        &'a self,
        analyser: &'a Analyser,
        idfs: &'a [f64],
    ) -> PassageFinder<'a> {
        let value =
            |(term, idf): (&'a QueryTerm, &f64)| (&*term.term, f64::from(term.weight) * idf);
        PassageFinder::new(analyser, self.terms.iter().zip(idfs).map(value))
    }

    fn own_terms(&self) -> usize {
        self.terms.len() - self.related_to.len()
    }
}

fn has_term(terms: &[QueryTerm], term: &str) -> bool {
    terms.iter().any(|known| known.term == term)
}

fn own_term_weight(term: &str, own: &[String]) -> f32 {
    if is_single_ideograph(term) {
        WEIGHTS.single_ideograph
    } else if is_katakana_part(term, own.iter().map(String::as_str)) {
        WEIGHTS.katakana_part
    } else {
        1.0
    }
}
