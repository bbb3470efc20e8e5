//! Ranking: pure, and the same for every store.
//!
//! A turn's value is the sum of its own lexical value (BM25), that of its neighbours and its
//! session, and the cosine of its vector. Lexical and dense values are z-scores among the
//! candidates of the same query before they are added, because neither has a scale of its own.
//! docs/recall.md says what each part adds.

use std::collections::{BTreeMap, HashMap};

use hob_domain::memory::{Candidate, CandidateSet, DocumentFrequency, QueryTerm, TermCount};
use hob_index::bm25::{Bm25, idf};

use crate::embed::quantize::cosines;
use crate::recall::period::Period;
use crate::recall::types::{Evidence, ScoredCandidate};
use crate::recall::weights::{DenseWeight, WEIGHTS};
use crate::text::writing_systems::is_ideograph;

/// How much the query's terms leave open. Both values are from 0 to 1.
#[derive(Clone, Copy)]
struct LexicalGaps {
    /// The share of the terms that the best turn has.
    coverage: f64,
    /// The share of the terms that no turn has, so that the answer must use other words.
    paraphrase: f64,
}

impl DenseWeight {
    fn at(&self, gaps: LexicalGaps) -> f64 {
        self.base
            + self.uncovered * (1.0 - gaps.coverage)
            + WEIGHTS.dense_paraphrase * gaps.paraphrase
    }
}

/// The parts of a query that ranking needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RankingQuery<'a> {
    /// The terms in the order of the candidate query: the query's own, then the added ones.
    pub(crate) terms: &'a [QueryTerm],
    /// For each added term the index of the own term that it is related to, if any.
    pub(crate) related_to: &'a [Option<usize>],
    /// For each own term whether the table has a vector for it.
    pub(crate) has_vector: &'a [bool],
    pub(crate) vector: &'a [i8],
    /// The vector by the model; empty without a model.
    pub(crate) model_vector: &'a [i8],
    pub(crate) periods: &'a [Period],
    /// How many of the best candidates get evidence. The others are not shown.
    pub(crate) explained: usize,
}

/// Maps a sum to a score from 0 to 1.
pub(crate) fn score(sum: f64) -> f64 {
    1.0 / (1.0 + (-sum / 2.0).exp())
}

/// Orders the candidates in scope, the best first. Of equals the newest is first.
pub(crate) fn rank(set: &CandidateSet, query: &RankingQuery<'_>) -> Vec<ScoredCandidate> {
    let candidates = &set.candidates;
    let idfs = turn_idfs(set);
    let term_weights = term_weights(query, &idfs);
    let own_weights = own_term_weights(set, query, &idfs);
    let context = Neighbourhood::of(candidates);
    let lexical = lexical_values(set, &context, &idfs, &term_weights);
    let table_cosines = cosines(query.vector, candidates.iter().map(|one| &*one.vector));
    let model_cosines =
        cosines(query.model_vector, candidates.iter().map(|one| &*one.model_vector));
    let gaps = LexicalGaps {
        coverage: coverage(candidates, &own_weights),
        paraphrase: paraphrase(set, query, &own_weights),
    };
    let dense = dense_values(&context, &table_cosines, &model_cosines, gaps);
    let in_period: Vec<f64> = candidates
        .iter()
        .map(|candidate| {
            let each = query.periods.iter().map(|period| period.nearness(candidate.ts));
            each.fold(0.0, f64::max)
        })
        .collect();
    let lexical_weight = 1.0 - WEIGHTS.lexical_paraphrase_loss * gaps.paraphrase;
    let mut sums: Vec<f64> = z_scores(&lexical)
        .into_iter()
        .zip(dense)
        .zip(&in_period)
        .map(|((lexical, dense), in_period)| {
            lexical_weight * lexical + dense + WEIGHTS.period * in_period
        })
        .collect();
    let best = context.best_of_session(&sums);
    for (sum, best) in sums.iter_mut().zip(best) {
        *sum += WEIGHTS.best_of_session * best;
    }
    add_length(set, &mut sums);
    let mut order: Vec<usize> =
        (0..candidates.len()).filter(|index| candidates[*index].in_scope).collect();
    order.sort_by(|a, b| {
        let (one, other) = (&candidates[*a], &candidates[*b]);
        sums[*b].total_cmp(&sums[*a]).then(other.ts.cmp(&one.ts)).then(other.seq.cmp(&one.seq))
    });
    let is_similar = |index: usize| {
        table_cosines[index].is_some_and(|cosine| cosine >= WEIGHTS.similar_table_cosine)
            || model_cosines[index].is_some_and(|cosine| cosine >= WEIGHTS.similar_model_cosine)
    };
    let evidence = |index: usize| Evidence {
        terms: candidates[index].counts.iter().map(|count| count.term).collect(),
        similar_meaning: is_similar(index),
        in_period: in_period[index] > 0.5,
        ..Evidence::default()
    };
    let scored = |(place, index): (usize, usize)| ScoredCandidate {
        seq: candidates[index].seq,
        ts: candidates[index].ts,
        sum: sums[index],
        evidence: if place < query.explained { evidence(index) } else { Evidence::default() },
    };
    order.into_iter().enumerate().map(scored).collect()
}

/// Returns the idf of each term among turns.
pub(crate) fn turn_idfs(set: &CandidateSet) -> Vec<f64> {
    set.document_frequencies.iter().map(|df| idf(set.turns, df.turns)).collect()
}

/// Returns the weight of each term. A related term must not gain from a greater idf than that of
/// the term it is related to.
fn term_weights(query: &RankingQuery<'_>, idfs: &[f64]) -> Vec<f64> {
    let own = query.terms.len() - query.related_to.len();
    let weight = |(index, (term, term_idf)): (usize, (&QueryTerm, &f64))| {
        let related_to = index.checked_sub(own).and_then(|added| query.related_to[added]);
        let max_idf = related_to.and_then(|own| idfs.get(own));
        let share = max_idf.map_or(1.0, |max_idf| (max_idf / term_idf.max(1e-9)).min(1.0));
        f64::from(term.weight) * share
    };
    query.terms.iter().zip(idfs).enumerate().map(weight).collect()
}

/// Returns the weight of each own term times its idf. A pair of ideographs that neither a turn nor
/// the table has is not a word but the end of one and the beginning of the next; its weight is 0.
fn own_term_weights(set: &CandidateSet, query: &RankingQuery<'_>, idfs: &[f64]) -> Vec<f64> {
    let own = query.terms.iter().zip(idfs).zip(&set.document_frequencies).zip(query.has_vector);
    let weight =
        |(((term, idf), df), has_vector): (((&QueryTerm, &f64), &DocumentFrequency), &bool)| {
            let is_word = *has_vector || df.turns > 0 || !term.term.starts_with(is_ideograph);
            if is_word { f64::from(term.weight) * idf } else { 0.0 }
        };
    own.map(weight).collect()
}

/// Returns the share of the query that the turn with most of it has, from 0 to 1.
fn coverage(candidates: &[Candidate], own_weights: &[f64]) -> f64 {
    // A term that no candidate has says nothing about where to look.
    let occurs =
        |term: usize| candidates.iter().any(|one| one.counts.iter().any(|c| c.term == term));
    let all: f64 =
        (0..own_weights.len()).filter(|term| occurs(*term)).map(|term| own_weights[term]).sum();
    let covered = |candidate: &Candidate| -> f64 {
        candidate.counts.iter().filter_map(|count| own_weights.get(count.term)).sum()
    };
    let most = candidates.iter().map(covered).fold(0.0, f64::max);
    if all > 0.0 { (most / all).min(1.0) } else { 0.0 }
}

/// Returns how much of the query must have been said in other words: the share of its terms that
/// the table has and no turn has, beyond the threshold. From 0 to 1.
fn paraphrase(set: &CandidateSet, query: &RankingQuery<'_>, own_weights: &[f64]) -> f64 {
    let (mut all, mut nowhere) = (0.0, 0.0);
    let terms = own_weights.iter().zip(&set.document_frequencies).zip(query.has_vector);
    for ((weight, df), has_vector) in terms {
        all += weight;
        if df.turns == 0 && *has_vector {
            nowhere += weight;
        }
    }
    let share = if all > 0.0 { nowhere / all } else { 0.0 };
    let threshold = WEIGHTS.paraphrase_threshold;
    ((share - threshold) / (1.0 - threshold)).max(0.0)
}

/// Adds the value of the turns' lengths.
fn add_length(set: &CandidateSet, sums: &mut [f64]) {
    let average = average_length(set);
    let few = (set.candidates.len() as f64 / WEIGHTS.full_length_candidates).min(1.0);
    let weight = WEIGHTS.length * few;
    for (sum, candidate) in sums.iter_mut().zip(&set.candidates) {
        let length = f64::from(candidate.length).min(WEIGHTS.max_length_terms);
        *sum += weight * ((1.0 + length) / (1.0 + average)).ln();
    }
}

/// Returns the average number of terms of a turn.
fn average_length(set: &CandidateSet) -> f64 {
    (set.length as f64 / (set.turns as f64).max(1.0)).max(1.0)
}

/// The neighbours and sessions of candidates, by their indices.
struct Neighbourhood {
    previous: Vec<Option<usize>>,
    next: Vec<Option<usize>>,
    sessions: BTreeMap<i64, Vec<usize>>,
}

impl Neighbourhood {
    fn of(candidates: &[Candidate]) -> Neighbourhood {
        let index_of = |seq: i64| candidates.binary_search_by_key(&seq, |one| one.seq).ok();
        let mut neighbourhood = Neighbourhood {
            previous: vec![None; candidates.len()],
            next: vec![None; candidates.len()],
            sessions: BTreeMap::new(),
        };
        for (index, candidate) in candidates.iter().enumerate() {
            let previous = candidate.previous.and_then(index_of);
            neighbourhood.previous[index] = previous;
            if let Some(previous) = previous {
                neighbourhood.next[previous] = Some(index);
            }
            neighbourhood.sessions.entry(candidate.session).or_default().push(index);
        }
        neighbourhood
    }

    /// Returns a value plus the weighted values of its neighbours, the nearest first.
    fn with_neighbours(
        &self,
        values: &[f64],
        index: usize,
        previous_weights: &[f64],
        next_weights: &[f64],
    ) -> f64 {
        let mut sum = values[index];
        let directions = [(&self.previous, previous_weights), (&self.next, next_weights)];
        for (links, weights) in directions {
            let mut at = links[index];
            for weight in weights {
                let Some(neighbour) = at else { break };
                sum += weight * values[neighbour];
                at = links[neighbour];
            }
        }
        sum
    }

    /// Returns for each candidate the greatest value of its session.
    fn best_of_session(&self, values: &[f64]) -> Vec<f64> {
        let mut best = vec![0.0; values.len()];
        for indices in self.sessions.values() {
            let greatest = indices.iter().map(|index| values[*index]).fold(f64::MIN, f64::max);
            for index in indices {
                best[*index] = greatest;
            }
        }
        best
    }
}

/// Returns for each candidate its BM25, with that of its neighbours and its session.
fn lexical_values(
    set: &CandidateSet,
    context: &Neighbourhood,
    idfs: &[f64],
    term_weights: &[f64],
) -> Vec<f64> {
    let bm25 = |counts: &[TermCount], bm25: Bm25<f64>, idfs: &[f64], length: f64| -> f64 {
        let value = |count: &TermCount| {
            let weight = term_weights.get(count.term)? * idfs.get(count.term)?;
            Some(weight * bm25.saturation(f64::from(count.times), length))
        };
        counts.iter().filter_map(value).sum()
    };
    let average = average_length(set);
    let turn = |one: &Candidate| {
        bm25(&one.counts, WEIGHTS.turn_bm25, idfs, f64::from(one.length) / average)
    };
    let own: Vec<f64> = set.candidates.iter().map(turn).collect();
    let session_idfs: Vec<f64> = set
        .document_frequencies
        .iter()
        .map(|df| idf(set.sessions, df.sessions.min(set.sessions)))
        .collect();
    let average = (set.length as f64 / (set.sessions as f64).max(1.0)).max(1.0);
    let sessions: HashMap<i64, f64> = set
        .session_statistics
        .iter()
        .map(|one| {
            let length = one.length as f64 / average;
            (one.session, bm25(&one.counts, WEIGHTS.session_bm25, &session_idfs, length))
        })
        .collect();
    let value = |(index, candidate): (usize, &Candidate)| {
        let session = sessions.get(&candidate.session).copied().unwrap_or_default();
        let (previous, next) = (&WEIGHTS.lexical_previous, &WEIGHTS.lexical_next);
        context.with_neighbours(&own, index, previous, next) + WEIGHTS.lexical_session * session
    };
    set.candidates.iter().enumerate().map(value).collect()
}

/// Returns for each candidate the value of its vectors: the model's if it has one, else the
/// table's.
///
/// Cosines of two kinds of vectors are on two scales, so each is compared with its own kind only.
fn dense_values(
    context: &Neighbourhood,
    table_cosines: &[Option<f64>],
    model_cosines: &[Option<f64>],
    gaps: LexicalGaps,
) -> Vec<f64> {
    let table = relative_cosines(context, table_cosines);
    let enough = model_cosines.iter().flatten().count() >= WEIGHTS.min_model_vectors;
    let model = if enough {
        relative_cosines(context, model_cosines)
    } else {
        vec![0.0; model_cosines.len()]
    };
    let value = |index: usize| match model_cosines[index] {
        Some(_) if enough => WEIGHTS.model.at(gaps) * model[index],
        _ => WEIGHTS.table.at(gaps) * table[index],
    };
    (0..table_cosines.len()).map(value).collect()
}

/// Returns the z-scores of one kind of cosines, with those of the turn before and of the session. A
/// candidate without a vector counts as an average one.
fn relative_cosines(context: &Neighbourhood, cosines: &[Option<f64>]) -> Vec<f64> {
    let count = cosines.iter().flatten().count().max(1) as f64;
    let average = cosines.iter().flatten().sum::<f64>() / count;
    let cosines: Vec<f64> = cosines.iter().map(|cosine| cosine.unwrap_or(average)).collect();
    let mut of_session = vec![0.0; cosines.len()];
    for indices in context.sessions.values() {
        let mut nearest: Vec<f64> = indices.iter().map(|index| cosines[*index]).collect();
        nearest.sort_by(|a, b| b.total_cmp(a));
        nearest.truncate(WEIGHTS.dense_session_turns);
        let mean = nearest.iter().sum::<f64>() / nearest.len() as f64;
        for index in indices {
            of_session[*index] = mean;
        }
    }
    let values: Vec<f64> = (0..cosines.len())
        .map(|index| {
            context.with_neighbours(&cosines, index, &[WEIGHTS.dense_previous], &[])
                + WEIGHTS.dense_session * of_session[index]
        })
        .collect();
    z_scores(&values)
}

/// Returns each value's distance from the mean in standard deviations.
fn z_scores(values: &[f64]) -> Vec<f64> {
    let count = (values.len() as f64).max(1.0);
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    let deviation = variance.sqrt();
    let z_score = |value: &f64| if deviation > 1e-9 { (value - mean) / deviation } else { 0.0 };
    values.iter().map(z_score).collect()
}

#[cfg(test)]
#[path = "rank_tests.rs"]
mod tests;
