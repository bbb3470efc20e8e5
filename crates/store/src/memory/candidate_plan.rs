//! From postings to candidates.

use std::collections::BTreeMap;

use hob_domain::Timestamp;
use hob_domain::memory::{
    Candidate, CandidateQuery, DocumentFrequency, Scope, SessionStatistics, TermCount,
};
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
pub(super) fn document_frequency(postings: &[Posting]) -> DocumentFrequency {
    let TermHeader { turns, sessions } = TermHeader::of(None, postings);
    DocumentFrequency { turns, sessions }
}

fn weighted_terms(probe: &CandidateQuery, frequencies: &[DocumentFrequency]) -> Vec<WeightedTerm> {
    let weighted = |(term, frequencies): (&hob_domain::memory::QueryTerm, &DocumentFrequency)| {
        WeightedTerm { weight: term.weight, document_frequency: frequencies.turns }
    };
    probe.terms.iter().zip(frequencies).map(weighted).collect()
}

/// Chooses the common terms of a probe whose postings are read; see [`selection::common_terms_to_read`].
pub(super) fn common_terms_to_read(
    probe: &CandidateQuery,
    turns: u64,
    frequencies: &[DocumentFrequency],
    common: Vec<usize>,
    read: u64,
) -> Vec<usize> {
    selection::common_terms_to_read(&weighted_terms(probe, frequencies), turns, common, read)
}

/// Returns the turns with the highest BM25 score for a probe; see [`selection::best_turns`].
pub(super) fn best_turns(
    postings: &[Vec<Posting>],
    frequencies: &[DocumentFrequency],
    probe: &CandidateQuery,
    collection: Collection,
    allows: impl Fn(i64) -> bool,
    limit: usize,
) -> Vec<i64> {
    selection::best_turns(postings, &weighted_terms(probe, frequencies), collection, allows, limit)
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
                candidates[place as usize].counts.push(TermCount { term, times });
            }
        }
    }
}

/// What sessions have as a whole, given how many terms each has.
pub(super) fn session_statistics(
    lengths: BTreeMap<i64, u64>,
    index: &[Vec<Posting>],
) -> Vec<SessionStatistics> {
    let statistics = |(session, length)| SessionStatistics { session, length, counts: Vec::new() };
    let mut session_statistics: Vec<SessionStatistics> =
        lengths.into_iter().map(statistics).collect();
    let (Some(low), Some(high)) = (
        session_statistics.first().map(|statistics| statistics.session),
        session_statistics.last().map(|statistics| statistics.session),
    ) else {
        return session_statistics;
    };
    // The place of every session between the first and the last, 0 for none.
    let mut places = vec![0_u32; (high - low) as usize + 1];
    for (place, statistics) in session_statistics.iter().enumerate() {
        places[(statistics.session - low) as usize] = place as u32 + 1;
    }
    for (term, postings) in index.iter().enumerate() {
        for posting in postings {
            let place = usize::try_from(i64::from(posting.session) - low).ok();
            let place = place.and_then(|place| places.get(place)?.checked_sub(1));
            let Some(place) = place else { continue };
            let (counts, times) =
                (&mut session_statistics[place as usize].counts, u32::from(posting.frequency));
            match counts.last_mut() {
                Some(last) if last.term == term => last.times += times,
                _ => counts.push(TermCount { term, times }),
            }
        }
    }
    session_statistics
}
