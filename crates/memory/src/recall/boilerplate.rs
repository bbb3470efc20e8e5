//! Boilerplate: phrases that occur in many sessions, such as "Renamed within `a.rs`, no change of
//! behaviour." Turns made of them match many queries and answer none.

use crate::text::analyse::truncated;
use crate::text::writing_systems::is_ideograph;

/// How many bytes of a text are compared.
const MAX_TEXT_BYTES: usize = 512;
/// How many words a phrase has.
const PHRASE_WORDS: usize = 4;
/// How many characters a phrase has in a text without spaces between words.
const PHRASE_CHARS: usize = 5;
/// A text with fewer phrases is too short to be boilerplate.
const MIN_PHRASES: usize = 3;
/// About how many phrases a text has: the capacity to reserve.
const EXPECTED_PHRASES: usize = 64;
/// How many texts are compared. A power of two: it divides the hashes below.
const MAX_TEXTS: usize = 1 << 12;
/// A word of the query with fewer characters does not tell what it asks for.
const MIN_QUERY_WORD_CHARS: usize = 4;
/// The hash of every identifier, path and number, so that phrases match whatever they name.
const NAME: u64 = 1;

/// A text with its session.
pub(crate) struct SessionText<'a> {
    pub(crate) session: &'a str,
    pub(crate) text: &'a str,
}

/// Returns for each text the share of its phrases that texts of other sessions have as well, from 0
/// to 1. A phrase with a word of the query is not counted: it is what was asked for.
pub(crate) fn boilerplate_shares(query: &str, texts: &[SessionText<'_>]) -> Vec<f64> {
    let query_words: Vec<u64> = query
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.chars().count() >= MIN_QUERY_WORD_CHARS)
        .map(word_hash)
        .collect();
    // The low bits of each hash are replaced by the index of its text, so that one number is
    // sorted.
    let mut all: Vec<u64> = Vec::with_capacity(texts.len() * EXPECTED_PHRASES);
    let mut counts = vec![0_usize; texts.len()];
    let mut units = Vec::new();
    for (index, one) in texts.iter().enumerate().take(MAX_TEXTS) {
        for_each_phrase(one.text, &query_words, &mut units, |phrase| {
            counts[index] += 1;
            if !phrase.in_query {
                all.push(phrase.hash / MAX_TEXTS as u64 * MAX_TEXTS as u64 + index as u64);
            }
        });
    }
    all.sort_unstable();
    let index = |one: &u64| (one % MAX_TEXTS as u64) as usize;
    let mut shared = vec![0_usize; texts.len()];
    for same in all.chunk_by(|a, b| a / MAX_TEXTS as u64 == b / MAX_TEXTS as u64) {
        let session = texts[index(&same[0])].session;
        if same.iter().any(|one| texts[index(one)].session != session) {
            same.iter().for_each(|one| shared[index(one)] += 1);
        }
    }
    let share = |(shared, count): (usize, usize)| {
        if count < MIN_PHRASES { 0.0 } else { shared as f64 / count as f64 }
    };
    shared.into_iter().zip(counts).map(share).collect()
}

struct Phrase {
    hash: u64,
    /// Whether the query has one of the phrase's words.
    in_query: bool,
}

/// The hash of a word or character, and whether the query has it.
type Unit = (u64, bool);

/// Calls `each` with every phrase of a text that has at most one name. `units` is scratch space.
fn for_each_phrase(
    text: &str,
    query_words: &[u64],
    units: &mut Vec<Unit>,
    mut each: impl FnMut(Phrase),
) {
    units.clear();
    let text = truncated(text, MAX_TEXT_BYTES);
    let ideographs =
        if text.is_ascii() { 0 } else { text.chars().filter(|c| is_ideograph(*c)).count() };
    // An ideograph has three bytes, so this is a third of the characters or more.
    if ideographs * 5 > text.len() {
        add_characters(text, units);
        for phrase in units.windows(PHRASE_CHARS) {
            each(Phrase { hash: phrase_hash(phrase), in_query: false });
        }
        return;
    }
    for_each_word(text, |word| units.push((word, query_words.contains(&word))));
    for phrase in units.windows(PHRASE_WORDS) {
        if phrase.iter().filter(|(word, _)| *word == NAME).count() < 2 {
            let in_query = phrase.iter().any(|(_, in_query)| *in_query);
            each(Phrase { hash: phrase_hash(phrase), in_query });
        }
    }
}

/// Calls `each` with the hash of every word, without the punctuation around it. Most texts are
/// ASCII; for them it takes a tenth of the time.
fn for_each_word(text: &str, each: impl FnMut(u64)) {
    if text.is_ascii() {
        let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0B;
        let trimmed = text.as_bytes().split(is_space).map(trimmed_ascii);
        return trimmed.filter(|word| !word.is_empty()).map(ascii_word_hash).for_each(each);
    }
    let trimmed = text.split_whitespace().map(|word| word.trim_matches(is_punctuation));
    trimmed.filter(|word| !word.is_empty()).map(word_hash).for_each(each);
}

fn is_punctuation(c: char) -> bool {
    u8::try_from(c).is_ok_and(is_ascii_punctuation) || matches!(c, '“' | '”' | '…' | '。' | '、')
}

fn is_ascii_punctuation(byte: u8) -> bool {
    matches!(
        byte,
        b'.' | b',' | b';' | b':' | b'!' | b'?' | b'(' | b')' | b'[' | b']' | b'"' | b'\'' | b'`'
    )
}

fn trimmed_ascii(mut word: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = word
        && is_ascii_punctuation(*first)
    {
        word = rest;
    }
    while let [rest @ .., last] = word
        && is_ascii_punctuation(*last)
    {
        word = rest;
    }
    word
}

/// Hashes a word without regard to case. All names have the same hash.
fn word_hash(word: &str) -> u64 {
    if word.is_ascii() {
        return ascii_word_hash(word.as_bytes());
    }
    let mut after_lowercase = false;
    let mut hash = HASH_START;
    for c in word.chars() {
        let is_camel_case = after_lowercase && c.is_uppercase();
        if is_camel_case || c.is_numeric() || matches!(c, '_' | '/' | '.' | '`' | ':') {
            return NAME;
        }
        let lowercase =
            if c.is_ascii() { Some(c.to_ascii_lowercase()) } else { c.to_lowercase().next() };
        hash = step(hash, u64::from(lowercase.unwrap_or(c)));
        after_lowercase = c.is_lowercase();
    }
    hash
}

fn ascii_word_hash(word: &[u8]) -> u64 {
    let mut after_lowercase = false;
    let mut hash = HASH_START;
    for byte in word {
        match byte {
            b'A'..=b'Z' if after_lowercase => return NAME,
            b'0'..=b'9' | b'_' | b'/' | b'.' | b'`' | b':' => return NAME,
            _ => hash = step(hash, u64::from(byte.to_ascii_lowercase())),
        }
        after_lowercase = byte.is_ascii_lowercase();
    }
    hash
}

/// Adds the characters of a text without spaces. ASCII text between them is a name.
fn add_characters(text: &str, units: &mut Vec<Unit>) {
    for c in text.chars() {
        let unit = if c.is_ascii() { NAME } else { u64::from(c) };
        if unit != NAME || units.last() != Some(&(NAME, false)) {
            units.push((unit, false));
        }
    }
}

/// Hashes a phrase with a variant of FNV-1a. The result is the same on every machine, and a
/// collision does no harm here.
fn phrase_hash(units: &[Unit]) -> u64 {
    units.iter().fold(HASH_START, |hash, (unit, _)| step(hash, *unit))
}

const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;

fn step(hash: u64, unit: u64) -> u64 {
    (hash ^ unit).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(query: &str, texts: &[(&str, &str)]) -> Vec<f64> {
        let texts: Vec<SessionText<'_>> =
            texts.iter().map(|(session, text)| SessionText { session, text }).collect();
        boilerplate_shares(query, &texts)
    }

    #[test]
    fn boilerplate_is_found_whatever_it_names() {
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
    fn words_of_ascii_and_other_texts_have_the_same_hashes() {
        let text = "(Renamed) \"within\" src/main.rs, parseConfig; it's\x0Bdone… [42] `x` HTTP\t--";
        let ascii = text.replace('…', ".");
        assert!(!text.is_ascii() && ascii.is_ascii());
        let all = |text: &str| {
            let mut all = Vec::new();
            for_each_word(text, |word| all.push(word));
            all
        };
        assert_eq!(all(text), all(&ascii));
        assert_eq!(all(&ascii).len(), 10);
    }

    #[test]
    fn repetition_within_a_session_or_of_the_query_is_not_boilerplate() {
        let text = "The release happens on Thursday after the review.";
        assert_eq!(shares("when", &[("a", text), ("a", text)]), [0.0, 0.0]);
        assert_eq!(shares("when", &[("a", text), ("b", text)]), [1.0, 1.0]);
        let in_query = shares("is the release on Thursday", &[("a", text), ("b", text)]);
        assert!(in_query[0] < 0.3, "{in_query:?}");
    }

    #[test]
    fn boilerplate_is_found_in_texts_without_spaces() {
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
