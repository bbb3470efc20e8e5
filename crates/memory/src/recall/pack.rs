//! Packing ranked records into an answer: which are shown, and which fit the budget.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::recall::tokens::estimated_tokens;
use crate::recall::types::ScoredRecord;

/// Texts of at most this many bytes are duplicates if they differ in punctuation and case alone:
/// "continue", "Continue."
const MAX_LOOSE_DUPLICATE_BYTES: usize = 160;
/// How many hits one session may have, whatever the limit.
const MIN_SESSION_SHARE: usize = 3;

/// The records of an answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Packed {
    pub(crate) records: Vec<ScoredRecord>,
    pub(crate) budget_used: usize,
    pub(crate) omitted: usize,
}

/// Takes records in order while they fit the budget.
///
/// A record that is too long is passed over for shorter ones after it, but the best one is always
/// taken. Duplicates are shown once and counted. A session that fills most of the answer makes room
/// for others.
pub(crate) fn pack(ranked: Vec<ScoredRecord>, budget_tokens: usize, limit: usize) -> Packed {
    let mut packed = Packed::default();
    let ranked = with_session_shares(ranked, limit);
    let first_of_text = first_of_text(&ranked);
    // For each text the index of the record that shows it.
    let mut shown_at = vec![None; ranked.len()];
    for (scored, text) in ranked.into_iter().zip(first_of_text) {
        let cost = estimated_tokens(&scored.record.text);
        let fits = packed.records.is_empty() || packed.budget_used + cost <= budget_tokens;
        let shown: Option<usize> = shown_at[text];
        if let Some(index) = shown {
            packed.records[index].evidence.duplicates += 1;
        }
        if packed.records.len() >= limit || !fits || shown.is_some() {
            packed.omitted += 1;
            continue;
        }
        shown_at[text] = Some(packed.records.len());
        packed.budget_used += cost;
        packed.records.push(scored);
    }
    packed
}

/// Moves the records beyond a session's share after all others, and superseded records last.
fn with_session_shares(ranked: Vec<ScoredRecord>, limit: usize) -> Vec<ScoredRecord> {
    let share = (limit * 9 / 10).max(MIN_SESSION_SHARE);
    let mut taken: HashMap<&str, usize> = HashMap::new();
    let groups = ranked.iter().map(|scored| {
        let taken = taken.entry(&scored.record.session).or_default();
        *taken += 1;
        if scored.record.superseded_by.is_some() { 2 } else { usize::from(*taken > share) }
    });
    let groups: Vec<usize> = groups.collect();
    let mut grouped = [const { Vec::new() }; 3];
    for (scored, group) in ranked.into_iter().zip(groups) {
        grouped[group].push(scored);
    }
    grouped.into_iter().flatten().collect()
}

/// Returns for each record the index of the first one with the same text.
fn first_of_text(ranked: &[ScoredRecord]) -> Vec<usize> {
    let mut first = HashMap::new();
    let all = ranked.iter().enumerate();
    all.map(|(index, scored)| *first.entry(comparable_text(&scored.record.text)).or_insert(index))
        .collect()
}

/// Returns a text in the form in which duplicates are equal.
fn comparable_text(text: &str) -> Cow<'_, str> {
    let text = text.trim();
    if text.len() > MAX_LOOSE_DUPLICATE_BYTES {
        return Cow::Borrowed(text);
    }
    let letters: String =
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    if letters.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(letters) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::recall::types::Evidence;
    use hob_domain::memory::{ProjectLocation, Record, RecordId, Tier, TurnRole, TurnSource};

    pub(crate) fn scored(seq: i64, text: &str) -> ScoredRecord {
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
        ScoredRecord { record, sum: 1.0, evidence: Evidence::default() }
    }

    #[test]
    fn records_are_packed_into_the_budget() {
        let long = "x".repeat(400);
        let hits = vec![
            scored(1, "short one"),
            scored(2, &long),
            scored(3, "short two"),
            scored(4, "Short one."),
        ];
        let packed = pack(hits.clone(), 50, 10);
        assert_eq!(packed.records.iter().map(|hit| hit.record.seq).collect::<Vec<_>>(), [1, 3]);
        assert_eq!((packed.omitted, packed.budget_used), (2, 6));
        let packed = pack(vec![scored(2, &long)], 50, 10);
        assert_eq!((packed.records.len(), packed.budget_used), (1, 100));
        assert_eq!(pack(hits, 5000, 1).omitted, 3);
    }

    #[test]
    fn duplicates_are_counted_and_sessions_share_the_answer() {
        let mut hits: Vec<ScoredRecord> = (0..8).map(|n| scored(n, &format!("one {n}"))).collect();
        for (hit, session) in hits.iter_mut().zip(["a", "a", "a", "a", "a", "a", "b", "b"]) {
            hit.record.session = session.to_owned();
        }
        hits[4].record.text = "ONE 0!".to_owned();
        hits[1].record.superseded_by = Some(RecordId::new("9"));
        let packed = pack(hits, 5000, 6);
        let order: Vec<i64> = packed.records.iter().map(|hit| hit.record.seq).collect();
        // Session `a` has used its share before `b` comes. The superseded record comes last and
        // does not fit.
        assert_eq!(order, [0, 2, 3, 6, 7, 5]);
        assert_eq!(packed.records[0].evidence.duplicates, 1);
        assert_eq!(packed.omitted, 2);
    }
}
