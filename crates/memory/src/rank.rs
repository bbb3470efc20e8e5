//! Ranking and packing: pure, and the same for every store.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use hob_domain::memory::{Candidate, Record};

use crate::analyse::{Analyser, beginning, readable};

/// How quickly a rank loses weight.
const RANK_SMOOTHING: f64 = 60.0;
/// What the dense ranking counts beside the lexical one.
const DENSE_WEIGHT: f64 = 0.1;

/// How much of a text is looked at to say why it was found.
const REASON: usize = 32 << 10;

/// A candidate in its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    pub record: Record,
    /// From 0 to 1.
    pub score: f64,
}

/// Puts candidates in order: by the sum of their reciprocal ranks, what was superseded last, and of
/// equals the newest first. Turns of the project `first` come before others.
pub fn rank(candidates: Vec<Candidate>, first: Option<&str>) -> Vec<Ranked> {
    let lexical = ranks(&candidates, |candidate| candidate.lexical);
    let dense = ranks(&candidates, |candidate| candidate.dense);
    let best = (1.0 + DENSE_WEIGHT) / (RANK_SMOOTHING + 1.0);
    let mut ranked: Vec<Ranked> = candidates
        .into_iter()
        .map(|candidate| {
            let part = |ranks: &HashMap<i64, usize>, weight: f64| {
                let rank = ranks.get(&candidate.record.seq);
                rank.map_or(0.0, |rank| weight / (RANK_SMOOTHING + *rank as f64))
            };
            let score = (part(&lexical, 1.0) + part(&dense, DENSE_WEIGHT)) / best;
            Ranked { record: candidate.record, score }
        })
        .collect();
    ranked.sort_by(|a, b| compare(a, b, first));
    ranked
}

fn compare(a: &Ranked, b: &Ranked, first: Option<&str>) -> Ordering {
    let away =
        |ranked: &Ranked| first.is_some_and(|project| ranked.record.place.project != project);
    let superseded = |ranked: &Ranked| ranked.record.superseded_by.is_some();
    (superseded(a), away(a))
        .cmp(&(superseded(b), away(b)))
        .then(b.score.total_cmp(&a.score))
        .then(b.record.ts.cmp(&a.record.ts))
        .then(b.record.seq.cmp(&a.record.seq))
}

/// The place of each candidate by one measure, 1 for the best.
fn ranks(
    candidates: &[Candidate],
    measure: impl Fn(&Candidate) -> Option<f64>,
) -> HashMap<i64, usize> {
    let mut measured: Vec<(i64, f64)> = candidates
        .iter()
        .filter_map(|candidate| Some((candidate.record.seq, measure(candidate)?)))
        .collect();
    measured.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
    measured.into_iter().enumerate().map(|(index, (seq, _))| (seq, index + 1)).collect()
}

/// Why a record was found, in words.
pub fn reason(record: &Record, analyser: &Analyser, terms: &[String]) -> String {
    let there: HashSet<String> =
        analyser.terms(beginning(&record.text, REASON)).into_iter().collect();
    let matched: Vec<String> = terms
        .iter()
        .filter(|term| there.contains(*term))
        .take(8)
        .map(|term| readable(term))
        .collect();
    let mut reason = if matched.is_empty() {
        "similar wording".to_owned()
    } else {
        format!("matches {}", matched.join(", "))
    };
    if record.superseded_by.is_some() {
        reason.push_str("; superseded by a correction");
    }
    reason
}

/// What fits.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Packed {
    pub hits: Vec<Ranked>,
    pub budget_used: usize,
    pub omitted: usize,
}

/// Takes hits in order as long as they fit the budget; one that is too long is passed over for
/// shorter ones behind it, but the best one is always there. Equal texts are shown once.
pub fn pack(ranked: Vec<Ranked>, budget_tokens: usize, limit: usize) -> Packed {
    let mut packed = Packed::default();
    let mut shown: HashSet<String> = HashSet::new();
    for hit in ranked {
        let cost = tokens(&hit.record.text);
        let fits = packed.hits.is_empty() || packed.budget_used + cost <= budget_tokens;
        if packed.hits.len() >= limit || !fits || shown.contains(hit.record.text.trim()) {
            packed.omitted += 1;
            continue;
        }
        shown.insert(hit.record.text.trim().to_owned());
        packed.budget_used += cost;
        packed.hits.push(hit);
    }
    packed
}

/// About how many tokens a text has: four ASCII characters to one, others nearly one each.
pub fn tokens(text: &str) -> usize {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    let other = text.chars().filter(|c| !c.is_ascii()).count();
    ascii.div_ceil(4) + (other * 2).div_ceil(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hob_domain::memory::{Place, RecordId, Tier, TurnRole};

    fn record(seq: i64, text: &str) -> Record {
        Record {
            id: RecordId::new(seq.to_string()),
            seq,
            session: "s".to_owned(),
            place: Place { project: "/p".to_owned(), worktree: "/p".to_owned() },
            role: TurnRole::User,
            tier: Tier::Episodic,
            text: text.to_owned(),
            sealed: None,
            cue: None,
            ts: hob_domain::Timestamp::from_second(seq).unwrap(),
            client: "claude".to_owned(),
            source: "hook".to_owned(),
            superseded_by: None,
            supersedes: None,
        }
    }

    fn candidate(record: Record, lexical: Option<f64>, dense: Option<f64>) -> Candidate {
        Candidate { record, lexical, dense }
    }

    fn order(candidates: Vec<Candidate>, first: Option<&str>) -> Vec<i64> {
        rank(candidates, first).iter().map(|ranked| ranked.record.seq).collect()
    }

    #[test]
    fn the_order_of_hits() {
        let plain = |seq, lexical| candidate(record(seq, "the port"), lexical, None);
        assert_eq!(order(vec![plain(1, Some(1.0)), plain(2, Some(2.0))], None), [2, 1]);
        let agreed = candidate(record(3, "port"), Some(1.5), Some(0.9));
        assert_eq!(order(vec![plain(2, Some(1.6)), agreed.clone()], None), [3, 2]);
        let mut old = plain(4, Some(9.0));
        old.record.superseded_by = Some(RecordId::new("2"));
        assert_eq!(order(vec![old, plain(2, Some(1.0))], None), [2, 4]);
        let mut away = plain(5, Some(9.0));
        away.record.place.project = "/q".to_owned();
        assert_eq!(order(vec![away.clone(), plain(2, Some(1.0))], Some("/p")), [2, 5]);
        assert_eq!(order(vec![away, plain(2, Some(1.0))], None), [5, 2]);
    }

    #[test]
    fn hits_are_packed_into_the_budget() {
        let ranked = |seq, text: &str| Ranked { record: record(seq, text), score: 1.0 };
        let long = "x".repeat(400);
        let hits = vec![
            ranked(1, "short one"),
            ranked(2, &long),
            ranked(3, "short two"),
            ranked(4, "short one"),
        ];
        let packed = pack(hits.clone(), 50, 10);
        assert_eq!(packed.hits.iter().map(|hit| hit.record.seq).collect::<Vec<_>>(), [1, 3]);
        assert_eq!((packed.omitted, packed.budget_used), (2, 6));
        let packed = pack(vec![ranked(2, &long)], 50, 10);
        assert_eq!((packed.hits.len(), packed.budget_used), (1, 100));
        assert_eq!(pack(hits, 5000, 1).omitted, 3);
    }
}
