//! From text to the terms it is found by.
//!
//! Words are folded to their stems, irregular ones by a list. Identifiers, paths, versions and the like
//! are kept whole and are also split into their parts, so that `parse_config`, `parseConfig` and "parse
//! config" meet. Scripts without blanks between words are cut into pairs of characters, and where one
//! script of Japanese ends and another begins.

use std::collections::HashSet;

use rust_stemmers::{Algorithm, Stemmer};

use crate::text::writing_systems::{folded, is_ideograph, is_particle, pairs};

/// The analysis a turn's terms were made by. A greater one makes them anew, in the background.
pub(crate) const VERSION: u32 = 3;

/// Words that say nothing about what a text is about, and the stems of those.
const STOP_WORDS: &str = " a about after all also am an and any are as at be been before being but by can \
could d did do does doing done down each else ever few for from further had has have having he her here hers \
him his how i if in into is it its just let ll m me more most my no nor not now of off on once only or other \
our ours out over own please re s same she should so some such t than that the their theirs them then there \
these they this those through to too under until up us ve very was we were what when where which while who \
whom why will with would you your yours yes ok ca wo don doesn didn isn wasn doe whi pleas befor onc veri ani onli dure и в во не что он на я с со как \
а то все она так его но да ты к у же вы за бы по только ее мне было вот от меня еще нет о из ему мы они нас \
это этот эта эти какой какая какие каком где когда почему был была были для при ли мой наш \
什么 怎么 我们 你们 他们 哪个 哪些 为什 这个 那个 是什 么样 ";

/// Forms that no rule brings back to their word, from WordNet's lists: "went go".
const IRREGULAR: &str = include_str!("../../data/irregular.txt");

/// How much of a question is looked at, and how many of its terms are looked for.
const QUESTION: usize = 64 << 10;
const QUESTION_TERMS: usize = 64;
/// Longer ones are no names.
const LONGEST_NAME: usize = 200;

/// The beginning of a text, of at most so many bytes.
pub(crate) fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

/// Turns texts into terms. Making one is not free; keep it.
pub struct Analyser {
    english: Stemmer,
    russian: Stemmer,
    /// In order of the forms.
    irregular: Vec<(&'static str, &'static str)>,
    stop: HashSet<&'static str>,
}

impl Default for Analyser {
    fn default() -> Analyser {
        Analyser {
            english: Stemmer::create(Algorithm::English),
            russian: Stemmer::create(Algorithm::Russian),
            irregular: IRREGULAR.lines().filter_map(|line| line.split_once(' ')).collect(),
            stop: STOP_WORDS.split_ascii_whitespace().collect(),
        }
    }
}

impl Analyser {
    /// All terms of a text in order, repeated as they occur.
    pub fn terms(&self, text: &str) -> Vec<String> {
        let mut terms = Vec::new();
        for chunk in text.split(|c: char| c.is_whitespace() || is_fence(c)) {
            self.chunk(chunk, &mut terms);
        }
        terms
    }

    /// The terms a text is found by: those that say something, or all where none does.
    pub fn telling(&self, text: &str) -> Vec<String> {
        let mut terms = self.terms(text);
        if terms.iter().any(|term| !self.is_stop(term)) {
            terms.retain(|term| !self.is_stop(term));
        }
        terms
    }

    /// Whether a term, in the index's spelling, is a word that says nothing.
    pub fn is_stop(&self, term: &str) -> bool {
        self.stop.contains(term) || is_particle(term)
    }

    /// The terms of a question: each once, without words that say nothing, unless it has no others.
    pub fn question(&self, text: &str) -> Vec<String> {
        let mut seen = HashSet::new();
        let mut terms = self.telling(beginning(text, QUESTION));
        terms.retain(|term| seen.insert(term.clone()));
        if terms.len() > QUESTION_TERMS {
            // Long ones tell more: names, paths, rare words.
            terms.sort_by_key(|term| std::cmp::Reverse(term.chars().count()));
            terms.truncate(QUESTION_TERMS);
        }
        terms
    }

    fn chunk(&self, chunk: &str, terms: &mut Vec<String>) {
        let chunk = chunk.trim_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '#'));
        let chunk = without_ending(chunk);
        if chunk.is_empty() {
            return;
        }
        let parts = parts(chunk);
        let compound = parts.len() > 1 || parts.first().is_some_and(|part| *part != chunk);
        if compound && chunk.len() <= LONGEST_NAME && chunk.is_ascii() {
            name_terms(chunk, terms);
        }
        for part in parts {
            if part.chars().any(is_ideograph) {
                pairs(part, terms);
            } else {
                let word = self.stem(&folded(part));
                // A mark without its letter is none.
                terms.extend(Some(word).filter(|word| !word.is_empty()));
            }
        }
    }

    fn stem(&self, word: &str) -> String {
        let first = word.chars().next().unwrap_or_default();
        if word.is_ascii() && first.is_ascii_alphabetic() {
            let place = self.irregular.binary_search_by(|(form, _)| (*form).cmp(word));
            let word = place.map_or(word, |place| self.irregular[place].1);
            self.english.stem(word).into_owned()
        } else if matches!(first, 'а'..='я') {
            self.russian.stem(word).into_owned()
        } else {
            word.to_owned()
        }
    }
}

/// Whether a term is a single character of a script that makes its words of several.
pub(crate) fn is_single(term: &str) -> bool {
    let mut characters = term.chars();
    characters.next().is_some_and(is_ideograph) && characters.next().is_none()
}

/// Whether a term is the whole of an identifier, a path, a version or a number rather than a word.
pub(crate) fn is_name(term: &str) -> bool {
    term.chars().any(|c| c.is_ascii_digit() || (0xE000..=0xE07F).contains(&u32::from(c)))
}

/// The index cuts at ASCII signs, so those inside a term are written as characters of private use.
fn spelled(term: &str) -> String {
    let letter = |c: char| match c {
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => {
            char::from_u32(0xE000 + u32::from(c)).unwrap_or(c)
        }
        c => c,
    };
    term.chars().map(letter).collect()
}

/// A term as people write it.
pub(crate) fn readable(term: &str) -> String {
    let letter = |c: char| match u32::from(c) {
        code @ 0xE000..=0xE07F => char::from_u32(code - 0xE000).unwrap_or(c),
        _ => c,
    };
    term.chars().map(letter).collect()
}

/// A word without what English hangs on it with an apostrophe.
fn without_ending(chunk: &str) -> &str {
    let Some((at, mark)) = chunk.char_indices().rev().find(|(_, c)| matches!(c, '\'' | '’'))
    else {
        return chunk;
    };
    let ending = &chunk[at + mark.len_utf8()..];
    match ending {
        "s" | "re" | "ll" | "ve" | "d" | "m" | "S" => &chunk[..at],
        "t" => chunk[..at].strip_suffix('n').unwrap_or(&chunk[..at]),
        _ => chunk,
    }
}

/// The whole of a compound, and what else it may be asked for as.
fn name_terms(chunk: &str, terms: &mut Vec<String>) {
    let name = chunk.to_lowercase();
    terms.push(spelled(&name));
    // However an identifier joins its words, it is the same: `parse_config` is `parseConfig`.
    let joined = |name: &str| name.replace(['_', '-'], "");
    if joined(&name) != name && joined(&name).len() > 2 {
        terms.push(spelled(&joined(&name)));
    }
    // A place in a file is asked for without its line: `login.rs` of `src/auth/login.rs:42:7`.
    let file = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == ':');
    let file = if name[file.len()..].starts_with(':') { file } else { &name };
    if file != name && many_parts(file) {
        terms.push(spelled(file));
    }
    // A path's own names are looked for as well.
    if file.contains('/') {
        let names = file.split('/').filter(|name| many_parts(name));
        terms.extend(names.map(spelled));
    }
    // A version is asked for without its letter.
    if let Some(bare) =
        name.strip_prefix('v').filter(|bare| bare.starts_with(|c: char| c.is_ascii_digit()))
    {
        terms.push(spelled(bare));
    }
}

/// Signs that never belong to a name.
fn is_fence(c: char) -> bool {
    "()[]{}<>\"`,;|=*!?“”„«»…。、，；：？！（）「」『』【】《》・".contains(c)
}

fn many_parts(name: &str) -> bool {
    parts(name).len() > 1
}

/// The words of an identifier: cut at signs, between small and capital letters, before the last
/// capital of several, and between scripts.
fn parts(chunk: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = None;
    let characters: Vec<(usize, char)> = chunk.char_indices().collect();
    for (index, &(at, c)) in characters.iter().enumerate() {
        // The long sign of Japanese is part of its word.
        if !c.is_alphanumeric() && c != 'ー' {
            if let Some(from) = start.take() {
                parts.push(&chunk[from..at]);
            }
            continue;
        }
        let Some(from) = start else {
            start = Some(at);
            continue;
        };
        let previous = characters[index - 1].1;
        let next = characters.get(index + 1).map(|(_, next)| *next);
        let camel = previous.is_lowercase() && c.is_uppercase();
        let acronym =
            previous.is_uppercase() && c.is_uppercase() && next.is_some_and(char::is_lowercase);
        if camel || acronym || is_ideograph(previous) != is_ideograph(c) {
            parts.push(&chunk[from..at]);
            start = Some(at);
        }
    }
    if let Some(from) = start {
        parts.push(&chunk[from..]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expect: &[&str]) {
        let terms: Vec<String> =
            Analyser::default().terms(text).iter().map(|term| readable(term)).collect();
        assert_eq!(terms, expect, "{text}");
    }

    #[test]
    fn words_and_names() {
        check("The tests are running.", &["the", "test", "are", "run"]);
        check("children went, kept", &["child", "go", "keep"]);
        check("I don't; she'll", &["i", "do", "she"]);
        check("parse_config", &["parse_config", "parseconfig", "pars", "config"]);
        check("parseConfig()", &["parseconfig", "pars", "config"]);
        check("HTTPServer2", &["httpserver2", "http", "server2"]);
        check(
            "src/auth/login.rs:42",
            &[
                "src/auth/login.rs:42",
                "src/auth/login.rs",
                "login.rs",
                "src",
                "auth",
                "login",
                "rs",
                "42",
            ],
        );
        check(
            "error E0277 in v1.2.3",
            &["error", "e0277", "in", "v1.2.3", "1.2.3", "v1", "2", "3"],
        );
        check("Anna's `--no-spawn`", &["anna", "no-spawn", "nospawn", "no", "spawn"]);
        check(
            "at std::rt::lang_start (rt.rs:9)",
            &[
                "at",
                "std::rt::lang_start",
                "std::rt::langstart",
                "std",
                "rt",
                "lang",
                "start",
                "rt.rs:9",
                "rt.rs",
                "rt",
                "rs",
                "9",
            ],
        );
        check("  ", &[]);
    }

    #[test]
    fn other_scripts() {
        check("недавние тесты", &["недавн", "тест"]);
        check("Ёлки café", &["елк", "cafe"]);
        check("数据库", &["数据", "据库", "数", "据", "库"]);
        check("RustとSQLite", &["rust", "と", "sq", "lite"]);
        check("サーバー", &["サーバ"]);
        check("ログを消す", &["ログ", "消す", "消"]);
        check("ア", &["ア"]);
        check("キャンセル", &["キャンセル", "キャン", "ャンセ", "ンセル"]);
    }

    #[test]
    fn questions() {
        let question = |text| Analyser::default().question(text);
        assert_eq!(question("What is the port of the server?"), ["port", "server"]);
        assert_eq!(question("who are you"), ["who", "are", "you"]);
        assert_eq!(question("why does it only fail"), ["fail"]);
        assert_eq!(question("接続はどこですか"), ["接続", "接", "続"]);
    }

    proptest! {
        /// Whatever is said, no term is empty or has a sign that the index would cut at, and a text
        /// is found by its own terms.
        #[test]
        fn terms_are_whole(text in "\\PC{0,60}") {
            let analyser = Analyser::default();
            let terms = analyser.terms(&text);
            for term in &terms {
                prop_assert!(!term.is_empty());
                prop_assert!(!term.contains(|c: char| c.is_ascii() && !c.is_ascii_alphanumeric()));
            }
            prop_assert_eq!(analyser.question(&text).is_empty(), terms.is_empty());
        }
    }
}
