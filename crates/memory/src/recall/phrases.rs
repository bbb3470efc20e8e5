//! Phrases that are said again and again: "Renamed within `a.rs`, no change of behaviour." Turns made of
//! them match much and tell little.

use crate::text::analyse::beginning;
use crate::text::writing_systems::is_ideograph;

/// How much of a text is looked at.
const LOOKED_AT: usize = 512;
/// A phrase is so many words, or characters where words have no blanks between them. Texts of fewer phrases
/// than `FEWEST` are too short to be told.
const WORDS: usize = 4;
const CHARACTERS: usize = 5;
const FEWEST: usize = 3;
/// About how many phrases a text has.
const USUAL: usize = 64;
/// So many texts are compared at most.
const PLACES: usize = 1 << 12;
/// A word of the question that is shorter than this does not tell what it asks for.
const TELLING: usize = 4;
/// Stands for whatever name is in its place.
const NAME: u64 = 1;

/// A text of a session.
pub(crate) struct Said<'a> {
    pub(crate) session: &'a str,
    pub(crate) text: &'a str,
}

/// For each text the share of its phrases that are also in other sessions' texts among these, from 0
/// to 1. What has a word of the question in it is not counted: it is what was asked for.
pub(crate) fn said_again(cue: &str, texts: &[Said<'_>]) -> Vec<f64> {
    let asked: Vec<u64> = cue
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.chars().count() >= TELLING)
        .map(word)
        .collect();
    // Of each hash the lower bits make room for the place of its text, so that one short number is sorted.
    let mut all: Vec<u64> = Vec::with_capacity(texts.len() * USUAL);
    let mut counts = vec![0_usize; texts.len()];
    let mut parts = Vec::new();
    for (place, said) in texts.iter().enumerate().take(PLACES) {
        phrases(said.text, &asked, &mut parts, |phrase| {
            counts[place] += 1;
            if !phrase.asked {
                all.push(phrase.hash / PLACES as u64 * PLACES as u64 + place as u64);
            }
        });
    }
    all.sort_unstable();
    let place = |one: &u64| (one % PLACES as u64) as usize;
    let mut again = vec![0_usize; texts.len()];
    for same in all.chunk_by(|a, b| a / PLACES as u64 == b / PLACES as u64) {
        let session = texts[place(&same[0])].session;
        if same.iter().any(|one| texts[place(one)].session != session) {
            same.iter().for_each(|one| again[place(one)] += 1);
        }
    }
    let share = |(again, count): (usize, usize)| {
        if count < FEWEST { 0.0 } else { again as f64 / count as f64 }
    };
    again.into_iter().zip(counts).map(share).collect()
}

struct Phrase {
    hash: u64,
    asked: bool,
}

/// A word or a letter, and whether the question has it.
type Part = (u64, bool);

/// Tells the phrases of a text. Those with more than one name are none. `parts` is room to work in.
fn phrases(text: &str, asked: &[u64], parts: &mut Vec<Part>, mut tell: impl FnMut(Phrase)) {
    parts.clear();
    let text = beginning(text, LOOKED_AT);
    let ideographs =
        if text.is_ascii() { 0 } else { text.chars().filter(|c| is_ideograph(*c)).count() };
    // An ideograph has three bytes, so that this is a third of the characters or more.
    if ideographs * 5 > text.len() {
        letters(text, parts);
        for part in parts.windows(CHARACTERS) {
            tell(Phrase { hash: joined(part), asked: false });
        }
        return;
    }
    words(text, |word| parts.push((word, asked.contains(&word))));
    for part in parts.windows(WORDS) {
        if part.iter().filter(|(word, _)| *word == NAME).count() < 2 {
            tell(Phrase { hash: joined(part), asked: part.iter().any(|(_, asked)| *asked) });
        }
    }
}

/// Tells the words of a text without the marks around them. Most texts are ASCII, and there it takes a tenth of the
/// time.
fn words(text: &str, tell: impl FnMut(u64)) {
    if text.is_ascii() {
        let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0B;
        let trimmed = text.as_bytes().split(blank).map(without_marks);
        return trimmed.filter(|part| !part.is_empty()).map(ascii_word).for_each(tell);
    }
    let trimmed = text.split_whitespace().map(|part| part.trim_matches(is_mark));
    trimmed.filter(|part| !part.is_empty()).map(word).for_each(tell);
}

fn is_mark(c: char) -> bool {
    u8::try_from(c).is_ok_and(is_ascii_mark) || matches!(c, '“' | '”' | '…' | '。' | '、')
}

fn is_ascii_mark(byte: u8) -> bool {
    matches!(
        byte,
        b'.' | b',' | b';' | b':' | b'!' | b'?' | b'(' | b')' | b'[' | b']' | b'"' | b'\'' | b'`'
    )
}

fn without_marks(mut part: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = part
        && is_ascii_mark(*first)
    {
        part = rest;
    }
    while let [rest @ .., last] = part
        && is_ascii_mark(*last)
    {
        part = rest;
    }
    part
}

/// A word by its letters, whatever their size; all names are the same.
fn word(word: &str) -> u64 {
    if word.is_ascii() {
        return ascii_word(word.as_bytes());
    }
    let mut small_before = false;
    let mut hash = START;
    for c in word.chars() {
        let inside = small_before && c.is_uppercase();
        if inside || c.is_numeric() || matches!(c, '_' | '/' | '.' | '`' | ':') {
            return NAME;
        }
        let small =
            if c.is_ascii() { Some(c.to_ascii_lowercase()) } else { c.to_lowercase().next() };
        hash = step(hash, u64::from(small.unwrap_or(c)));
        small_before = c.is_lowercase();
    }
    hash
}

fn ascii_word(word: &[u8]) -> u64 {
    let mut small_before = false;
    let mut hash = START;
    for byte in word {
        match byte {
            b'A'..=b'Z' if small_before => return NAME,
            b'0'..=b'9' | b'_' | b'/' | b'.' | b'`' | b':' => return NAME,
            _ => hash = step(hash, u64::from(byte.to_ascii_lowercase())),
        }
        small_before = byte.is_ascii_lowercase();
    }
    hash
}

/// A text without blanks by its characters; whatever else is between them is a name.
fn letters(text: &str, letters: &mut Vec<Part>) {
    for c in text.chars() {
        let letter = if c.is_ascii() { NAME } else { u64::from(c) };
        if letter != NAME || letters.last() != Some(&(NAME, false)) {
            letters.push((letter, false));
        }
    }
}

/// FNV-1a over whole numbers: the same everywhere, and two of one hash do no harm here.
fn joined(parts: &[Part]) -> u64 {
    parts.iter().fold(START, |hash, (part, _)| step(hash, *part))
}

const START: u64 = 0xcbf2_9ce4_8422_2325;

fn step(hash: u64, part: u64) -> u64 {
    (hash ^ part).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
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
    fn words_are_the_same_whatever_else_is_in_the_text() {
        let text = "(Renamed) \"within\" src/main.rs, parseConfig; it's\x0Bdone… [42] `x` HTTP\t--";
        let ascii = text.replace('…', ".");
        assert!(!text.is_ascii() && ascii.is_ascii());
        let all = |text: &str| {
            let mut all = Vec::new();
            words(text, |word| all.push(word));
            all
        };
        assert_eq!(all(text), all(&ascii));
        assert_eq!(all(&ascii).len(), 10);
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
