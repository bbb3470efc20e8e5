//! A question on its way to the store and back.

use hob_domain::Timestamp;
use hob_domain::memory::{CandidateQuery, CandidateSet, KindVector, QueryTerm};

use crate::capture::prepare::Preparer;
use crate::recall::answers::answers;
use crate::recall::names::without_names;
use crate::recall::pack::{Ranked, reason};
use crate::recall::period::{Period, periods};
use crate::recall::rank::{Asked, Scored, rank, rarity};
use crate::text::analyse::{is_name, is_single};
use crate::text::writing_systems::is_part;

/// How many turns the store proposes at least for their terms, and for their vectors.
const PROPOSED: usize = 40;
/// A term that means the same counts so much, times its nearness squared.
const RELATED: f32 = 0.7;
/// How many of those a question gets at most.
const MOST_RELATED: usize = 40;

/// A single ideograph counts so much beside the pairs it is in, and a part of a word beside the whole.
const SINGLE: f32 = 0.7;
const PART: f32 = 0.1;

fn weight(term: &str, own: &[String]) -> f32 {
    if is_single(term) {
        SINGLE
    } else if is_part(term, own.iter().map(String::as_str)) {
        PART
    } else {
        1.0
    }
}

/// What is looked for.
pub(crate) struct Search {
    cue: String,
    terms: Vec<QueryTerm>,
    stands_for: Vec<Option<usize>>,
    vector: Vec<i8>,
    finer: Option<KindVector>,
    periods: Vec<Period>,
    limit: usize,
}

/// A name that is in so large a share of the turns does not tell them apart.
const COMMON: f64 = 0.2;

/// What a model is asked for first, when nothing is known yet of the turns.
pub(crate) fn without_any_names(cue: &str) -> String {
    without_names(cue, |_| true)
}

impl Search {
    /// `finer` is the vector by the model, where there is one, of the cue without its names.
    pub(crate) fn new(
        preparer: &Preparer,
        cue: &str,
        finer: Option<KindVector>,
        limit: usize,
        now: Timestamp,
    ) -> Search {
        let own = preparer.analyser.question(cue);
        let mut terms: Vec<QueryTerm> = own
            .iter()
            .map(|term| QueryTerm { term: term.clone(), weight: weight(term, &own) })
            .collect();
        let mut stands_for = Vec::new();
        for (place, term) in own.iter().enumerate().filter(|(_, term)| !is_name(term)) {
            for (other, near) in preparer.embedder.like(term) {
                if stands_for.len() < MOST_RELATED && !terms.iter().any(|known| known.term == other)
                {
                    terms.push(QueryTerm { term: other.to_owned(), weight: RELATED * near * near });
                    stands_for.push(Some(place));
                }
            }
        }
        for (other, weight) in answers(cue) {
            if !terms.iter().any(|known| known.term == other) {
                terms.push(QueryTerm { term: other.to_owned(), weight });
                stands_for.push(None);
            }
        }
        let worth: Vec<(&str, f32)> = own.iter().map(|term| (term.as_str(), 1.0)).collect();
        Search {
            vector: preparer.embedder.embed_question(cue, &worth),
            cue: cue.to_owned(),
            finer,
            terms,
            stands_for,
            periods: periods(cue, now),
            limit: PROPOSED.max(limit.saturating_mul(2)),
        }
    }

    pub(crate) fn probe(&self) -> CandidateQuery {
        CandidateQuery {
            terms: self.terms.clone(),
            vector: self.vector.clone(),
            model_vector: self.finer.clone(),
            limit: self.limit,
        }
    }

    /// How many terms are the question's own.
    fn own(&self) -> usize {
        self.terms.len() - self.stands_for.len()
    }

    /// The cue without the names that say nothing among these turns: what a model is asked for.
    pub(crate) fn without_common_names(
        &self,
        preparer: &Preparer,
        proposal: &CandidateSet,
    ) -> String {
        let share = |term: &String| {
            let place = self.terms.iter().position(|known| known.term == *term)?;
            Some(
                proposal.document_frequencies.get(place)?.turns as f64
                    / (proposal.turns as f64).max(1.0),
            )
        };
        without_names(&self.cue, |name| {
            let mut terms = preparer.analyser.question(name).into_iter();
            terms.all(|term| share(&term).is_some_and(|share| share >= COMMON))
        })
    }

    /// `finer` is the question's vector by the model, where there is one. Of no more than `shown` it is said why.
    pub(crate) fn rank(
        &self,
        preparer: &Preparer,
        proposal: &CandidateSet,
        finer: Option<&KindVector>,
        shown: usize,
    ) -> Vec<Scored> {
        // What all turns have says nothing here, whatever it says elsewhere.
        let rarity = rarity(proposal);
        let own = self.terms.iter().zip(&rarity).take(self.own());
        let worth: Vec<(&str, f32)> =
            own.map(|(term, rarity)| (term.term.as_str(), *rarity as f32)).collect();
        let vector = preparer.embedder.embed_question(&self.cue, &worth);
        let known: Vec<bool> =
            worth.iter().map(|(term, _)| preparer.embedder.knows(term)).collect();
        let asked = Asked {
            terms: &self.terms,
            stands_for: &self.stands_for,
            known: &known,
            vector: &vector,
            finer: finer.map_or(&[], |finer| &finer.vector),
            periods: &self.periods,
            shown,
        };
        rank(proposal, &asked)
    }

    pub(crate) fn reason(&self, hit: &Ranked) -> String {
        reason(hit, &self.terms, self.own())
    }
}
