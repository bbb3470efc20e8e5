//! Reranking of the best turns by what only their texts tell: who speaks, whether they ask, whether
//! they say that something changed, and whether they consist of boilerplate. The texts are read
//! anyway.

use crate::recall::boilerplate::{SessionText, boilerplate_shares};
use crate::recall::types::ScoredRecord;
use crate::recall::weights::WEIGHTS;
use crate::text::analyse::truncated;

/// How many bytes of a text are searched for words of change.
const MAX_CHANGE_BYTES: usize = 1 << 10;
/// How many bytes the name before a colon may have, with the colon.
const MAX_SPEAKER_BYTES: usize = 40;

/// Words that say that something changed.
const CHANGE_WORDS: [&str; 17] = [
    "amended",
    "amendment",
    "anymore",
    "overrides",
    "revised",
    "superseded",
    "supersedes",
    "updated",
    "instead",
    "replace",
    "replaces",
    "replaced",
    "reverted",
    "dropped",
    "became",
    "теперь",
    "вместо",
];
/// Pairs of words that say that something changed.
const CHANGE_PAIRS: [(&str, &str); 14] = [
    ("no", "longer"),
    ("any", "more"),
    ("after", "all"),
    ("now", "on"),
    ("switch", "to"),
    ("switched", "to"),
    ("changed", "to"),
    ("move", "to"),
    ("moves", "to"),
    ("moved", "to"),
    ("moved", "from"),
    ("goes", "away"),
    ("as", "of"),
    ("больше", "не"),
];
/// Parts of words that say that something changed, for languages with endings or without spaces.
const CHANGE_PARTS: [&str; 12] = [
    "замен",
    "передумал",
    "отказ",
    "改为",
    "改成",
    "换成",
    "不再",
    "变更",
    "変更",
    "ではなく",
    "もう使わ",
    "に移",
];

/// Adds to each sum what the record's text tells, and sorts the records again.
pub(crate) fn rerank(query: &str, ranked: &mut [ScoredRecord]) {
    let query = query.to_lowercase();
    let query_words: Vec<&str> = words(&query).collect();
    let named = named_speakers(&query_words, ranked);
    let first_named = named.iter().flatten().map(|(position, _)| *position).min();
    let texts: Vec<SessionText<'_>> = ranked
        .iter()
        .map(|scored| SessionText { session: &scored.record.session, text: &scored.record.text })
        .collect();
    let boilerplate = boilerplate_shares(&query, &texts);
    for ((scored, named), boilerplate) in ranked.iter_mut().zip(named).zip(boilerplate) {
        let text = &scored.record.text;
        let features = &mut scored.features;
        features.boilerplate = boilerplate;
        if let Some((position, name)) = named {
            if Some(position) == first_named {
                features.first_named_speaker = 1.0;
            } else {
                features.other_named_speaker = 1.0;
            }
            scored.evidence.named_speaker = Some(name);
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

/// Returns for each record its speaker and the position of their name in the query, if the query
/// names them.
fn named_speakers(query_words: &[&str], ranked: &[ScoredRecord]) -> Vec<Option<(usize, String)>> {
    let speakers: Vec<Option<&str>> =
        ranked.iter().map(|scored| speaker(&scored.record.text)).collect();
    let is_frequent = |name: &str| {
        let turns = speakers.iter().filter(|speaker| **speaker == Some(name)).count();
        turns >= WEIGHTS.min_speaker_turns
    };
    let named = |speaker: &Option<&str>| {
        let name = speaker.filter(|name| is_frequent(name))?;
        Some((position_in_query(query_words, name)?, name.to_owned()))
    };
    speakers.iter().map(named).collect()
}

/// Returns the speaker of a text that is written as a conversation: "Anna: I'll take it."
fn speaker(text: &str) -> Option<&str> {
    let (name, rest) = truncated(text, MAX_SPEAKER_BYTES).split_once(':')?;
    let is_name = name.split(' ').all(|part| part.starts_with(char::is_uppercase));
    (is_name && rest.starts_with(char::is_whitespace)).then_some(name)
}

/// Returns the first position in the query of any part of a name.
fn position_in_query(query_words: &[&str], name: &str) -> Option<usize> {
    let name = name.to_lowercase();
    words(&name).filter_map(|word| query_words.iter().position(|one| *one == word)).min()
}

/// Returns whether a text says that something is not as it was.
fn says_changed(text: &str) -> bool {
    let text = truncated(text, MAX_CHANGE_BYTES);
    if text.is_ascii() {
        // Most texts are ASCII, and comparing without case needs no copy of them.
        return has_change_word(text);
    }
    let text = text.to_lowercase();
    has_change_word(&text) || CHANGE_PARTS.iter().any(|part| text.contains(part))
}

fn has_change_word(text: &str) -> bool {
    let mut previous = "";
    words(text).any(|word| {
        let previous = std::mem::replace(&mut previous, word);
        let is_pair = |(first, second): &(&str, &str)| {
            second.eq_ignore_ascii_case(word) && first.eq_ignore_ascii_case(previous)
        };
        CHANGE_WORDS.iter().any(|change| change.eq_ignore_ascii_case(word))
            || CHANGE_PAIRS.iter().any(is_pair)
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recall::pack::tests::scored;

    #[test]
    fn speaker_is_the_name_before_a_colon() {
        assert_eq!(speaker("Anna: I'll take it."), Some("Anna"));
        assert_eq!(speaker("Anna Maria Schmidt: yes"), Some("Anna Maria Schmidt"));
        assert_eq!(speaker("Анна: да"), Some("Анна"));
        for text in [
            "anna: yes",
            "Anna:yes",
            "Anna 2: yes",
            "Anna and Ben: yes",
            "std::mem",
            "",
            "Anna",
            ": x",
        ] {
            assert_eq!(speaker(text), None, "{text}");
        }
        let query: Vec<&str> = words("what did anna's sister buy?").collect();
        assert_eq!(position_in_query(&query, "Anna"), position_in_query(&query, "Schmidt Anna"));
        assert!(position_in_query(&query, "Anna").is_some());
        assert!(
            position_in_query(&query, "An").is_none()
                && position_in_query(&query, "Maria").is_none()
        );
    }

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

    #[test]
    fn changes_in_ascii_and_other_texts_are_found_alike() {
        let mut texts: Vec<String> =
            CHANGE_WORDS.iter().map(|word| format!("It {word}.")).collect();
        texts.extend(CHANGE_PAIRS.iter().map(|(before, word)| format!("x-{before} {word}!")));
        texts.extend(
            ["", " ", "no-longer", "no x longer", "xinstead", "INSTEAD", "Moved  To"]
                .map(str::to_owned),
        );
        texts.extend(
            ["nolonger", "nono longer", "replacement", "insteadinstead"].map(str::to_owned),
        );
        for text in texts {
            assert_eq!(says_changed(&text), says_changed(&format!("{text} é")), "{text}");
        }
    }

    #[test]
    fn changes_are_found_in_several_languages() {
        for text in [
            "The timeout is no longer 2 s.",
            "Let's use Jotai instead, please",
            "Порт теперь 8080",
            "端口改为 8080",
            "初期値は 12 時に変更。",
        ] {
            assert!(says_changed(text), "{text}");
        }
        for text in ["The timeout is 2 s.", "steadfast", "Порт 8080", ""] {
            assert!(!says_changed(text), "{text}");
        }
    }
}
