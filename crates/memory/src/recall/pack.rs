//! Packing ranked records into an answer: which are shown, and which fit the budget.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::recall::passage::PassageFinder;
use crate::recall::tokens::estimated_tokens;
use crate::recall::types::ScoredRecord;

/// Texts of at most this many bytes are duplicates if they differ in punctuation and case alone:
/// "continue", "Continue."
const MAX_LOOSE_DUPLICATE_BYTES: usize = 160;
/// How many hits one session may have before those of other sessions.
const MAX_FIRST_HITS: usize = 9;
/// A longer text than this part of the budget is cut to the passage that answers.
const BUDGET_PARTS: usize = 15;
/// Shorter texts are cut only if the best one does not fit the budget.
const MIN_CUT_TOKENS: usize = 60;
/// The best text is cut to no fewer tokens than these, even if the budget is smaller: a shorter passage says too little.
const MIN_PASSAGE_TOKENS: usize = 16;

/// The records of an answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Packed {
    pub(crate) records: Vec<ScoredRecord>,
    pub(crate) budget_used: usize,
    pub(crate) omitted: usize,
}

/// Takes records in order while they fit the budget.
///
/// Long texts are cut to the passage that answers. A record that does not fit is passed over for
/// shorter ones after it, but the best one is always taken, and cut to the budget. Duplicates are shown
/// once and counted. A session that fills most of the answer makes room for others.
pub(crate) fn pack(
    ranked: Vec<ScoredRecord>,
    budget_tokens: usize,
    limit: usize,
    passages: &PassageFinder<'_>,
) -> Packed {
    let mut packed = Packed::default();
    let ranked = with_session_shares(ranked);
    let max_text_tokens = (budget_tokens / BUDGET_PARTS).max(MIN_CUT_TOKENS);
    let first_of_text = first_of_text(&ranked);
    // For each text the index of the record that shows it.
    let mut shown_at = vec![None; ranked.len()];
    for (mut scored, text) in ranked.into_iter().zip(first_of_text) {
        let shown: Option<usize> = shown_at[text];
        if let Some(index) = shown {
            packed.records[index].evidence.duplicates += 1;
        }
        if packed.records.len() >= limit || shown.is_some() {
            packed.omitted += 1;
            continue;
        }
        let max_tokens = match packed.records.is_empty() {
            true => max_text_tokens.min(budget_tokens.max(MIN_PASSAGE_TOKENS)),
            false => max_text_tokens,
        };
        if let Some(passage) = passages.find(&scored.record.text, max_tokens) {
            scored.record.text = passage;
            scored.is_cut = true;
        }
        let cost = estimated_tokens(&scored.record.text);
        if !packed.records.is_empty() && packed.budget_used + cost > budget_tokens {
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
fn with_session_shares(ranked: Vec<ScoredRecord>) -> Vec<ScoredRecord> {
    let mut taken: HashMap<&str, usize> = HashMap::new();
    let groups = ranked.iter().map(|scored| {
        let taken = taken.entry(&scored.record.session).or_default();
        *taken += 1;
        if scored.record.superseded_by.is_some() { 2 } else { usize::from(*taken > MAX_FIRST_HITS) }
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
        let (features, likelihood, evidence) = Default::default();
        ScoredRecord { record, sum: 1.0, features, likelihood, evidence, is_cut: false }
    }

    fn pack(ranked: Vec<ScoredRecord>, budget_tokens: usize, limit: usize) -> Packed {
        let analyser = crate::text::analyse::Analyser::default();
        let passages = PassageFinder::new(&analyser, [("port", 1.0)].into_iter());
        super::pack(ranked, budget_tokens, limit, &passages)
    }

    #[test]
    fn records_are_packed_into_the_budget() {
        let long = "x".repeat(200);
        let hits = vec![
            scored(1, "short one"),
            scored(2, &long),
            scored(3, "short two"),
            scored(4, "Short one."),
        ];
        let packed = pack(hits.clone(), 50, 10);
        assert_eq!(packed.records.iter().map(|hit| hit.record.seq).collect::<Vec<_>>(), [1, 3]);
        assert_eq!((packed.omitted, packed.budget_used), (2, 6));
        let packed = pack(vec![scored(2, &long)], 40, 10);
        assert_eq!((packed.records.len(), packed.budget_used), (1, 40));
        assert_eq!(pack(hits, 5000, 1).omitted, 3);
    }

    #[test]
    fn best_record_is_cut_to_a_small_budget() {
        let text =
            format!("{}The port is 80, as we said. Bye.", "All is well here, too. ".repeat(9));
        for budget in [1, 5, 16, 20, 30, 51, 59] {
            let packed =
                pack(vec![scored(1, &text), scored(2, "the port of the harbour")], budget, 10);
            let used = packed.budget_used;
            assert!(used <= budget.max(MIN_PASSAGE_TOKENS), "{used} of {budget}");
            let best = &packed.records[0];
            assert!(best.is_cut && best.record.text.contains("port is 80"), "{best:?}");
        }
        let short = pack(vec![scored(1, "The port is 80, as we said.")], 1, 10);
        assert!(!short.records[0].is_cut);
    }

    #[test]
    fn long_text_is_cut_to_the_passage_that_answers() {
        let text =
            format!("{}The port is 80. {}", "All is well here. ".repeat(20), "Bye. ".repeat(60));
        let packed = pack(vec![scored(1, &text)], 100, 10);
        let hit = &packed.records[0];
        assert!(hit.is_cut && hit.record.text.contains("The port is 80."));
        assert!(packed.budget_used <= MIN_CUT_TOKENS);
        let whole = pack(vec![scored(1, &text)], 100_000, 10);
        assert!(!whole.records[0].is_cut && whole.records[0].record.text == text);
    }

    #[test]
    fn duplicates_are_counted_and_sessions_share_the_answer() {
        let mut hits: Vec<ScoredRecord> = (0..14).map(|n| scored(n, &format!("one {n}"))).collect();
        for hit in &mut hits[..12] {
            hit.record.session = "a".to_owned();
        }
        hits[4].record.text = "ONE 0!".to_owned();
        hits[1].record.superseded_by = Some(RecordId::new("9"));
        let packed = pack(hits, 5000, 12);
        let order: Vec<i64> = packed.records.iter().map(|hit| hit.record.seq).collect();
        // Session `a` has used its share before the last ones come. The superseded record comes last
        // and does not fit.
        assert_eq!(order, [0, 2, 3, 5, 6, 7, 8, 12, 13, 9, 10, 11]);
        assert_eq!(packed.records[0].evidence.duplicates, 1);
        assert_eq!(packed.omitted, 2);
    }
}
