//! From postings to candidates.

use std::collections::BTreeMap;

use hob_domain::Timestamp;
use hob_domain::memory::{Candidate, Context, Count, Probe, Scope, Spread};
use hob_index::postings::{Posting, TermHeader};
use hob_index::selection::{self, Collection, WeightedTerm};

/// How many turns before and after a promising one come with it.
pub(super) const BESIDE: usize = 2;

/// Returns the time asked for, in microseconds.
pub(super) fn bounds(scope: &Scope) -> Option<(i64, i64)> {
    if scope.since.is_none() && scope.until.is_none() {
        return None;
    }
    Some((
        scope.since.map_or(i64::MIN, Timestamp::as_microsecond),
        scope.until.map_or(i64::MAX, Timestamp::as_microsecond),
    ))
}

/// Returns how common a term with these postings is.
pub(super) fn spread_of(postings: &[Posting]) -> Spread {
    let TermHeader { turns, sessions } = TermHeader::of(None, postings);
    Spread { turns, sessions }
}

fn weighted_terms(probe: &Probe, spread: &[Spread]) -> Vec<WeightedTerm> {
    let weighted = |(term, spread): (&hob_domain::memory::ProbeTerm, &Spread)| WeightedTerm {
        weight: term.weight,
        document_frequency: spread.turns,
    };
    probe.terms.iter().zip(spread).map(weighted).collect()
}

/// Chooses the common terms of a probe whose postings are read; see [`selection::common_terms_to_read`].
pub(super) fn common_terms_to_read(
    probe: &Probe,
    turns: u64,
    spread: &[Spread],
    common: Vec<usize>,
    read: u64,
) -> Vec<usize> {
    selection::common_terms_to_read(&weighted_terms(probe, spread), turns, common, read)
}

/// Returns the turns with the highest BM25 score for a probe; see [`selection::best_turns`].
pub(super) fn best_turns(
    postings: &[Vec<Posting>],
    spread: &[Spread],
    probe: &Probe,
    collection: Collection,
    allows: impl Fn(i64) -> bool,
    limit: usize,
) -> Vec<i64> {
    selection::best_turns(postings, &weighted_terms(probe, spread), collection, allows, limit)
}

/// Notes how often each term occurs in each candidate; they are in order, as postings are.
pub(super) fn count_terms(candidates: &mut [Candidate], index: &[Vec<Posting>]) {
    let Some(low) = candidates.first().map(|first| first.seq) else { return };
    let high = candidates.last().map_or(low, |last| last.seq);
    // The place of every turn between the first and the last, 0 for none.
    let mut places = vec![0_u32; (high - low) as usize + 1];
    for (place, candidate) in candidates.iter().enumerate() {
        places[(candidate.seq - low) as usize] = place as u32 + 1;
    }
    for (term, postings) in index.iter().enumerate() {
        let begin = postings.partition_point(|posting| posting.seq < low);
        for posting in postings[begin..].iter().take_while(|posting| posting.seq <= high) {
            if let Some(place) = places[(posting.seq - low) as usize].checked_sub(1) {
                let times = u32::from(posting.frequency);
                candidates[place as usize].counts.push(Count { term, times });
            }
        }
    }
}

/// What sessions have as a whole, given how many terms each has.
pub(super) fn contexts(lengths: BTreeMap<i64, u64>, index: &[Vec<Posting>]) -> Vec<Context> {
    let context = |(session, length)| Context { session, length, counts: Vec::new() };
    let mut contexts: Vec<Context> = lengths.into_iter().map(context).collect();
    let (Some(low), Some(high)) = (
        contexts.first().map(|context| context.session),
        contexts.last().map(|context| context.session),
    ) else {
        return contexts;
    };
    // The place of every session between the first and the last, 0 for none.
    let mut places = vec![0_u32; (high - low) as usize + 1];
    for (place, context) in contexts.iter().enumerate() {
        places[(context.session - low) as usize] = place as u32 + 1;
    }
    for (term, postings) in index.iter().enumerate() {
        for posting in postings {
            let place = usize::try_from(i64::from(posting.session) - low).ok();
            let place = place.and_then(|place| places.get(place)?.checked_sub(1));
            let Some(place) = place else { continue };
            let (counts, times) =
                (&mut contexts[place as usize].counts, u32::from(posting.frequency));
            match counts.last_mut() {
                Some(last) if last.term == term => last.times += times,
                _ => counts.push(Count { term, times }),
            }
        }
    }
    contexts
}
