//! From postings to candidates: what both stores do with the postings that they have read.

use std::collections::BTreeMap;

use hob_domain::memory::{
    Candidate, CandidateQuery, DocumentFrequency, QueryTerm, SessionStatistics, TermCount,
};
use hob_index::postings::{Posting, TermHeader};
use hob_index::selection::{self, Collection, WeightedTerm};

/// The number of turns before and after a matching one that are candidates, too.
pub(super) const NEIGHBOURS: usize = 2;

/// The postings and document frequencies of a query's terms, in their order.
pub(super) struct QueryPostings {
    /// Empty for a term that is too common to be read.
    pub(super) postings: Vec<Vec<Posting>>,
    pub(super) frequencies: Vec<DocumentFrequency>,
}

impl QueryPostings {
    pub(super) fn empty(terms: usize) -> QueryPostings {
        QueryPostings {
            postings: vec![Vec::new(); terms],
            frequencies: vec![DocumentFrequency::default(); terms],
        }
    }

    /// Chooses the common terms whose postings are read; see [`selection::common_terms_to_read`].
    pub(super) fn common_terms_to_read(
        &self,
        query: &CandidateQuery,
        turns: u64,
        common: Vec<usize>,
        read: u64,
    ) -> Vec<usize> {
        selection::common_terms_to_read(&self.weighted_terms(query), turns, common, read)
    }

    /// Returns the turns with the highest BM25 score; see [`selection::best_turns`].
    pub(super) fn best_turns(
        &self,
        query: &CandidateQuery,
        collection: Collection,
        allows: impl Fn(i64) -> bool,
        limit: usize,
    ) -> Vec<i64> {
        let terms = self.weighted_terms(query);
        selection::best_turns(&self.postings, &terms, collection, allows, limit)
    }

    fn weighted_terms(&self, query: &CandidateQuery) -> Vec<WeightedTerm> {
        let weighted = |(term, frequency): (&QueryTerm, &DocumentFrequency)| WeightedTerm {
            weight: term.weight,
            document_frequency: frequency.turns,
        };
        query.terms.iter().zip(&self.frequencies).map(weighted).collect()
    }

    /// Notes how often each term occurs in each candidate. Candidates are in the order of their
    /// turns.
    pub(super) fn count_terms(&self, candidates: &mut [Candidate]) {
        let Some(low) = candidates.first().map(|first| first.seq) else { return };
        let high = candidates.last().map_or(low, |last| last.seq);
        // For every turn between the first and the last its place among the candidates plus one, or
        // 0.
        let mut places = vec![0_u32; (high - low) as usize + 1];
        for (place, candidate) in candidates.iter().enumerate() {
            places[(candidate.seq - low) as usize] = place as u32 + 1;
        }
        for (term, postings) in self.postings.iter().enumerate() {
            let begin = postings.partition_point(|posting| posting.seq < low);
            for posting in postings[begin..].iter().take_while(|posting| posting.seq <= high) {
                if let Some(place) = places[(posting.seq - low) as usize].checked_sub(1) {
                    let times = u32::from(posting.frequency);
                    candidates[place as usize].counts.push(TermCount { term, times });
                }
            }
        }
    }

    /// Counts the terms of whole sessions, given the length of each.
    pub(super) fn session_statistics(&self, lengths: BTreeMap<i64, u64>) -> Vec<SessionStatistics> {
        let empty = |(session, length)| SessionStatistics { session, length, counts: Vec::new() };
        let mut sessions: Vec<SessionStatistics> = lengths.into_iter().map(empty).collect();
        let (Some(low), Some(high)) =
            (sessions.first().map(|first| first.session), sessions.last().map(|last| last.session))
        else {
            return sessions;
        };
        // For every session between the first and the last its place plus one, or 0.
        let mut places = vec![0_u32; (high - low) as usize + 1];
        for (place, statistics) in sessions.iter().enumerate() {
            places[(statistics.session - low) as usize] = place as u32 + 1;
        }
        for (term, postings) in self.postings.iter().enumerate() {
            for posting in postings {
                let place = usize::try_from(i64::from(posting.session) - low).ok();
                let place = place.and_then(|place| places.get(place)?.checked_sub(1));
                let Some(place) = place else { continue };
                let times = u32::from(posting.frequency);
                let counts = &mut sessions[place as usize].counts;
                match counts.last_mut() {
                    Some(last) if last.term == term => last.times += times,
                    _ => counts.push(TermCount { term, times }),
                }
            }
        }
        sessions
    }
}

/// Returns how common a term with these postings is.
pub(super) fn document_frequency(postings: &[Posting]) -> DocumentFrequency {
    let TermHeader { turns, sessions } = TermHeader::of(None, postings);
    DocumentFrequency { turns, sessions }
}

/// Matching turns with their neighbours, each with the turn before it in its session. `T` is what a
/// store knows of a turn.
pub(super) struct Neighbourhoods<T> {
    turns: Vec<(i64, Option<i64>, T)>,
}

impl<T> Neighbourhoods<T> {
    pub(super) fn with_capacity(matches: usize) -> Neighbourhoods<T> {
        Neighbourhoods { turns: Vec::with_capacity(matches * (2 * NEIGHBOURS + 1)) }
    }

    /// Adds turns of a session that follow each other.
    pub(super) fn add(&mut self, window: impl Iterator<Item = (i64, T)>) {
        let mut previous = None;
        for (seq, turn) in window {
            self.turns.push((seq, previous, turn));
            previous = Some(seq);
        }
    }

    /// Returns each turn once, in order: its number, the one before it if it is known, and the
    /// turn.
    pub(super) fn into_turns(mut self) -> Vec<(i64, Option<i64>, T)> {
        // The first turn of one window may be in the middle of another, which knows the one before
        // it.
        self.turns.sort_unstable_by_key(|(seq, previous, _)| (*seq, previous.is_none()));
        self.turns.dedup_by_key(|(seq, ..)| *seq);
        self.turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbourhoods_that_overlap_become_one() {
        let mut found = Neighbourhoods::with_capacity(2);
        found.add([5, 6, 7].into_iter().map(|seq| (seq, ())));
        found.add([7, 8, 3].into_iter().map(|seq| (seq, ())));
        let expected =
            [(3, Some(8), ()), (5, None, ()), (6, Some(5), ()), (7, Some(6), ()), (8, Some(7), ())];
        assert_eq!(found.into_turns(), expected);
    }
}
