//! How likely a turn answers: the scores of the hits, and which turns are hits.

use std::collections::HashMap;

use crate::recall::types::{Likelihood, ScoredRecord};
use crate::recall::weights::WEIGHTS;

/// Turns of the preferred project come first if they are at least this likely to answer, compared
/// with the best turn of the other projects.
const PREFERRED_SHARE: f64 = 0.1;

impl Likelihood {
    /// Returns the probability that a turn at this place, counted from 0, answers the query. Its lead is
    /// by how much its sum is greater than those of the next hits.
    pub(crate) fn score(&self, lead: f64, place: usize) -> f64 {
        let weights = &WEIGHTS.score;
        let logit = weights.constant
            + weights.coverage * self.coverage
            + weights.best_cosine_nearby * self.best_cosine_nearby
            + weights.place / (1.0 + place as f64)
            + weights.lead * lead.clamp(0.0, WEIGHTS.max_lead).ln_1p();
        1.0 / (1.0 + (-logit).exp())
    }
}

/// Puts the records of a project first, except those that are far less likely to answer than the best
/// of the other projects. Returns how many are first.
pub(crate) fn put_first(project: &str, records: &mut Vec<ScoredRecord>) -> usize {
    let is_own = |scored: &ScoredRecord| scored.record.place.project == project;
    let (own, mut rest): (Vec<ScoredRecord>, Vec<ScoredRecord>) =
        std::mem::take(records).into_iter().partition(is_own);
    let leads = leads(&rest.iter().map(wide_sum).collect::<Vec<f64>>());
    let others = rest.iter().zip(leads).map(|(scored, lead)| scored.likelihood.score(lead, 0));
    let best = others.fold(0.0, f64::max);
    // A lead over the project's other turns says nothing about those of other projects.
    let is_likely =
        |scored: &ScoredRecord| scored.likelihood.score(0.0, 0) >= PREFERRED_SHARE * best;
    let (first, unlikely): (Vec<ScoredRecord>, Vec<ScoredRecord>) =
        own.into_iter().partition(is_likely);
    rest.extend(unlikely);
    rest.sort_by(|a, b| wide_sum(b).total_cmp(&wide_sum(a)).then(b.record.ts.cmp(&a.record.ts)));
    let count = first.len();
    records.extend(first.into_iter().chain(rest));
    count
}

/// Returns a record's sum in the search of all projects; in the project's own search if only that found it.
fn wide_sum(scored: &ScoredRecord) -> f64 {
    scored.sum + scored.likelihood.sum_shift
}

/// Returns by how much each sum is greater than the mean of the next ones.
fn leads(sums: &[f64]) -> Vec<f64> {
    let lead = |(index, sum): (usize, &f64)| {
        let next = &sums[index + 1..sums.len().min(index + 1 + WEIGHTS.compared_hits)];
        if next.is_empty() { 0.0 } else { sum - next.iter().sum::<f64>() / next.len() as f64 }
    };
    sums.iter().enumerate().map(lead).collect()
}

/// Leaves out the records that are too unlikely to answer, and returns the scores of the others. No
/// score is greater than the one before it, but for the first one after the `preferred` records.
pub(crate) fn scores(
    records: &mut Vec<ScoredRecord>,
    preferred: usize,
    min_score: Option<f64>,
) -> HashMap<i64, f64> {
    let (first, rest) = records.split_at(preferred);
    let mut leads_of_all = leads(&first.iter().map(|scored| scored.sum).collect::<Vec<f64>>());
    leads_of_all.extend(leads(&rest.iter().map(wide_sum).collect::<Vec<f64>>()));
    let mut scores = HashMap::new();
    let mut lowest = 1.0_f64;
    let (mut index, mut place) = (0, 0);
    records.retain(|scored| {
        if index == preferred {
            (lowest, place) = (1.0, 0);
        }
        let score = scored.likelihood.score(leads_of_all[index], place).min(lowest);
        index += 1;
        let is_hit = match min_score {
            Some(min_score) => score >= min_score,
            None => {
                let few = scored.likelihood.candidates < WEIGHTS.min_score_candidates;
                let is_likely = score >= WEIGHTS.min_score;
                let evidence = &scored.evidence;
                evidence.speaks_for_it() && (is_likely || few && evidence.is_in_turn())
            }
        };
        if is_hit {
            lowest = score;
            place += 1;
            scores.insert(scored.record.seq, score);
        }
        is_hit
    });
    scores
}
