//! Of statements on one subject the newest comes first, where a question asks what holds now: what was
//! said later replaces what was said before. A question about the past wants what was said then.

use std::collections::HashSet;

use hob_domain::Timestamp;
use hob_domain::memory::TurnSource;

use crate::recall::passage::PassageFinder;
use crate::recall::types::ScoredRecord;
use crate::recall::weights::WEIGHTS;
use crate::text::analyse::Analyser;

/// How a question begins.
const QUESTION_WORDS: [&str; 16] = [
    "what", "which", "who", "whom", "whose", "where", "how", "is", "are", "do", "does", "may",
    "must", "should", "can", "what's",
];
/// Words of a question about the past, about one event, or about what the person who asks did or should
/// do.
const OTHER_QUESTION_WORDS: [&str; 14] = [
    "did",
    "was",
    "were",
    "had",
    "ago",
    "yesterday",
    "last",
    "previously",
    "earlier",
    "before",
    "originally",
    "first",
    "when",
    "i",
];

/// What is compared of a hit.
struct Statement {
    /// The terms of the passage that answers.
    terms: HashSet<String>,
    /// The query's terms in the turn, by their index.
    asked: HashSet<usize>,
}

/// Moves each of the first hits above older ones on the same subject, if the query asks what holds now.
/// The order of all others stays.
pub(crate) fn newest_first(
    query: &str,
    ranked: &mut [ScoredRecord],
    passages: &PassageFinder<'_>,
    analyser: &Analyser,
) {
    if !asks_for_the_present(query) {
        return;
    }
    let compared = ranked.len().min(WEIGHTS.compared_statements);
    let ranked = &mut ranked[..compared];
    let mut statements: Vec<Statement> =
        ranked.iter().map(|scored| statement(scored, passages, analyser)).collect();
    // From the oldest on, so that of several statements the newest ends first.
    let mut by_time: Vec<(Timestamp, i64)> =
        ranked.iter().map(|scored| (scored.record.ts, scored.record.seq)).collect();
    by_time.sort_unstable();
    for (_, seq) in by_time {
        let Some(newer) = ranked.iter().position(|scored| scored.record.seq == seq) else {
            continue;
        };
        let is_replaced = |older: &usize| {
            replaces(&ranked[newer], &ranked[*older])
                && is_one_subject(&statements[newer], &statements[*older])
        };
        if let Some(older) = (0..newer).find(is_replaced) {
            ranked[older..=newer].rotate_right(1);
            statements[older..=newer].rotate_right(1);
            let replaced = ranked[older + 1].sum;
            ranked[older].sum = ranked[older].sum.max(replaced);
            ranked[older].evidence.replaces_older = true;
        }
    }
}

/// Returns whether a query is a question in the present tense.
fn asks_for_the_present(query: &str) -> bool {
    let query = query.to_lowercase();
    let mut words = query
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
        .peekable();
    words.peek().is_some_and(|first| QUESTION_WORDS.contains(first))
        && words.all(|word| !OTHER_QUESTION_WORDS.contains(&word))
}

fn statement(
    scored: &ScoredRecord,
    passages: &PassageFinder<'_>,
    analyser: &Analyser,
) -> Statement {
    let text = &scored.record.text;
    let passage = passages.find(text, WEIGHTS.statement_tokens);
    let terms = analyser.content_terms(passage.as_deref().unwrap_or(text));
    Statement {
        terms: terms.into_iter().collect(),
        asked: scored.evidence.terms.iter().copied().collect(),
    }
}

/// Returns whether one hit can replace another: the same side said it later, in another session, and
/// it answers about as well. The reply to a prompt repeats it and does not replace it, and the note of an
/// agent replaces only another note.
fn replaces(newer: &ScoredRecord, older: &ScoredRecord) -> bool {
    newer.record.ts > older.record.ts
        && newer.record.role == older.record.role
        && (newer.record.source != TurnSource::Mcp || older.record.source == TurnSource::Mcp)
        && newer.record.session != older.record.session
        && newer.record.place.project == older.record.place.project
        && older.sum - newer.sum <= WEIGHTS.max_statement_gap
        && newer.features.asks == 0.0
}

/// Returns whether two statements are on one subject: they share many of their words, and those that
/// the query asks for.
fn is_one_subject(one: &Statement, other: &Statement) -> bool {
    let shared = one.terms.intersection(&other.terms).count() as f64;
    let fewer = one.terms.len().min(other.terms.len()) as f64;
    let asked = one.asked.intersection(&other.asked).count() as f64;
    let all_asked = one.asked.union(&other.asked).count() as f64;
    shared >= WEIGHTS.min_shared_terms * fewer
        && asked > 0.0
        && asked >= WEIGHTS.min_shared_query_terms * all_asked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recall::pack::tests::scored;
    use hob_domain::memory::{Record, TurnRole};

    /// A hit of a session of its own that has the first `asked` terms of the query.
    fn hit(seq: i64, text: &str, asked: usize) -> ScoredRecord {
        let mut hit = scored(seq, text);
        hit.record.session = seq.to_string();
        hit.evidence.terms = (0..asked).collect();
        hit
    }

    fn order(mut hits: Vec<ScoredRecord>) -> Vec<i64> {
        let analyser = Analyser::default();
        let passages = PassageFinder::new(&analyser, [("retri", 1.0)].into_iter());
        newest_first("how often do we retry?", &mut hits, &passages, &analyser);
        hits.iter().map(|hit| hit.record.seq).collect()
    }

    const OLD: &str = "a failed delivery is retried three times";
    const NEW: &str = "a failed delivery is retried eight times";

    #[test]
    fn newest_of_several_statements_is_first() {
        let other = hit(9, "delivery notes are printed in the cellar", 1);
        let hits = vec![hit(2, OLD, 2), other, hit(1, OLD, 2), hit(3, NEW, 2)];
        assert_eq!(order(hits), [3, 2, 9, 1]);
        let long = format!("{}{NEW}. {}", "All is well. ".repeat(60), "Bye. ".repeat(60));
        assert_eq!(order(vec![hit(1, OLD, 2), hit(2, &long, 2)]), [2, 1]);
    }

    #[test]
    fn only_questions_in_the_present_want_the_newest() {
        for query in ["How often do we retry?", "who approves a deploy", "what's our policy"] {
            assert!(asks_for_the_present(query), "{query}");
        }
        for query in [
            "how often did we retry?",
            "How should I do it?",
            "When is it due?",
            "add a retry",
            "",
            "our policy",
        ] {
            assert!(!asks_for_the_present(query), "{query}");
        }
    }

    #[test]
    fn only_a_comparable_statement_replaces_another() {
        let keeps = |newer: ScoredRecord| order(vec![hit(1, OLD, 2), newer]) == [1, 2];
        assert!(!keeps(hit(2, NEW, 2)));
        assert!(keeps(hit(2, "the cellar is cold and dark", 2)));
        assert!(keeps(hit(2, NEW, 0)));
        let reply = Record { role: TurnRole::Assistant, ..hit(2, NEW, 2).record };
        assert!(keeps(ScoredRecord { record: reply, ..hit(2, NEW, 2) }));
        let same = Record { session: "1".to_owned(), ..hit(2, NEW, 2).record };
        assert!(keeps(ScoredRecord { record: same, ..hit(2, NEW, 2) }));
        assert!(keeps(ScoredRecord { sum: -9.0, ..hit(2, NEW, 2) }));
        let note = |seq, text| {
            let record = Record { source: TurnSource::Mcp, ..hit(seq, text, 2).record };
            ScoredRecord { record, ..hit(seq, text, 2) }
        };
        assert!(keeps(note(2, NEW)));
        assert_eq!(order(vec![note(1, OLD), note(2, NEW)]), [2, 1]);
        assert_eq!(order(vec![note(1, OLD), hit(2, NEW, 2)]), [2, 1]);
    }
}
