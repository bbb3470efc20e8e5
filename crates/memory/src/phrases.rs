//! Phrases that are said again and again: "Renamed within `a.rs`, no change of behaviour." Turns made of
//! them match much and tell little.

use crate::analyse::beginning;
use crate::scripts::is_ideograph;

/// How much of a text is looked at.
const LOOKED_AT: usize = 512;
/// A phrase is so many words, or characters where words have no blanks between them. Texts of fewer phrases
/// than `FEWEST` are too short to be told.
const WORDS: usize = 4;
const CHARACTERS: usize = 5;
const FEWEST: usize = 3;
/// A word of the question that is shorter than this does not tell what it asks for.
const TELLING: usize = 4;
/// Stands for whatever name is in its place.
const NAME: u64 = 1;

/// A text of a session.
pub struct Said<'a> {
    pub session: &'a str,
    pub text: &'a str,
}

/// For each text the share of its phrases that are also in other sessions' texts among these, from 0
/// to 1. What has a word of the question in it is not counted: it is what was asked for.
pub fn said_again(cue: &str, texts: &[Said<'_>]) -> Vec<f64> {
    let asked: Vec<u64> = cue
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.chars().count() >= TELLING)
        .map(word)
        .collect();
    let mut all: Vec<(Phrase, usize)> = Vec::new();
    let mut counts = vec![0_usize; texts.len()];
    for (place, said) in texts.iter().enumerate() {
        let phrases = phrases(said.text, &asked);
        counts[place] = phrases.len();
        all.extend(phrases.into_iter().map(|phrase| (phrase, place)));
    }
    all.sort_unstable();
    let mut again = vec![0_usize; texts.len()];
    for same in all.chunk_by(|(a, _), (b, _)| a == b).filter(|same| !same[0].0.asked) {
        let session = texts[same[0].1].session;
        if same.iter().any(|(_, place)| texts[*place].session != session) {
            same.iter().for_each(|(_, place)| again[*place] += 1);
        }
    }
    let share = |(again, count): (usize, usize)| {
        if count < FEWEST { 0.0 } else { again as f64 / count as f64 }
    };
    again.into_iter().zip(counts).map(share).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Phrase {
    hash: u64,
    asked: bool,
}

/// The phrases of a text, each once. Those with more than one name are none.
fn phrases(text: &str, asked: &[u64]) -> Vec<Phrase> {
    let text = beginning(text, LOOKED_AT);
    let (mut ideographs, mut characters) = (0, 0);
    for c in text.chars() {
        characters += 1;
        ideographs += usize::from(is_ideograph(c));
    }
    let mut found: Vec<Phrase> = if ideographs * 3 > characters {
        let letters: Vec<u64> = letters(text);
        letters
            .windows(CHARACTERS)
            .map(|part| Phrase { hash: joined(part), asked: false })
            .collect()
    } else {
        let trimmed = text.split_whitespace().map(|part| part.trim_matches(is_mark));
        let words: Vec<u64> = trimmed.filter(|part| !part.is_empty()).map(word).collect();
        let phrase = |part: &[u64]| {
            let names = part.iter().filter(|word| **word == NAME).count();
            let asked = part.iter().any(|word| asked.contains(word));
            (names < 2).then(|| Phrase { hash: joined(part), asked })
        };
        words.windows(WORDS).filter_map(phrase).collect()
    };
    found.sort_unstable();
    found.dedup();
    found
}

fn is_mark(c: char) -> bool {
    ".,;:!?()[]\"'`“”…。、".contains(c)
}

/// A word by its letters, whatever their size; all names are the same.
fn word(word: &str) -> u64 {
    let mut before = ' ';
    let mut hash = 0;
    for c in word.chars() {
        let inside = before.is_lowercase() && c.is_uppercase();
        if inside || c.is_numeric() || matches!(c, '_' | '/' | '.' | '`' | ':') {
            return NAME;
        }
        for small in c.to_lowercase() {
            hash = joined(&[hash, u64::from(small)]);
        }
        before = c;
    }
    hash
}

/// A text without blanks by its characters; whatever else is between them is a name.
fn letters(text: &str) -> Vec<u64> {
    let mut letters: Vec<u64> = Vec::new();
    for c in text.chars() {
        let letter = if c.is_ascii() { NAME } else { u64::from(c) };
        if letter != NAME || letters.last() != Some(&NAME) {
            letters.push(letter);
        }
    }
    letters
}

/// FNV-1a over whole numbers: the same everywhere, which a phrase in the wrong place does no harm to.
fn joined(parts: &[u64]) -> u64 {
    let step =
        |hash: u64, part: &u64| (hash ^ part).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    parts.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(cue: &str, texts: &[(&str, &str)]) -> Vec<f64> {
        let said: Vec<Said<'_>> =
            texts.iter().map(|(session, text)| Said { session, text }).collect();
        said_again(cue, &said)
    }

    #[test]
    fn what_is_said_again_is_known_whatever_its_names() {
        let found = shares(
            "which port",
            &[
                ("a", "Renamed within src/main.rs, no change of behaviour."),
                (
                    "b",
                    "Renamed within `parse_config`, no change of behaviour. Tests pass as before.",
                ),
                ("c", "The gateway listens on 8080 because the proxy takes 80."),
                ("c", "ok"),
            ],
        );
        assert_eq!((found[0], found[2], found[3]), (1.0, 0.0, 0.0));
        assert!(found[1] > 0.3 && found[1] < 1.0, "{found:?}");
    }

    #[test]
    fn within_a_session_and_of_what_is_asked_for_it_may_be() {
        let text = "The release happens on Thursday after the review.";
        assert_eq!(shares("when", &[("a", text), ("a", text)]), [0.0, 0.0]);
        assert_eq!(shares("when", &[("a", text), ("b", text)]), [1.0, 1.0]);
        let asked = shares("is the release on Thursday", &[("a", text), ("b", text)]);
        assert!(asked[0] < 0.3, "{asked:?}");
    }

    #[test]
    fn scripts_without_blanks_have_phrases() {
        let found = shares(
            "端口",
            &[
                ("a", "已提交，只改了 a.sql。没有更急的事的话，接下来看拼团活动。"),
                ("b", "已提交，只改了 b.sql。没有更急的事的话，接下来看退款。"),
                ("c", "服务监听 8080，因为 80 被代理占用了。"),
            ],
        );
        assert!(found[0] > 0.6 && found[1] > 0.6 && found[2] == 0.0, "{found:?}");
    }
}
