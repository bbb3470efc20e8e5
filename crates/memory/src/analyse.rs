//! From text to the terms it is found by.
//!
//! Words are folded to their stems. Identifiers, paths, versions and the like are kept whole and are
//! also split into their parts, so that `parse_config`, `parseConfig` and "parse config" meet.
//! Scripts without blanks between words are cut into pairs of characters.

use std::collections::HashSet;

use rust_stemmers::{Algorithm, Stemmer};

/// Words that say nothing about what a text is about.
const STOP_WORDS: &str = " a about after all also am an and any are as at be been before being but by can \
could d did do does doing done down each else ever few for from further had has have having he her here hers \
him his how i if in into is it its just let ll m me more most my no nor not now of off on once only or other \
our ours out over own please re s same she should so some such t than that the their theirs them then there \
these they this those through to too under until up us ve very was we were what when where which while who \
whom why will with would you your yours yes ok и в во не что он на я с со как а то все она так его но да ты к \
у же вы за бы по только ее мне было вот от меня еще нет о из ему ";

/// How much of a question is looked at, and how many of its terms are looked for.
const QUESTION: usize = 64 << 10;
const QUESTION_TERMS: usize = 64;

/// The beginning of a text, of at most so many bytes.
pub fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

/// Turns texts into terms. Making one is not free; keep it.
pub struct Analyser {
    english: Stemmer,
    russian: Stemmer,
}

impl Default for Analyser {
    fn default() -> Analyser {
        Analyser {
            english: Stemmer::create(Algorithm::English),
            russian: Stemmer::create(Algorithm::Russian),
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

    /// The terms of a question: each once, without words that say nothing, unless it has no others.
    pub fn question(&self, text: &str) -> Vec<String> {
        let mut seen = HashSet::new();
        let mut all = self.terms(beginning(text, QUESTION));
        all.retain(|term| seen.insert(term.clone()));
        let telling: Vec<String> = all.iter().filter(|term| !is_stop(term)).cloned().collect();
        let mut terms = if telling.is_empty() { all } else { telling };
        if terms.len() > QUESTION_TERMS {
            // Long ones tell more: names, paths, rare words.
            terms.sort_by_key(|term| std::cmp::Reverse(term.chars().count()));
            terms.truncate(QUESTION_TERMS);
        }
        terms
    }

    fn chunk(&self, chunk: &str, terms: &mut Vec<String>) {
        let chunk = chunk.trim_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '#'));
        let chunk = chunk.strip_suffix("'s").or_else(|| chunk.strip_suffix("’s")).unwrap_or(chunk);
        if chunk.is_empty() {
            return;
        }
        let parts = parts(chunk);
        let compound = parts.len() > 1 || parts.first().is_some_and(|part| *part != chunk);
        if compound && chunk.len() <= 200 && chunk.is_ascii() {
            terms.push(spelled(&chunk.to_lowercase()));
            // A path's own names are looked for as well: `login.rs` of `src/auth/login.rs`.
            if chunk.contains('/') {
                let names = chunk.split('/').filter(|name| parts_are_many(name));
                terms.extend(names.map(|name| spelled(&name.to_lowercase())));
            }
        }
        for part in parts {
            if part.chars().any(is_ideograph) {
                pairs(part, terms);
            } else {
                terms.push(self.stem(&part.to_lowercase()));
            }
        }
    }

    fn stem(&self, word: &str) -> String {
        let first = word.chars().next().unwrap_or_default();
        if word.is_ascii() && first.is_ascii_alphabetic() {
            self.english.stem(word).into_owned()
        } else if matches!(first, 'а'..='я' | 'ё') {
            self.russian.stem(word).into_owned()
        } else {
            word.to_owned()
        }
    }
}

/// Whether a term, in the index's spelling, is a word that says nothing.
pub fn is_stop(term: &str) -> bool {
    term.len() < 16 && STOP_WORDS.contains(&format!(" {term} "))
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
pub fn readable(term: &str) -> String {
    let letter = |c: char| match u32::from(c) {
        code @ 0xE000..=0xE07F => char::from_u32(code - 0xE000).unwrap_or(c),
        _ => c,
    };
    term.chars().map(letter).collect()
}

/// Signs that never belong to a name.
fn is_fence(c: char) -> bool {
    matches!(
        c,
        '(' | ')'
            | '['
            | ']'
            | '{'
            | '}'
            | '<'
            | '>'
            | '"'
            | '`'
            | ','
            | ';'
            | '|'
            | '='
            | '*'
            | '!'
            | '?'
            | '“'
            | '”'
            | '„'
            | '«'
            | '»'
            | '…'
            | '。'
            | '、'
            | '，'
            | '；'
            | '：'
            | '？'
            | '！'
            | '（'
            | '）'
    )
}

fn parts_are_many(name: &str) -> bool {
    parts(name).len() > 1
}

/// The words of an identifier: cut at signs, between small and capital letters, before the last
/// capital of several, and between scripts.
fn parts(chunk: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = None;
    let characters: Vec<(usize, char)> = chunk.char_indices().collect();
    for (index, &(at, c)) in characters.iter().enumerate() {
        if !c.is_alphanumeric() {
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

fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c),
        0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF
        | 0x0E00..=0x0E7F | 0x20000..=0x3FFFF)
}

fn pairs(run: &str, terms: &mut Vec<String>) {
    let characters: Vec<char> = run.chars().collect();
    if characters.len() == 1 {
        terms.push(run.to_owned());
    }
    terms.extend(characters.windows(2).map(|pair| pair.iter().collect::<String>()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[&str]) {
        let terms: Vec<String> =
            Analyser::default().terms(text).iter().map(|term| readable(term)).collect();
        assert_eq!(terms, expect, "{text}");
    }

    #[test]
    fn words_and_names() {
        check("The tests are running.", &["the", "test", "are", "run"]);
        check("parse_config", &["parse_config", "pars", "config"]);
        check("parseConfig()", &["parseconfig", "pars", "config"]);
        check("HTTPServer2", &["httpserver2", "http", "server2"]);
        check(
            "src/auth/login.rs:42",
            &["src/auth/login.rs:42", "login.rs:42", "src", "auth", "login", "rs", "42"],
        );
        check("error E0277 in v1.2.3", &["error", "e0277", "in", "v1.2.3", "v1", "2", "3"]);
        check("Anna's `--no-spawn`", &["anna", "no-spawn", "no", "spawn"]);
        check("  ", &[]);
    }

    #[test]
    fn other_scripts() {
        check("недавние тесты", &["недавн", "тест"]);
        check("数据库连接", &["数据", "据库", "库连", "连接"]);
        check("RustとSQLite", &["rust", "と", "sq", "lite"]);
    }

    #[test]
    fn questions() {
        let question = |text| Analyser::default().question(text);
        assert_eq!(question("What is the port of the server?"), ["port", "server"]);
        assert_eq!(question("who are you"), ["who", "are", "you"]);
    }
}
