//! Ranking: pure, and the same for every store.
//!
//! Every candidate gets [`Features`], and its sum is their weighted sum. docs/recall.md says how the
//! weights were fitted.

use std::collections::{BTreeMap, HashMap};

use hob_domain::memory::{Candidate, CandidateSet, DocumentFrequency, QueryTerm, TermCount};
use hob_index::bm25::{Bm25, idf};

use crate::embed::quantize::cosines;
use crate::recall::features::Features;
use crate::recall::period::Period;
use crate::recall::types::{Evidence, Likelihood, ScoredCandidate};
use crate::recall::weights::WEIGHTS;
use crate::text::writing_systems::is_ideograph;

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

/// Orders the candidates in scope, the best first. Of equals the newest is first.
pub(crate) fn rank(set: &CandidateSet, query: &RankingQuery<'_>) -> Vec<ScoredCandidate> {
    let candidates = &set.candidates;
    let table_cosines = cosines(query.vector, candidates.iter().map(|one| &*one.vector));
    let model_cosines =
        cosines(query.model_vector, candidates.iter().map(|one| &*one.model_vector));
    let idfs = turn_idfs(set);
    let own_weights = own_term_weights(set, query, &idfs);
    let lexical = LexicalValues::of(set, query, &idfs, &own_weights);
    let paraphrase = paraphrase(set, query, &own_weights);
    let cosines = (&*table_cosines, &*model_cosines);
    let mut features = features(candidates, query.periods, &lexical, paraphrase, cosines);
    for (features, candidate) in features.iter_mut().zip(candidates) {
        features.coverage = coverage(candidate, query, &own_weights);
    }
    let mut order: Vec<usize> =
        (0..candidates.len()).filter(|index| candidates[*index].in_scope).collect();
    let sums: Vec<f64> = features.iter().map(|one| one.dot(&WEIGHTS.features)).collect();
    let likelihood = |index: usize| Likelihood {
        coverage: features[index].coverage,
        best_cosine_nearby: features[index].best_cosine_nearby,
        candidates: candidates.len(),
        sum_shift: 0.0,
    };
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
        near_match: features[index].best_lexical_nearby > 0.0,
        in_period: features[index].in_period > 0.5,
        ..Evidence::default()
    };
    let scored = |(place, index): (usize, usize)| ScoredCandidate {
        seq: candidates[index].seq,
        ts: candidates[index].ts,
        sum: sums[index],
        features: features[index],
        likelihood: likelihood(index),
        evidence: if place < query.explained { evidence(index) } else { Evidence::default() },
    };
    order.into_iter().enumerate().map(scored).collect()
}

/// Returns the features of each candidate.
fn features(
    candidates: &[Candidate],
    periods: &[Period],
    lexical: &LexicalValues,
    paraphrase: f64,
    (table_cosines, model_cosines): (&[Option<f64>], &[Option<f64>]),
) -> Vec<Features> {
    let context = Neighbourhood::of(candidates);
    let with_context = z_scores(&lexical.with_context(candidates, &context));
    let dense = dense_values(candidates, &context, table_cosines, model_cosines);
    let cosines = filled(&if has_enough(model_cosines) {
        model_cosines.iter().zip(table_cosines).map(|(model, table)| model.or(*table)).collect()
    } else {
        table_cosines.to_vec()
    });
    let average = mean(&cosines);
    let above_average: Vec<f64> = cosines.iter().map(|one| (one - average).max(0.0)).collect();
    // Among few candidates no z-score is great, and a match must not lose to a turn of a better
    // length.
    let few = (candidates.len() as f64 / WEIGHTS.full_length_candidates).min(1.0);
    let of = |(index, candidate): (usize, &Candidate)| {
        let periods = periods.iter().map(|period| period.nearness(candidate.ts));
        let length = (1.0 + f64::from(candidate.length)).ln();
        let best_length = (1.0 + WEIGHTS.best_length_terms).ln();
        Features {
            lexical: with_context[index],
            dense: dense[index],
            lexical_if_paraphrased: paraphrase * with_context[index],
            dense_if_paraphrased: paraphrase * dense[index],
            best_lexical_nearby: context.greatest_nearby(&lexical.own, index),
            best_cosine_nearby: context.greatest_nearby(&cosines, index),
            similar_surroundings: context.surroundings(&above_average, index),
            in_period: periods.fold(0.0, f64::max),
            length: few * length.min(best_length),
            excess_length: few * (length - best_length).max(0.0),
            ..Features::default()
        }
    };
    candidates.iter().enumerate().map(of).collect()
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

/// Returns the share of the query's own terms that a turn has, from 0 to 1. A related term counts
/// by its cosine.
fn coverage(candidate: &Candidate, query: &RankingQuery<'_>, own_weights: &[f64]) -> f64 {
    let mut found = vec![0_f64; own_weights.len()];
    for count in &candidate.counts {
        let (own, share) = match count.term.checked_sub(own_weights.len()) {
            None => (Some(count.term), 1.0),
            Some(added) => {
                let weight = query.terms[count.term].weight / WEIGHTS.related_term;
                let related_to = query.related_to.get(added).copied().flatten();
                (related_to, WEIGHTS.related_term_coverage * f64::from(weight).max(0.0).sqrt())
            }
        };
        if let Some(own) = own {
            found[own] = found[own].max(share);
        }
    }
    let covered: f64 = found.iter().zip(own_weights).map(|(share, weight)| share * weight).sum();
    covered / own_weights.iter().sum::<f64>().max(1e-9)
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

    fn before(&self, index: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.previous[index], |at| self.previous[*at])
    }

    fn after(&self, index: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.next[index], |at| self.next[*at])
    }

    /// Returns the weighted sum of the values of a turn's neighbours. The weights of each side are
    /// those of the nearest neighbours first.
    fn weighted(&self, values: &[f64], index: usize, before: &[f64], after: &[f64]) -> f64 {
        let before = self.before(index).zip(before);
        let after = self.after(index).zip(after);
        before.chain(after).map(|(neighbour, weight)| weight * values[neighbour]).sum()
    }

    /// Returns the greatest value of a turn and the turns nearby.
    fn greatest_nearby(&self, values: &[f64], index: usize) -> f64 {
        let (before, after) = (self.before(index), self.after(index));
        let nearby = before.take(WEIGHTS.nearby_turns).chain(after.take(WEIGHTS.nearby_turns));
        nearby.map(|neighbour| values[neighbour]).fold(values[index], f64::max)
    }

    /// Returns the sum of the values around a turn. The farther a neighbour is, the less it counts.
    fn surroundings(&self, values: &[f64], index: usize) -> f64 {
        let side = |neighbours: &mut dyn Iterator<Item = usize>| -> f64 {
            let decayed = std::iter::successors(Some(WEIGHTS.surroundings_decay), |weight| {
                Some(weight * WEIGHTS.surroundings_decay)
            });
            let near = neighbours.take(WEIGHTS.surrounding_turns);
            near.zip(decayed).map(|(neighbour, weight)| weight * values[neighbour]).sum()
        };
        side(&mut self.before(index)) + side(&mut self.after(index))
    }
}

/// BM25 values relative to the greatest that the query's own terms can give, about from 0 to 1.
struct LexicalValues {
    /// Of each candidate.
    own: Vec<f64>,
    /// Of each candidate's session.
    session: Vec<f64>,
}

impl LexicalValues {
    fn of(
        set: &CandidateSet,
        query: &RankingQuery<'_>,
        idfs: &[f64],
        own_weights: &[f64],
    ) -> LexicalValues {
        let term_weights = term_weights(query, idfs);
        let greatest = own_weights.iter().sum::<f64>().max(1e-9);
        let bm25 = |counts: &[TermCount], bm25: Bm25<f64>, idfs: &[f64], length: f64| -> f64 {
            let value = |count: &TermCount| {
                let weight = term_weights.get(count.term)? * idfs.get(count.term)?;
                Some(weight * bm25.saturation(f64::from(count.times), length))
            };
            counts.iter().filter_map(value).sum::<f64>() / greatest
        };
        let average = average_length(set.length, set.turns);
        let turn = |one: &Candidate| {
            bm25(&one.counts, WEIGHTS.turn_bm25, idfs, f64::from(one.length) / average)
        };
        let session_idfs: Vec<f64> = set
            .document_frequencies
            .iter()
            .map(|df| idf(set.sessions, df.sessions.min(set.sessions)))
            .collect();
        let average = average_length(set.length, set.sessions);
        let sessions: HashMap<i64, f64> = set
            .session_statistics
            .iter()
            .map(|one| {
                let length = one.length as f64 / average;
                (one.session, bm25(&one.counts, WEIGHTS.session_bm25, &session_idfs, length))
            })
            .collect();
        let session = |one: &Candidate| sessions.get(&one.session).copied().unwrap_or_default();
        LexicalValues {
            own: set.candidates.iter().map(turn).collect(),
            session: set.candidates.iter().map(session).collect(),
        }
    }

    /// Returns each value with those of the turn's neighbours and its session.
    fn with_context(&self, candidates: &[Candidate], context: &Neighbourhood) -> Vec<f64> {
        let (before, after) = (&WEIGHTS.lexical_previous, &WEIGHTS.lexical_next);
        let value = |index: usize| {
            let neighbours = context.weighted(&self.own, index, before, after);
            self.own[index]
                + context_share(&candidates[index]) * neighbours
                + WEIGHTS.lexical_session * self.session[index]
        };
        (0..candidates.len()).map(value).collect()
    }
}

/// Returns how much a turn takes from its neighbours, from 0 to 1. A short turn has its subject from
/// the turns around it; a long one stands by itself, and a long reply must not take the place of the
/// prompt that it repeats.
fn context_share(candidate: &Candidate) -> f64 {
    (WEIGHTS.best_length_terms / (1.0 + f64::from(candidate.length))).min(1.0)
}

fn average_length(length: u64, documents: u64) -> f64 {
    (length as f64 / (documents as f64).max(1.0)).max(1.0)
}

/// Returns for each candidate the z-score of its vector: the model's if it has one, else the
/// table's.
///
/// Cosines of two kinds of vectors are on two scales, so each is compared with its own kind only.
fn dense_values(
    candidates: &[Candidate],
    context: &Neighbourhood,
    table_cosines: &[Option<f64>],
    model_cosines: &[Option<f64>],
) -> Vec<f64> {
    let table = relative_cosines(candidates, context, table_cosines);
    if !has_enough(model_cosines) {
        return table;
    }
    let model = relative_cosines(candidates, context, model_cosines);
    let value = |((cosine, model), table): ((&Option<f64>, f64), f64)| {
        if cosine.is_some() { model } else { table }
    };
    model_cosines.iter().zip(model).zip(table).map(value).collect()
}

/// Returns whether enough candidates have a vector of the model.
fn has_enough(model_cosines: &[Option<f64>]) -> bool {
    model_cosines.iter().flatten().count() >= WEIGHTS.min_model_vectors
}

/// Returns the z-scores of one kind of cosines, with those of the turn before and of the session.
fn relative_cosines(
    candidates: &[Candidate],
    context: &Neighbourhood,
    cosines: &[Option<f64>],
) -> Vec<f64> {
    let cosines = filled(cosines);
    let mut of_session = vec![0.0; cosines.len()];
    for indices in context.sessions.values() {
        let mut nearest: Vec<f64> = indices.iter().map(|index| cosines[*index]).collect();
        nearest.sort_by(|a, b| b.total_cmp(a));
        nearest.truncate(WEIGHTS.dense_session_turns);
        let mean = mean(&nearest);
        for index in indices {
            of_session[*index] = mean;
        }
    }
    let value = |index: usize| {
        let previous = context.weighted(&cosines, index, &[WEIGHTS.dense_previous], &[]);
        cosines[index]
            + context_share(&candidates[index]) * previous
            + WEIGHTS.dense_session * of_session[index]
    };
    z_scores(&(0..cosines.len()).map(value).collect::<Vec<f64>>())
}

/// Returns the cosines, with the average one for each candidate that has no vector.
fn filled(cosines: &[Option<f64>]) -> Vec<f64> {
    let known: Vec<f64> = cosines.iter().flatten().copied().collect();
    let average = mean(&known);
    cosines.iter().map(|cosine| cosine.unwrap_or(average)).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / (values.len() as f64).max(1.0)
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let mean_value = mean(values);
    let squares: Vec<f64> = values.iter().map(|value| (value - mean_value).powi(2)).collect();
    (mean_value, mean(&squares).sqrt())
}

/// Returns each value's distance from the mean in standard deviations.
fn z_scores(values: &[f64]) -> Vec<f64> {
    let (mean_value, deviation) = mean_and_deviation(values);
    let z_score =
        |value: &f64| if deviation > 1e-9 { (value - mean_value) / deviation } else { 0.0 };
    values.iter().map(z_score).collect()
}

#[cfg(test)]
#[path = "rank_tests.rs"]
mod tests;
