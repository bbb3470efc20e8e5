//! Reranking of the best turns by what only their texts tell: who speaks, whether they ask, whether
//! they say that something changed, and whether they consist of boilerplate. The texts are read
//! anyway.

use crate::recall::boilerplate::{SessionText, boilerplate_shares};
use crate::recall::change_words::says_changed;
use crate::recall::speakers::named_speakers;
use crate::recall::types::ScoredRecord;
use crate::recall::weights::WEIGHTS;

/// Adds to each sum what the record's text tells, and sorts the records again.
pub(crate) fn rerank(query: &str, ranked: &mut [ScoredRecord]) {
    let named = named_speakers(query, ranked);
    let first_named = named.iter().flatten().map(|speaker| speaker.position).min();
    let query = query.to_lowercase();
    let texts: Vec<SessionText<'_>> = ranked
        .iter()
        .map(|scored| SessionText { session: &scored.record.session, text: &scored.record.text })
        .collect();
    let boilerplate = boilerplate_shares(&query, &texts);
    for ((scored, named), boilerplate) in ranked.iter_mut().zip(named).zip(boilerplate) {
        let text = &scored.record.text;
        let features = &mut scored.features;
        features.boilerplate = boilerplate;
        if let Some(speaker) = named {
            if Some(speaker.position) == first_named {
                features.first_named_speaker = 1.0;
            } else {
                features.other_named_speaker = 1.0;
            }
            scored.evidence.named_speaker = Some(speaker.name);
        }
        if says_changed(text) {
            features.says_changed = 1.0;
            scored.evidence.says_changed = true;
        }
        if only_asks(text) {
            features.asks = 1.0;
        }
        scored.sum = features.dot(&WEIGHTS.features);
    }
    // The sort is stable: of equals the first stays first.
    ranked.sort_by(|a, b| b.sum.total_cmp(&a.sum));
}

/// Returns whether a text is a question and little else.
fn only_asks(text: &str) -> bool {
    let is_short = text.split_whitespace().nth(WEIGHTS.max_question_words).is_none();
    is_short && text.trim_end().ends_with(['?', '？'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recall::pack::tests::scored;

    #[test]
    fn speakers_changes_and_questions_change_the_order() {
        let order = |query: &str, texts: &[&str]| -> Vec<String> {
            let mut ranked: Vec<ScoredRecord> = texts.iter().map(|text| scored(1, text)).collect();
            rerank(query, &mut ranked);
            ranked.into_iter().map(|scored| scored.record.text).collect()
        };
        let said = ["Ben: tea", "Anna: coffee", "Eva: water"].repeat(WEIGHTS.min_speaker_turns);
        let found = order("what did Anna say to Ben?", &said);
        assert_eq!((&*found[0], &*found[WEIGHTS.min_speaker_turns]), ("Anna: coffee", "Ben: tea"));
        assert_eq!(order("what to drink", &said), said);
        assert_eq!(order("what did Anna say to Ben?", &said[..3]), said[..3]);
        let port = ["Which port?", "Port 80.", "Port 81 from now on."];
        let expect = ["Port 81 from now on.", "Port 80.", "Which port?"];
        assert_eq!(order("the port", &port), expect);
    }

    #[test]
    fn boilerplate_is_lower() {
        let order = |turns: &[(&str, &str, f64)]| -> Vec<String> {
            let one = |(session, text, sum): &(&str, &str, f64)| {
                let mut hit = scored(1, text);
                hit.record.session = (*session).to_owned();
                hit.features.lexical = *sum / WEIGHTS.features.lexical;
                hit
            };
            let mut ranked: Vec<ScoredRecord> = turns.iter().map(one).collect();
            rerank("the timeout", &mut ranked);
            ranked.into_iter().map(|scored| scored.record.text).collect()
        };
        let again = "I've read it again and the next step is small.";
        let found = order(&[("a", again, 2.0), ("b", again, 1.9), ("c", "It is 2 s.", 1.0)]);
        assert_eq!(found[0], "It is 2 s.");
    }
}
