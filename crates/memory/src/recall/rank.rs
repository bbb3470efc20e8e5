//! Ranking: pure, and the same for every store.
//!
//! A turn is worth what its own terms say (BM25), what stands beside it and what its session is about
//! say, and how near its vector is. Each of the two sides is set in relation to the other candidates of
//! the same question before they are added, since neither has a scale of its own. docs/recall.md says
//! what each part gives.

use std::collections::{BTreeMap, HashMap};

use hob_domain::Timestamp;
use hob_domain::memory::{Candidate, CandidateSet, DocumentFrequency, QueryTerm, TermCount};
use hob_index::bm25::{Bm25, idf};

use crate::embed::embedder::cosines;
use crate::recall::period::Period;
use crate::text::writing_systems::is_ideograph;

/// BM25 of a turn and of a session: how soon more of the same term says nothing new, and how much
/// longer texts pay for their length.
const TURN: Bm25<f64> = Bm25::<f64>::TURN;
const SESSION: Bm25<f64> = Bm25 { k1: 1.2, b: 0.75 };
/// What the two turns before and behind count, the nearest first, and the whole session.
const BEFORE: [f64; 2] = [0.5, 0.2];
const BEHIND: [f64; 2] = [0.1, 0.05];
const OF_SESSION: f64 = 0.7;
/// The same for vectors; the session is told by its nearest turns.
const DENSE_BEFORE: f64 = 0.15;
const DENSE_SESSION: f64 = 0.2;
const DENSE_NEAREST: usize = 3;
/// What vectors count beside terms: the second for all that no single turn has of the question's terms.
/// Where the very words are found, they are to be believed.
const DENSE: Weight = Weight { always: 0.2, without_terms: 0.5 };
/// The same for the vectors of a model, where turns have them.
const FINER: Weight = Weight { always: 0.2, without_terms: 0.9 };
/// Where fewer turns have a vector of the model, they don't say what is usual.
const FEWEST: usize = 8;
/// What vectors count more, and terms less, where words of the question are in no turn at all, so that it
/// must have been said in others. A few such words say little.
const DENSE_OTHER_WORDS: f64 = 1.5;
const LESS_OTHER_WORDS: f64 = 0.85;
const FEW_OTHER_WORDS: f64 = 0.2;
/// What the length of a turn counts, up to so many terms: short ones ask and agree, longer ones answer.
const LENGTH: f64 = 0.9;
const LONG: f64 = 40.0;
/// Of fewer candidates than this it counts less.
const MANY: f64 = 40.0;
/// What it counts that a turn is of the time asked for.
const TIMELY: f64 = 4.0;
/// What the best turn of its session lends to each.
const BEST_OF_SESSION: f64 = 0.5;
/// Cosines above this are said to be of like meaning: of the table, of a model.
const LIKE: f64 = 0.35;
const FINER_LIKE: f64 = 0.45;

/// What the terms of a question leave open: how much of them the best turn has, and how much of them is in
/// no turn at all. From 0 to 1.
#[derive(Clone, Copy)]
struct Open {
    coverage: f64,
    other_words: f64,
}

struct Weight {
    always: f64,
    without_terms: f64,
}

impl Weight {
    fn at(&self, open: Open) -> f64 {
        self.always
            + self.without_terms * (1.0 - open.coverage)
            + DENSE_OTHER_WORDS * open.other_words
    }
}

/// What a question asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// As the store was asked for them: the question's own terms, then others that mean the same.
    pub(crate) terms: &'a [QueryTerm],
    /// For each of those others the place of the one it stands for, if it stands for one.
    pub(crate) stands_for: &'a [Option<usize>],
    /// Which of the question's own terms the vector knows.
    pub(crate) known: &'a [bool],
    pub(crate) vector: &'a [i8],
    /// By the model; empty where there is none.
    pub(crate) finer: &'a [i8],
    pub(crate) periods: &'a [Period],
    /// For so many of the best it is said what spoke for them; others are not shown.
    pub(crate) shown: usize,
}

/// A candidate in its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scored {
    pub(crate) seq: i64,
    pub(crate) ts: Timestamp,
    /// Any number: what is greater is better.
    pub(crate) sum: f64,
    pub(crate) why: Why,
}

/// A sum as a number from 0 to 1.
pub(crate) fn score(sum: f64) -> f64 {
    1.0 / (1.0 + (-sum / 2.0).exp())
}

/// What spoke for a turn.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Why {
    /// The numbers of the terms that are in it.
    pub(crate) terms: Vec<usize>,
    /// Whether its vector is near.
    pub(crate) like: bool,
    /// Whether it is of the time asked for.
    pub(crate) timely: bool,
    /// How many others say the same and are not shown for it.
    pub(crate) again: usize,
    /// Whether somebody said it whom the question names.
    pub(crate) said_by: bool,
    /// Whether it says that something changed.
    pub(crate) changes: bool,
}

/// Puts candidates in order, the best first, and of equals the newest.
pub(crate) fn rank(proposal: &CandidateSet, asked: &Asked<'_>) -> Vec<Scored> {
    let candidates = &proposal.candidates;
    let rarity = rarity(proposal);
    let worth = worth(asked, &rarity);
    let own = own_worth(proposal, asked, &rarity);
    let around = Around::of(candidates);
    let lexical = lexical(proposal, &around, &worth);
    let near = cosines(asked.vector, candidates.iter().map(|one| &*one.vector));
    let finer = cosines(asked.finer, candidates.iter().map(|one| &*one.model_vector));
    let open = Open {
        coverage: coverage(candidates, &own),
        other_words: other_words(proposal, asked, &own),
    };
    let dense = dense(&around, &near, &finer, open);
    let timely: Vec<f64> = candidates
        .iter()
        .map(|candidate| {
            let each = asked.periods.iter().map(|period| period.nearness(candidate.ts));
            each.fold(0.0, f64::max)
        })
        .collect();
    let of_terms = 1.0 - LESS_OTHER_WORDS * open.other_words;
    let mut total: Vec<f64> = normal(&lexical)
        .into_iter()
        .zip(dense)
        .zip(&timely)
        .map(|((lexical, dense), timely)| of_terms * lexical + dense + TIMELY * timely)
        .collect();
    let best = around.best(&total);
    for (total, best) in total.iter_mut().zip(best) {
        *total += BEST_OF_SESSION * best;
    }
    let usual = usual_length(proposal);
    // Among few no one is far from the mean, and what matches must not lose to what is merely long.
    let of_length = LENGTH * (candidates.len() as f64 / MANY).min(1.0);
    for (total, candidate) in total.iter_mut().zip(candidates) {
        let length = f64::from(candidate.length).min(LONG);
        *total += of_length * ((1.0 + length) / (1.0 + usual)).ln();
    }
    let mut order: Vec<usize> =
        (0..candidates.len()).filter(|place| candidates[*place].in_scope).collect();
    order.sort_by(|a, b| {
        let (one, other) = (&candidates[*a], &candidates[*b]);
        total[*b].total_cmp(&total[*a]).then(other.ts.cmp(&one.ts)).then(other.seq.cmp(&one.seq))
    });
    let why = |place: usize| Why {
        terms: candidates[place].counts.iter().map(|count| count.term).collect(),
        like: near[place].is_some_and(|near| near >= LIKE)
            || finer[place].is_some_and(|near| near >= FINER_LIKE),
        timely: timely[place] > 0.5,
        ..Why::default()
    };
    let scored = |(number, place): (usize, usize)| Scored {
        seq: candidates[place].seq,
        ts: candidates[place].ts,
        sum: total[place],
        why: if number < asked.shown { why(place) } else { Why::default() },
    };
    order.into_iter().enumerate().map(scored).collect()
}

/// How rare each term is among turns: its weight in BM25.
pub(crate) fn rarity(proposal: &CandidateSet) -> Vec<f64> {
    proposal.document_frequencies.iter().map(|spread| idf(proposal.turns, spread.turns)).collect()
}

/// What each term counts. One that only means the same must not be worth more for being rare than
/// the one that was asked for.
fn worth(asked: &Asked<'_>, rarity: &[f64]) -> Vec<f64> {
    let own = asked.terms.len() - asked.stands_for.len();
    let one = |(place, (term, rare)): (usize, (&QueryTerm, &f64))| {
        let most = place.checked_sub(own).and_then(|other| asked.stands_for[other]);
        let most = most.and_then(|place| rarity.get(place));
        let share = most.map_or(1.0, |most| (most / rare.max(1e-9)).min(1.0));
        f64::from(term.weight) * share
    };
    asked.terms.iter().zip(rarity).enumerate().map(one).collect()
}

/// What each of the question's own terms tells, rare ones more. A pair of ideographs that neither a turn has
/// nor the vector knows is no word but the end of one and the beginning of the next.
fn own_worth(proposal: &CandidateSet, asked: &Asked<'_>, rarity: &[f64]) -> Vec<f64> {
    let own = asked.terms.iter().zip(rarity).zip(&proposal.document_frequencies).zip(asked.known);
    let one =
        |(((term, rarity), spread), known): (((&QueryTerm, &f64), &DocumentFrequency), &bool)| {
            let word = *known || spread.turns > 0 || !term.term.starts_with(is_ideograph);
            if word { f64::from(term.weight) * rarity } else { 0.0 }
        };
    own.map(one).collect()
}

/// How much of the question the turn has that has most of it: from 0 to 1, rare terms counting more.
fn coverage(candidates: &[Candidate], own: &[f64]) -> f64 {
    // What is nowhere says nothing about where to look.
    let known =
        |term: usize| candidates.iter().any(|one| one.counts.iter().any(|c| c.term == term));
    let all: f64 = (0..own.len()).filter(|term| known(*term)).map(|term| own[term]).sum();
    let having = |candidate: &Candidate| -> f64 {
        candidate.counts.iter().filter_map(|count| own.get(count.term)).sum()
    };
    let most = candidates.iter().map(having).fold(0.0, f64::max);
    if all > 0.0 { (most / all).min(1.0) } else { 0.0 }
}

/// How much of the question was said in other words, if it was said: its terms that are in no turn
/// and that the vector knows. From 0 to 1, rare terms counting more.
fn other_words(proposal: &CandidateSet, asked: &Asked<'_>, own: &[f64]) -> f64 {
    let (mut all, mut nowhere) = (0.0, 0.0);
    for ((worth, spread), known) in own.iter().zip(&proposal.document_frequencies).zip(asked.known)
    {
        all += worth;
        if spread.turns == 0 && *known {
            nowhere += worth;
        }
    }
    let share = if all > 0.0 { nowhere / all } else { 0.0 };
    ((share - FEW_OTHER_WORDS) / (1.0 - FEW_OTHER_WORDS)).max(0.0)
}

/// How many terms a turn has on the average.
fn usual_length(proposal: &CandidateSet) -> f64 {
    (proposal.length as f64 / (proposal.turns as f64).max(1.0)).max(1.0)
}

/// Who stands beside whom, by their places among the candidates.
struct Around {
    previous: Vec<Option<usize>>,
    next: Vec<Option<usize>>,
    sessions: BTreeMap<i64, Vec<usize>>,
}

impl Around {
    fn of(candidates: &[Candidate]) -> Around {
        let place_of = |seq: i64| candidates.binary_search_by_key(&seq, |one| one.seq).ok();
        let mut around = Around {
            previous: vec![None; candidates.len()],
            next: vec![None; candidates.len()],
            sessions: BTreeMap::new(),
        };
        for (place, candidate) in candidates.iter().enumerate() {
            let previous = candidate.previous.and_then(place_of);
            around.previous[place] = previous;
            if let Some(previous) = previous {
                around.next[previous] = Some(place);
            }
            around.sessions.entry(candidate.session).or_default().push(place);
        }
        around
    }

    /// A value with what stands beside it.
    fn mixed(&self, values: &[f64], place: usize, before: &[f64], behind: &[f64]) -> f64 {
        let mut sum = values[place];
        for (links, weights) in [(&self.previous, before), (&self.next, behind)] {
            let mut at = links[place];
            for weight in weights {
                let Some(beside) = at else { break };
                sum += weight * values[beside];
                at = links[beside];
            }
        }
        sum
    }

    /// For each the greatest value of its session.
    fn best(&self, values: &[f64]) -> Vec<f64> {
        let mut best = vec![0.0; values.len()];
        for places in self.sessions.values() {
            let greatest = places.iter().map(|place| values[*place]).fold(f64::MIN, f64::max);
            for place in places {
                best[*place] = greatest;
            }
        }
        best
    }
}

fn lexical(proposal: &CandidateSet, around: &Around, worth: &[f64]) -> Vec<f64> {
    let rarity = rarity(proposal);
    let usual = usual_length(proposal);
    let sum = |counts: &[TermCount], bm25: Bm25<f64>, rarity: &[f64], length: f64| -> f64 {
        let one = |count: &TermCount| {
            let weight = worth.get(count.term)? * rarity.get(count.term)?;
            Some(weight * bm25.saturation(f64::from(count.times), length))
        };
        counts.iter().filter_map(one).sum()
    };
    let own: Vec<f64> = proposal
        .candidates
        .iter()
        .map(|one| sum(&one.counts, TURN, &rarity, f64::from(one.length) / usual))
        .collect();
    let session_rarity: Vec<f64> = proposal
        .document_frequencies
        .iter()
        .map(|spread| idf(proposal.sessions, spread.sessions.min(proposal.sessions)))
        .collect();
    let usual = (proposal.length as f64 / (proposal.sessions as f64).max(1.0)).max(1.0);
    let of_session: HashMap<i64, f64> = proposal
        .session_statistics
        .iter()
        .map(|one| {
            (one.session, sum(&one.counts, SESSION, &session_rarity, one.length as f64 / usual))
        })
        .collect();
    let mixed = |(place, candidate): (usize, &Candidate)| {
        let session = of_session.get(&candidate.session).copied().unwrap_or_default();
        around.mixed(&own, place, &BEFORE, &BEHIND) + OF_SESSION * session
    };
    proposal.candidates.iter().enumerate().map(mixed).collect()
}

/// What vectors say for each candidate: those of the model where it has one, else those of the table.
/// Cosines of two kinds are on two scales, so each is set in relation to its own kind only.
fn dense(around: &Around, near: &[Option<f64>], finer: &[Option<f64>], open: Open) -> Vec<f64> {
    let of_table = of_kind(around, near);
    let enough = finer.iter().flatten().count() >= FEWEST;
    let of_model = if enough { of_kind(around, finer) } else { vec![0.0; finer.len()] };
    let one = |place: usize| match finer[place] {
        Some(_) if enough => FINER.at(open) * of_model[place],
        _ => DENSE.at(open) * of_table[place],
    };
    (0..near.len()).map(one).collect()
}

/// How much nearer than usual each is by one kind of vectors, with what stands beside it and its
/// session. One without a vector is taken for a usual one.
fn of_kind(around: &Around, near: &[Option<f64>]) -> Vec<f64> {
    let count = near.iter().flatten().count().max(1) as f64;
    let usual = near.iter().flatten().sum::<f64>() / count;
    let known: Vec<f64> = near.iter().map(|near| near.unwrap_or(usual)).collect();
    let mut of_session = vec![0.0; known.len()];
    for places in around.sessions.values() {
        let mut nearest: Vec<f64> = places.iter().map(|place| known[*place]).collect();
        nearest.sort_by(|a, b| b.total_cmp(a));
        nearest.truncate(DENSE_NEAREST);
        let mean = nearest.iter().sum::<f64>() / nearest.len() as f64;
        for place in places {
            of_session[*place] = mean;
        }
    }
    let mixed: Vec<f64> = (0..known.len())
        .map(|place| {
            around.mixed(&known, place, &[DENSE_BEFORE], &[]) + DENSE_SESSION * of_session[place]
        })
        .collect();
    normal(&mixed)
}

/// Each value by how far it is from the mean, in standard deviations.
fn normal(values: &[f64]) -> Vec<f64> {
    let count = (values.len() as f64).max(1.0);
    let mean = values.iter().sum::<f64>() / count;
    let spread = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
    let one = |value: &f64| if spread > 1e-9 { (value - mean) / spread } else { 0.0 };
    values.iter().map(one).collect()
}

#[cfg(test)]
mod tests;
