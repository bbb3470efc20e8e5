//! Choosing what to read and what to rank: the terms whose postings are worth reading, and the
//! turns that score best by them.

use std::cmp::Reverse;

use crate::bm25::{Bm25, idf};
use crate::postings::{Posting, length_of_class};
use crate::top_k::TopK;

/// A term that is in at most this many turns is always read.
pub const MAX_RARE_POSTINGS: u64 = 2000;
/// A query reads about this many postings. Common terms beyond it are left out, those that tell
/// least first.
const MAX_READ_POSTINGS: u64 = 150_000;
/// This many of the common terms, those that tell most, are read however common they are.
const ALWAYS_READ_TERMS: usize = 3;
/// Where at least one of this many turns has a posting, it is faster to scan the scores of all
/// turns than to walk the postings again.
const DENSE_SHARE: usize = 8;

/// A term of a query, with what it counts and how many turns have it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightedTerm {
    pub weight: f32,
    pub document_frequency: u64,
}

impl WeightedTerm {
    fn weighted_idf(self, turns: u64) -> f32 {
        self.weight * idf::<f32>(turns, self.document_frequency)
    }
}

/// The size of the collection that is searched: its turns, and the sum of their lengths in terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collection {
    pub turns: u64,
    pub length: u64,
}

/// Chooses the common terms whose postings are read, the one that tells most first.
///
/// `common` are places in `terms`; `read` postings of other terms are read in any case.
pub fn common_terms_to_read(
    terms: &[WeightedTerm],
    turns: u64,
    mut common: Vec<usize>,
    mut read: u64,
) -> Vec<usize> {
    let tells = |term: usize| terms[term].weighted_idf(turns);
    common.sort_by(|a, b| tells(*b).total_cmp(&tells(*a)).then(a.cmp(b)));
    let mut chosen = Vec::new();
    for (place, term) in common.into_iter().enumerate() {
        let postings = terms[term].document_frequency;
        if place < ALWAYS_READ_TERMS || read + postings <= MAX_READ_POSTINGS {
            read += postings;
            chosen.push(term);
        }
    }
    chosen
}

/// Returns the turns with the highest BM25 score among those that `allows` admits: at most `limit`,
/// best first and of equals the newest.
///
/// `postings` are those of each of `terms`, in the order of their turns.
pub fn best_turns(
    postings: &[Vec<Posting>],
    terms: &[WeightedTerm],
    collection: Collection,
    allows: impl Fn(i64) -> bool,
    limit: usize,
) -> Vec<i64> {
    let ends = |end: fn(&Vec<Posting>) -> Option<&Posting>| {
        postings.iter().filter_map(end).map(|posting| posting.seq)
    };
    let (Some(low), Some(high)) = (ends(|p| p.first()).min(), ends(|p| p.last()).max()) else {
        return Vec::new();
    };
    let bm25 = Bm25::<f32>::TURN;
    let average = (collection.length as f32 / (collection.turns as f32).max(1.0)).max(1.0);
    let norms: [f32; 256] =
        std::array::from_fn(|class| bm25.length_norm(length_of_class(class as u8) / average));
    // One score for every turn between the first and the last: pages that are never touched cost
    // nothing.
    let mut scores = vec![0_f32; (high - low) as usize + 1];
    for (postings, term) in postings.iter().zip(terms) {
        let weight = term.weighted_idf(collection.turns) * (bm25.k1 + 1.0);
        // Most terms occur once in a turn.
        let once = norms.map(|norm| weight / (1.0 + norm));
        for posting in postings.iter().filter(|posting| allows(posting.seq)) {
            let class = usize::from(posting.length_class);
            scores[(posting.seq - low) as usize] += match posting.frequency {
                1 => once[class],
                times => weight * f32::from(times) / (f32::from(times) + norms[class]),
            };
        }
    }
    let mut best = TopK::new(limit);
    let mut offer = |score: f32, seq: i64| {
        // The bits of positive floating-point numbers have the order of the numbers.
        let key = Reverse(score.to_bits());
        if score > 0.0 {
            best.offer(key, Reverse(seq));
        }
    };
    let read: usize = postings.iter().map(Vec::len).sum();
    if read > scores.len() / DENSE_SHARE {
        scores.iter().zip(low..).for_each(|(score, seq)| offer(*score, seq));
    } else {
        for posting in postings.iter().flatten() {
            offer(std::mem::take(&mut scores[(posting.seq - low) as usize]), posting.seq);
        }
    }
    best.into_ids().map(|Reverse(seq)| seq).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(document_frequency: u64) -> WeightedTerm {
        WeightedTerm { weight: 1.0, document_frequency }
    }

    fn postings(seqs: &[i64]) -> Vec<Posting> {
        seqs.iter().map(|seq| Posting::new(*seq, 1, 1, 10)).collect()
    }

    #[test]
    fn turns_with_rarer_and_more_terms_come_first_and_of_equals_the_newest() {
        let collection = Collection { turns: 100, length: 1000 };
        let lists = [postings(&[2, 5, 9]), postings(&[5, 1000])];
        let terms = [term(3), term(2)];
        assert_eq!(best_turns(&lists, &terms, collection, |_| true, 10), [5, 1000, 9, 2]);
        assert_eq!(best_turns(&lists, &terms, collection, |seq| seq != 5, 2), [1000, 9]);
        assert_eq!(best_turns(&[], &[], collection, |_| true, 10), [] as [i64; 0]);
    }

    #[test]
    fn common_terms_are_read_while_they_fit_and_three_in_any_case() {
        let terms = [90_000, 80_000, 70_000, 60_000, 3000].map(term);
        let all = || (0..terms.len()).collect();
        assert_eq!(common_terms_to_read(&terms, 100_000, all(), 0), [4, 3, 2]);
        let few = [60_000, 3000, 3000, 3000].map(term);
        assert_eq!(common_terms_to_read(&few, 100_000, vec![0, 1, 2, 3], 0), [1, 2, 3, 0]);
        assert_eq!(common_terms_to_read(&few, 100_000, vec![0, 1, 2, 3], 100_000), [1, 2, 3]);
    }
}
