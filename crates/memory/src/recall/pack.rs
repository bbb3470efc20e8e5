//! From ranked turns to an answer: what is shown, why, and what fits.

use std::borrow::Cow;
use std::collections::HashMap;

use hob_domain::memory::{QueryTerm, Record};

use crate::recall::rank::Why;
use crate::text::analyse::readable;

/// How many terms a reason names.
const NAMED: usize = 8;
/// Texts up to so many letters are the same when they differ in signs and capitals alone: "continue",
/// "Continue."
const SHORT: usize = 160;

/// So many hits a session may have whatever the limit.
const FEWEST: usize = 3;

/// A turn in its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ranked {
    pub(crate) record: Record,
    /// Any number: what is greater is better.
    pub(crate) sum: f64,
    pub(crate) why: Why,
}

/// Why a record was found, in words.
pub(crate) fn reason(hit: &Ranked, terms: &[QueryTerm], own: usize) -> String {
    let named = |wanted: bool| -> Vec<String> {
        let kind = hit.why.terms.iter().filter(|term| (**term < own) == wanted);
        kind.filter_map(|term| terms.get(*term)).take(NAMED).map(|t| readable(&t.term)).collect()
    };
    let (matched, like) = (named(true), named(false));
    let mut reasons = Vec::new();
    if !matched.is_empty() {
        reasons.push(format!("matches {}", matched.join(", ")));
    } else if !like.is_empty() {
        reasons.push(format!("related words: {}", like.join(", ")));
    }
    if hit.why.like {
        reasons.push("similar meaning".to_owned());
    }
    if reasons.is_empty() {
        reasons.push("said beside what matches".to_owned());
    }
    if hit.why.timely {
        reasons.push("of the time asked for".to_owned());
    }
    if hit.why.said_by {
        reasons.push("said by whom the question names".to_owned());
    }
    if hit.why.changes {
        reasons.push("tells of a change".to_owned());
    }
    if hit.why.again > 0 {
        reasons.push(format!("said {} times", hit.why.again + 1));
    }
    if hit.record.superseded_by.is_some() {
        reasons.push("superseded by a correction".to_owned());
    }
    reasons.join("; ")
}

/// What fits.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Packed {
    pub(crate) hits: Vec<Ranked>,
    pub(crate) budget_used: usize,
    pub(crate) omitted: usize,
}

/// Takes hits in order as long as they fit the budget; one that is too long is passed over for
/// shorter ones behind it, but the best one is always there. Texts that say the same are shown once, and
/// it is said how often. A session that fills most of the answer gives way to others.
pub(crate) fn pack(ranked: Vec<Ranked>, budget_tokens: usize, limit: usize) -> Packed {
    let mut packed = Packed::default();
    let ranked = in_turn(ranked, limit);
    let same = same(&ranked);
    // Where those that say it are shown, if they are.
    let mut shown = vec![None; ranked.len()];
    for (hit, same) in ranked.into_iter().zip(same) {
        let cost = tokens(&hit.record.text);
        let fits = packed.hits.is_empty() || packed.budget_used + cost <= budget_tokens;
        let known: Option<usize> = shown[same];
        if let Some(place) = known {
            packed.hits[place].why.again += 1;
        }
        if packed.hits.len() >= limit || !fits || known.is_some() {
            packed.omitted += 1;
            continue;
        }
        shown[same] = Some(packed.hits.len());
        packed.budget_used += cost;
        packed.hits.push(hit);
    }
    packed
}

/// The same hits in the same order, but for those of a session that has had its share: they come behind
/// the others; and behind them, what was superseded.
fn in_turn(ranked: Vec<Ranked>, limit: usize) -> Vec<Ranked> {
    let share = (limit * 9 / 10).max(FEWEST);
    let mut had: HashMap<&str, usize> = HashMap::new();
    let places = ranked.iter().map(|hit| {
        let had = had.entry(&hit.record.session).or_default();
        *had += 1;
        if hit.record.superseded_by.is_some() { 2 } else { usize::from(*had > share) }
    });
    let places: Vec<usize> = places.collect();
    let mut parts = [const { Vec::new() }; 3];
    for (hit, place) in ranked.into_iter().zip(places) {
        parts[place].push(hit);
    }
    parts.into_iter().flatten().collect()
}

/// For each the place of the first that says the same.
fn same(ranked: &[Ranked]) -> Vec<usize> {
    let mut first = HashMap::new();
    let all = ranked.iter().enumerate();
    all.map(|(place, hit)| *first.entry(essence(&hit.record.text)).or_insert(place)).collect()
}

/// What two texts share that say the same.
fn essence(text: &str) -> Cow<'_, str> {
    let text = text.trim();
    if text.len() > SHORT {
        return Cow::Borrowed(text);
    }
    let letters: String =
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    if letters.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(letters) }
}

/// About how many tokens a text has: four ASCII characters to one, others nearly one each.
pub(crate) fn tokens(text: &str) -> usize {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    let other = text.chars().filter(|c| !c.is_ascii()).count();
    ascii.div_ceil(4) + (other * 2).div_ceil(3)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use hob_domain::memory::{ProjectLocation, RecordId, Tier, TurnRole, TurnSource};

    pub(crate) fn ranked(seq: i64, text: &str) -> Ranked {
        let record = Record {
            id: RecordId::new(seq.to_string()),
            seq,
            session: "s".to_owned(),
            place: ProjectLocation { project: "/p".to_owned(), worktree: "/p".to_owned() },
            role: TurnRole::User,
            tier: Tier::Episodic,
            text: text.to_owned(),
            sealed: None,
            cue: None,
            ts: hob_domain::Timestamp::from_second(seq).unwrap(),
            client: "claude".to_owned(),
            source: TurnSource::Hook,
            superseded_by: None,
            supersedes: None,
        };
        Ranked { record, sum: 1.0, why: Why::default() }
    }

    #[test]
    fn hits_are_packed_into_the_budget() {
        let long = "x".repeat(400);
        let hits = vec![
            ranked(1, "short one"),
            ranked(2, &long),
            ranked(3, "short two"),
            ranked(4, "Short one."),
        ];
        let packed = pack(hits.clone(), 50, 10);
        assert_eq!(packed.hits.iter().map(|hit| hit.record.seq).collect::<Vec<_>>(), [1, 3]);
        assert_eq!((packed.omitted, packed.budget_used), (2, 6));
        let packed = pack(vec![ranked(2, &long)], 50, 10);
        assert_eq!((packed.hits.len(), packed.budget_used), (1, 100));
        assert_eq!(pack(hits, 5000, 1).omitted, 3);
    }

    #[test]
    fn what_was_said_again_is_counted_and_sessions_share_an_answer() {
        let mut hits: Vec<Ranked> = (0..8).map(|n| ranked(n, &format!("one {n}"))).collect();
        for (hit, session) in hits.iter_mut().zip(["a", "a", "a", "a", "a", "a", "b", "b"]) {
            hit.record.session = session.to_owned();
        }
        hits[4].record.text = "ONE 0!".to_owned();
        hits[1].record.superseded_by = Some(RecordId::new("9"));
        let packed = pack(hits, 5000, 6);
        let order: Vec<i64> = packed.hits.iter().map(|hit| hit.record.seq).collect();
        // One session has had its share when the other comes; the superseded one comes last, too late.
        assert_eq!(order, [0, 2, 3, 6, 7, 5]);
        assert_eq!(packed.hits[0].why.again, 1);
        assert_eq!(packed.omitted, 2);
    }

    #[test]
    fn reasons_say_what_matched() {
        let terms: Vec<QueryTerm> =
            ["port", "socket"].map(|term| QueryTerm { term: term.to_owned(), weight: 1.0 }).into();
        let mut hit = ranked(1, "the port");
        assert_eq!(reason(&hit, &terms, 1), "said beside what matches");
        hit.why.terms = vec![1];
        assert_eq!(reason(&hit, &terms, 1), "related words: socket");
        hit.why = Why {
            terms: vec![0, 1],
            like: true,
            timely: true,
            said_by: true,
            changes: true,
            again: 2,
        };
        hit.record.superseded_by = Some(RecordId::new("2"));
        assert_eq!(
            reason(&hit, &terms, 1),
            "matches port; similar meaning; of the time asked for; said by whom the question names; \
             tells of a change; said 3 times; superseded by a correction"
        );
    }
}
