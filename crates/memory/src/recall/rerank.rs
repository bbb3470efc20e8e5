//! A second look at the best turns, at what only their texts tell: who said them, whether they ask or
//! tell, whether they say that something changed, and whether they say what is said every time. Pure;
//! those texts are read anyway.

use std::collections::HashMap;

use crate::recall::pack::Ranked;
use crate::recall::phrases::{Said, said_again};
use crate::text::analyse::beginning;

/// What it counts that a turn was said by the first whom the question names, and by another one.
const SAID_BY: f64 = 3.0;
const SAID_BY_ANOTHER: f64 = 1.5;
/// What a turn loses that asks: the answer is wanted.
const ASKS: f64 = 0.6;
/// What it counts that a turn says that something is not as it was: what holds now is in there.
const CHANGES: f64 = 0.8;
/// What a turn loses that is made of phrases which others of these have as well.
const SAID_AGAIN: f64 = 3.0;
/// What a turn loses for each better one of its session, and for how many at most: others may know it too.
const SAME_SESSION: f64 = 0.3;
const SAME_SESSION_MOST: u8 = 3;

/// Where a text is looked at for changes, and how long the names before its colon may be.
const LOOKED_AT: usize = 1 << 10;
const LONGEST_SPEAKER: usize = 40;
/// Who begins fewer turns is no speaker but a heading: "Summary: …".
const OFTEN: usize = 3;

/// How people say that something changed: by a word, by two, and by a part of one.
const CHANGED: [&str; 10] = [
    "anymore",
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
const CHANGED_TWO: [(&str, &str); 14] = [
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
const CHANGED_PART: [&str; 12] = [
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

/// Counts in what the texts tell and puts the turns in order again.
pub(crate) fn look_again(cue: &str, ranked: &mut [Ranked]) {
    let cue = cue.to_lowercase();
    let asked: Vec<&str> = words(&cue).collect();
    let speakers: Vec<Option<&str>> = ranked.iter().map(|hit| speaker(&hit.record.text)).collect();
    let often = |name: &&str| speakers.iter().filter(|one| **one == Some(*name)).count() >= OFTEN;
    let place = |name: &Option<&str>| name.filter(often).and_then(|name| place_of(&asked, name));
    let places: Vec<Option<usize>> = speakers.iter().map(place).collect();
    let first = places.iter().flatten().min().copied();
    let said: Vec<Said<'_>> = ranked
        .iter()
        .map(|hit| Said { session: &hit.record.session, text: &hit.record.text })
        .collect();
    let again = said_again(&cue, &said);
    for ((hit, place), again) in ranked.iter_mut().zip(places).zip(again) {
        hit.sum -= SAID_AGAIN * again;
        hit.why.said_by = place.is_some();
        hit.why.changes = changes(&hit.record.text);
        if place.is_some() {
            hit.sum += if place == first { SAID_BY } else { SAID_BY_ANOTHER };
        }
        if hit.why.changes {
            hit.sum += CHANGES;
        }
        if hit.record.text.trim_end().ends_with(['?', '？']) {
            hit.sum -= ASKS;
        }
    }
    // Stable: of equals the first stays first.
    ranked.sort_by(|a, b| b.sum.total_cmp(&a.sum));
    let mut said: HashMap<&str, u8> = HashMap::new();
    let before = ranked.iter().map(|hit| {
        let said = said.entry(&hit.record.session).or_default();
        std::mem::replace(said, (*said + 1).min(SAME_SESSION_MOST))
    });
    let before: Vec<u8> = before.collect();
    for (hit, before) in ranked.iter_mut().zip(before) {
        hit.sum -= SAME_SESSION * f64::from(before);
    }
    ranked.sort_by(|a, b| b.sum.total_cmp(&a.sum));
}

/// Who said a text that begins as a written conversation does: "Anna: I'll take it."
fn speaker(text: &str) -> Option<&str> {
    let (name, said) = beginning(text, LONGEST_SPEAKER).split_once(':')?;
    let named = name.split(' ').all(|part| part.starts_with(char::is_uppercase));
    (named && said.starts_with(char::is_whitespace)).then_some(name)
}

/// Where a question names somebody, by any of the names.
fn place_of(asked: &[&str], name: &str) -> Option<usize> {
    let name = name.to_lowercase();
    words(&name).filter_map(|word| asked.iter().position(|one| *one == word)).min()
}

fn changes(text: &str) -> bool {
    let text = beginning(text, LOOKED_AT);
    if text.is_ascii() {
        return says_changed(text);
    }
    let text = text.to_lowercase();
    let mut before = "";
    let mut words = words(&text).map(|word| (std::mem::replace(&mut before, word), word));
    words.any(|two| CHANGED.contains(&two.1) || CHANGED_TWO.contains(&two))
        || CHANGED_PART.iter().any(|part| text.contains(part))
}

/// The same of a text in ASCII, word by word as numbers: most texts are such, and nothing of them is copied.
fn says_changed(text: &str) -> bool {
    const ONE: [u64; CHANGED.len()] = {
        let mut numbers = [0; CHANGED.len()];
        let mut place = 0;
        while place < CHANGED.len() {
            numbers[place] = number(CHANGED[place].as_bytes());
            place += 1;
        }
        numbers
    };
    const TWO: [(u64, u64); CHANGED_TWO.len()] = {
        let mut numbers = [(0, 0); CHANGED_TWO.len()];
        let mut place = 0;
        while place < CHANGED_TWO.len() {
            let (before, word) = CHANGED_TWO[place];
            numbers[place] = (number(before.as_bytes()), number(word.as_bytes()));
            place += 1;
        }
        numbers
    };
    let mut before = LONGER;
    let mut words = text.as_bytes().split(|byte| !byte.is_ascii_alphanumeric());
    words.any(|word| {
        if word.is_empty() {
            return false;
        }
        let word = number(word);
        let before = std::mem::replace(&mut before, word);
        word != LONGER && (ONE.contains(&word) || TWO.contains(&(before, word)))
    })
}

/// Stands for every word that is longer than those that are looked for.
const LONGER: u64 = u64::MAX;

/// The letters of a word as one number, whatever their size.
const fn number(word: &[u8]) -> u64 {
    if word.len() > 8 {
        return LONGER;
    }
    let (mut number, mut place) = (0, 0);
    while place < word.len() {
        number = number << 8 | word[place].to_ascii_lowercase() as u64;
        place += 1;
    }
    number
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recall::pack::tests::ranked;

    #[test]
    fn speakers_are_those_before_the_colon() {
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
        let asked: Vec<&str> = words("what did anna's sister buy?").collect();
        assert_eq!(place_of(&asked, "Anna"), place_of(&asked, "Schmidt Anna"));
        assert!(place_of(&asked, "Anna").is_some());
        assert!(place_of(&asked, "An").is_none() && place_of(&asked, "Maria").is_none());
    }

    #[test]
    fn what_texts_tell_counts() {
        let order = |cue: &str, texts: &[&str]| -> Vec<String> {
            let mut ranked: Vec<Ranked> = texts.iter().map(|text| ranked(1, text)).collect();
            look_again(cue, &mut ranked);
            ranked.into_iter().map(|hit| hit.record.text).collect()
        };
        let said = ["Ben: tea", "Anna: coffee", "Eva: water"].repeat(OFTEN);
        let found = order("what did Anna say to Ben?", &said);
        assert_eq!((&*found[0], &*found[OFTEN]), ("Anna: coffee", "Ben: tea"));
        assert_eq!(order("what to drink", &said), said);
        assert_eq!(order("what did Anna say to Ben?", &said[..3]), said[..3]);
        let port = ["Which port?", "Port 80.", "Port 81 from now on."];
        let expect = ["Port 81 from now on.", "Port 80.", "Which port?"];
        assert_eq!(order("the port", &port), expect);
    }

    #[test]
    fn what_is_said_every_time_and_more_of_a_session_is_lower() {
        let order = |turns: &[(&str, &str, f64)]| -> Vec<String> {
            let one = |(session, text, sum): &(&str, &str, f64)| {
                let mut hit = ranked(1, text);
                (hit.record.session, hit.sum) = ((*session).to_owned(), *sum);
                hit
            };
            let mut ranked: Vec<Ranked> = turns.iter().map(one).collect();
            look_again("the timeout", &mut ranked);
            ranked.into_iter().map(|hit| hit.record.text).collect()
        };
        let again = "I've read it again and the next step is small.";
        let found = order(&[("a", again, 2.0), ("b", again, 1.9), ("c", "It is 2 s.", 1.0)]);
        assert_eq!(found[0], "It is 2 s.");
        let found = order(&[("a", "1", 2.0), ("a", "2", 1.9), ("b", "3", 1.7), ("b", "4", 0.0)]);
        assert_eq!(found, ["1", "3", "2", "4"]);
    }

    #[test]
    fn texts_in_ascii_are_told_as_others_are() {
        let mut texts: Vec<String> = CHANGED.iter().map(|word| format!("It {word}.")).collect();
        texts.extend(CHANGED_TWO.iter().map(|(before, word)| format!("x-{before} {word}!")));
        texts.extend(
            ["", " ", "no-longer", "no x longer", "xinstead", "INSTEAD", "Moved  To"]
                .map(str::to_owned),
        );
        texts.extend(
            ["nolonger", "nono longer", "replacement", "insteadinstead"].map(str::to_owned),
        );
        for text in texts {
            // One letter that is not ASCII, and the other way is taken.
            assert_eq!(changes(&text), changes(&format!("{text} é")), "{text}");
        }
    }

    #[test]
    fn changes_are_known_in_several_languages() {
        for text in [
            "The timeout is no longer 2 s.",
            "Let's use Jotai instead, please",
            "Порт теперь 8080",
            "端口改为 8080",
            "初期値は 12 時に変更。",
        ] {
            assert!(changes(text), "{text}");
        }
        for text in ["The timeout is 2 s.", "steadfast", "Порт 8080", ""] {
            assert!(!changes(text), "{text}");
        }
    }
}
