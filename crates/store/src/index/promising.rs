//! From postings to the turns worth ranking.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hob_domain::Timestamp;
use hob_domain::memory::{Candidate, Context, Count, Probe, Scope, Spread};

use super::first::First;
use super::postings::{Posting, length_of};

/// How many turns before and behind a promising one come with it.
pub(crate) const BESIDE: usize = 2;
/// A term that is in no more turns than this is read at once.
pub(crate) const FEW: u64 = 2000;
/// Which turns are promising is told by BM25 with these.
const SATURATION: f32 = 0.7;
const LENGTH_SHARE: f32 = 0.25;
/// So many postings are read for a probe; terms that say less than others are left out for it. The
/// most telling ones are read however common they are.
const MOST_READ: u64 = 150_000;
const MOST_TELLING: usize = 3;
/// Where at least one of so many turns is touched, it is quicker to look at all of them than at the postings again.
const DENSE: usize = 8;

/// The time asked for, in microseconds.
pub(crate) fn bounds(scope: &Scope) -> Option<(i64, i64)> {
    if scope.since.is_none() && scope.until.is_none() {
        return None;
    }
    Some((
        scope.since.map_or(i64::MIN, Timestamp::as_microsecond),
        scope.until.map_or(i64::MAX, Timestamp::as_microsecond),
    ))
}

/// How common a term with these postings is.
pub(crate) fn spread_of(postings: &[Posting]) -> Spread {
    // Turns of one session follow each other, with few exceptions.
    let sessions = postings.chunk_by(|a, b| a.session == b.session).count();
    Spread { turns: postings.len() as u64, sessions: sessions as u64 }
}

/// Which of the common terms are read, the most telling first. `read` postings of others are read anyway.
pub(crate) fn worth_reading(
    probe: &Probe,
    turns: u64,
    spread: &[Spread],
    mut common: Vec<usize>,
    mut read: u64,
) -> Vec<usize> {
    let tells = |term: usize| probe.terms[term].weight * rarity(turns, spread[term].turns);
    common.sort_by(|a, b| tells(*b).total_cmp(&tells(*a)).then(a.cmp(b)));
    let mut worth = Vec::new();
    for (place, term) in common.into_iter().enumerate() {
        if place < MOST_TELLING || read + spread[term].turns <= MOST_READ {
            read += spread[term].turns;
            worth.push(term);
        }
    }
    worth
}

/// What a term that so many of all turns have is worth.
fn rarity(turns: u64, having: u64) -> f32 {
    let (turns, having) = (turns as f32, having as f32);
    ((turns - having + 0.5) / (having + 0.5) + 1.0).max(1.0).ln()
}

/// The turns that have most of what is looked for, of those that `has` allows: by the postings of each term of the probe,
/// best first and of equals the newest. The sums are those of all turns and their terms.
pub(crate) fn promising(
    index: &[Vec<Posting>],
    spread: &[Spread],
    probe: &Probe,
    (turns, length): (u64, u64),
    has: impl Fn(i64) -> bool,
    most: usize,
) -> Vec<i64> {
    let ends = |end: fn(&Vec<Posting>) -> Option<&Posting>| {
        index.iter().filter_map(end).map(|posting| posting.seq)
    };
    let (Some(low), Some(high)) = (ends(|p| p.first()).min(), ends(|p| p.last()).max()) else {
        return Vec::new();
    };
    let usual = (length as f32 / (turns as f32).max(1.0)).max(1.0);
    let damp: [f32; 256] = std::array::from_fn(|class| {
        SATURATION * (1.0 - LENGTH_SHARE + LENGTH_SHARE * (length_of(class as u8) / usual))
    });
    // One place for every turn between the first and the last: only what is touched costs memory.
    let mut scores = vec![0_f32; (high - low) as usize + 1];
    for ((postings, spread), probed) in index.iter().zip(spread).zip(&probe.terms) {
        let weight = probed.weight * rarity(turns, spread.turns) * (SATURATION + 1.0);
        // Most terms are once in a turn.
        let once = damp.map(|damp| weight / (1.0 + damp));
        for posting in postings.iter().filter(|posting| has(posting.seq)) {
            let class = usize::from(posting.length);
            scores[(posting.seq - low) as usize] += match posting.times {
                1 => once[class],
                times => weight * f32::from(times) / (f32::from(times) + damp[class]),
            };
        }
    }
    let mut best = First::new(most);
    let mut offer = |score: f32, seq: i64| {
        // The bits of numbers above zero are in their order.
        let place = Reverse(score.to_bits());
        if score > 0.0 {
            best.offer(place, Reverse(seq));
        }
    };
    let read: usize = index.iter().map(Vec::len).sum();
    if read > scores.len() / DENSE {
        scores.iter().zip(low..).for_each(|(score, seq)| offer(*score, seq));
    } else {
        for posting in index.iter().flatten() {
            offer(std::mem::take(&mut scores[(posting.seq - low) as usize]), posting.seq);
        }
    }
    best.found().map(|Reverse(seq)| seq).collect()
}

/// Notes how often each term occurs in each candidate; they are in order, as postings are.
pub(crate) fn count_terms(candidates: &mut [Candidate], index: &[Vec<Posting>]) {
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
                let times = u32::from(posting.times);
                candidates[place as usize].counts.push(Count { term, times });
            }
        }
    }
}

/// What sessions have as a whole, given how many terms each has.
pub(crate) fn contexts(lengths: BTreeMap<i64, u64>, index: &[Vec<Posting>]) -> Vec<Context> {
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
            let (counts, times) = (&mut contexts[place as usize].counts, u32::from(posting.times));
            match counts.last_mut() {
                Some(last) if last.term == term => last.times += times,
                _ => counts.push(Count { term, times }),
            }
        }
    }
    contexts
}
