//! From a text to the terms it is found by.
//!
//! Words are stemmed; a list has the irregular forms. Identifiers, paths and versions become one
//! term as a whole and further terms by their parts, so that `parse_config`, `parseConfig` and
//! "parse config" match each other. Writing systems without spaces between words are cut into pairs
//! of characters; Japanese is also cut where one of its scripts ends and another begins.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use rust_stemmers::{Algorithm, Stemmer};

use crate::text::stem_cache::StemCache;
use crate::text::writing_systems::{add_terms, folded, is_ideograph, is_particle};

/// The version of the analysis. After it is raised, stored turns are analysed again in the
/// background.
pub(crate) const VERSION: u32 = 4;

/// Longer words are cut. No natural word is longer, and a cut word still matches itself.
const MAX_WORD_BYTES: usize = 256;
/// Stop words, and their stems.
const STOP_WORDS: &str = " a about after all also am an and any are as at be been before being but by can \
could d did do does doing done down each else ever few for from further had has have having he her here hers \
him his how i if in into is it its just let ll m me more most my no nor not now of off on once only or other \
our ours out over own please re s same she should so some such t than that the their theirs them then there \
these they this those through to too under until up us ve very was we were what when where which while who \
whom why will with would you your yours yes ok ca wo don doesn didn isn wasn doe whi pleas befor onc veri ani onli dure и в во не что он на я с со как \
а то все она так его но да ты к у же вы за бы по только ее мне было вот от меня еще нет о из ему мы они нас \
это этот эта эти какой какая какие каком где когда почему был была были для при ли мой наш \
什么 怎么 我们 你们 他们 哪个 哪些 为什 这个 那个 是什 么样 ";

/// Irregular forms with their base forms, from WordNet's lists: "went go".
const IRREGULAR: &str = include_str!("../../data/irregular.txt");

/// How many bytes of a query are analysed.
const MAX_QUERY_BYTES: usize = 64 << 10;
/// How many terms of a query are searched for.
const MAX_QUERY_TERMS: usize = 64;
/// An identifier, path or version may have this many bytes to become one term as a whole.
const MAX_COMPOUND_BYTES: usize = 200;

/// Returns the beginning of a text, at most `max_bytes` long, cut between characters.
pub(crate) fn truncated(text: &str, max_bytes: usize) -> &str {
    let end = (0..=max_bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

/// Turns texts into terms. Creating one builds stemmers and lists; keep it.
pub struct Analyser {
    english: Stemmer,
    russian: Stemmer,
    /// Sorted by form.
    irregular: Vec<(&'static str, &'static str)>,
    /// The irregular forms of each stem, made when they are needed first.
    irregular_by_stem: OnceLock<HashMap<String, Vec<&'static str>>>,
    stop_words: HashSet<&'static str>,
    stems: StemCache,
}

impl Default for Analyser {
    fn default() -> Analyser {
        Analyser {
            english: Stemmer::create(Algorithm::English),
            russian: Stemmer::create(Algorithm::Russian),
            irregular: IRREGULAR.lines().filter_map(|line| line.split_once(' ')).collect(),
            irregular_by_stem: OnceLock::new(),
            stop_words: STOP_WORDS.split_ascii_whitespace().collect(),
            stems: StemCache::default(),
        }
    }
}

impl Analyser {
    /// Returns all terms of a text in order, with repetitions.
    pub fn terms(&self, text: &str) -> Vec<String> {
        self.terms_of_words(text, |_| true)
    }

    /// Returns the terms of a text in order, with repetitions, but without those of plain English words that
    /// `admits` refuses.
    pub(crate) fn terms_of_words(&self, text: &str, admits: impl Fn(&str) -> bool) -> Vec<String> {
        let mut terms = Vec::new();
        for chunk in text.split(|c: char| c.is_whitespace() || is_separator(c)) {
            self.chunk_terms(chunk, &admits, &mut terms);
        }
        terms
    }

    /// Returns the irregular forms of words with this stem.
    pub(crate) fn irregular_forms(&self, stem: &str) -> &[&'static str] {
        let forms = self.irregular_by_stem.get_or_init(|| {
            let mut forms: HashMap<String, Vec<&'static str>> = HashMap::new();
            for (form, base) in &self.irregular {
                forms.entry(self.english.stem(base).into_owned()).or_default().push(form);
            }
            forms
        });
        forms.get(stem).map_or(&[], Vec::as_slice)
    }

    /// Returns the terms of a text without stop words; all terms if there are only stop words.
    pub fn content_terms(&self, text: &str) -> Vec<String> {
        let mut terms = self.terms(text);
        if terms.iter().any(|term| !self.is_stop_word(term)) {
            terms.retain(|term| !self.is_stop_word(term));
        }
        terms
    }

    /// Returns whether a term, in the index's spelling, is a stop word.
    pub fn is_stop_word(&self, term: &str) -> bool {
        self.stop_words.contains(term) || is_particle(term)
    }

    /// Returns the terms of a query, each once, without stop words unless there are only stop
    /// words.
    pub fn query_terms(&self, text: &str) -> Vec<String> {
        let mut seen = HashSet::new();
        let mut terms = self.content_terms(truncated(text, MAX_QUERY_BYTES));
        terms.retain(|term| seen.insert(term.clone()));
        if terms.len() > MAX_QUERY_TERMS {
            // Long terms are the more specific ones: identifiers, paths, rare words.
            terms.sort_by_key(|term| std::cmp::Reverse(term.chars().count()));
            terms.truncate(MAX_QUERY_TERMS);
        }
        terms
    }

    /// Returns the first word of a text that has this term, as the text spells it.
    pub(crate) fn word_of<'a>(&self, term: &str, text: &'a str) -> Option<&'a str> {
        let chunks = text.split(|c: char| c.is_whitespace() || is_separator(c));
        let words = chunks.flat_map(|chunk| parts(without_clitic(chunk)));
        let mut words = words.filter(|word| !word.is_empty());
        words.find(|word| self.stem(&folded(truncated(word, MAX_WORD_BYTES))) == term)
    }

    fn chunk_terms(&self, chunk: &str, admits: &impl Fn(&str) -> bool, terms: &mut Vec<String>) {
        let chunk = chunk.trim_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '#'));
        let chunk = without_clitic(chunk);
        if chunk.is_empty() {
            return;
        }
        // Most chunks are plain words, which have one part and one spelling.
        if is_plain_word(chunk) {
            if admits(chunk) {
                terms.push(self.stem(&chunk.to_ascii_lowercase()));
            }
            return;
        }
        let parts = parts(chunk);
        let compound = parts.len() > 1 || parts.first().is_some_and(|part| *part != chunk);
        if compound && chunk.len() <= MAX_COMPOUND_BYTES && chunk.is_ascii() {
            compound_terms(chunk, terms);
        }
        for part in parts {
            if part.chars().any(is_ideograph) {
                add_terms(part, terms);
            } else {
                // Stemming takes time that grows with the square of some words' length.
                let word = self.stem(&folded(truncated(part, MAX_WORD_BYTES)));
                // A combining mark without its letter leaves nothing.
                terms.extend(Some(word).filter(|word| !word.is_empty()));
            }
        }
    }

    fn stem(&self, word: &str) -> String {
        let first = word.chars().next().unwrap_or_default();
        if word.is_ascii() && first.is_ascii_alphabetic() {
            self.stems.get(word, |word| {
                let index = self.irregular.binary_search_by(|(form, _)| (*form).cmp(word));
                let word = index.map_or(word, |index| self.irregular[index].1);
                self.english.stem(word).into_owned()
            })
        } else if matches!(first, 'а'..='я') {
            self.stems.get(word, |word| self.russian.stem(word).into_owned())
        } else {
            word.to_owned()
        }
    }
}

/// Returns whether a chunk is one English word, in lower case or with a capital.
fn is_plain_word(chunk: &str) -> bool {
    let bytes = chunk.as_bytes();
    chunk.len() <= MAX_WORD_BYTES
        && bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes[1..].iter().all(u8::is_ascii_lowercase)
}

/// Returns whether a term is a single ideograph.
pub(crate) fn is_single_ideograph(term: &str) -> bool {
    let mut characters = term.chars();
    characters.next().is_some_and(is_ideograph) && characters.next().is_none()
}

/// Returns whether a term is an identifier, a path, a version or a number rather than a word.
pub(crate) fn is_compound(term: &str) -> bool {
    term.chars().any(|c| c.is_ascii_digit() || (0xE000..=0xE07F).contains(&u32::from(c)))
}

/// Returns a term in the index's spelling. The index cuts at ASCII punctuation, so punctuation
/// inside a term is written with characters of the private use area.
fn index_spelling(term: &str) -> String {
    let letter = |c: char| match c {
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => {
            char::from_u32(0xE000 + u32::from(c)).unwrap_or(c)
        }
        c => c,
    };
    term.chars().map(letter).collect()
}

/// Returns a term of the index as people write it.
pub(crate) fn readable(term: &str) -> String {
    let letter = |c: char| match u32::from(c) {
        code @ 0xE000..=0xE07F => char::from_u32(code - 0xE000).unwrap_or(c),
        _ => c,
    };
    term.chars().map(letter).collect()
}

/// Removes an English clitic: "Anna's" becomes "Anna", "don't" becomes "do".
fn without_clitic(chunk: &str) -> &str {
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

/// Adds an identifier, path or version as a whole, and its other usual spellings.
fn compound_terms(chunk: &str, terms: &mut Vec<String>) {
    let name = chunk.to_lowercase();
    terms.push(index_spelling(&name));
    // `parse_config` must match `parseConfig`.
    let joined = |name: &str| name.replace(['_', '-'], "");
    if joined(&name) != name && joined(&name).len() > 2 {
        terms.push(index_spelling(&joined(&name)));
    }
    // `src/auth/login.rs:42:7` must also match without its line and column.
    let file = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == ':');
    let file = if name[file.len()..].starts_with(':') { file } else { &name };
    if file != name && has_several_parts(file) {
        terms.push(index_spelling(file));
    }
    // The names in a path must match by themselves.
    if file.contains('/') {
        let names = file.split('/').filter(|name| has_several_parts(name));
        terms.extend(names.map(index_spelling));
    }
    // `v1.2.3` must also match `1.2.3`.
    if let Some(bare) =
        name.strip_prefix('v').filter(|bare| bare.starts_with(|c: char| c.is_ascii_digit()))
    {
        terms.push(index_spelling(bare));
    }
}

/// Returns whether a character never belongs to an identifier, path or version.
fn is_separator(c: char) -> bool {
    match c.is_ascii() {
        true => matches!(
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
        ),
        false => "“”„«»…。、，；：？！（）「」『』【】《》・".contains(c),
    }
}

fn has_several_parts(name: &str) -> bool {
    parts(name).len() > 1
}

/// Splits an identifier into words: at punctuation, between lower and upper case, before the last
/// of several capitals, and between writing systems.
fn parts(chunk: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = None;
    let characters: Vec<(usize, char)> = chunk.char_indices().collect();
    for (index, &(at, c)) in characters.iter().enumerate() {
        // The long vowel mark of Japanese belongs to its word.
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
        // The "s" of "APIs" is an ending, not a word.
        let is_plural = next == Some('s')
            && !characters.get(index + 2).is_some_and(|(_, after)| after.is_lowercase());
        let acronym = previous.is_uppercase()
            && c.is_uppercase()
            && next.is_some_and(char::is_lowercase)
            && !is_plural;
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
    fn an_endless_word_is_cut() {
        let analyser = Analyser::default();
        let endless = "y".repeat(3 << 20);
        let terms = analyser.terms(&endless);
        assert_eq!(terms.len(), 1);
        assert!(terms[0].len() <= MAX_WORD_BYTES);
        assert_eq!(analyser.query_terms(&endless[..4096]), terms);
    }

    #[test]
    fn words_are_stemmed_and_identifiers_are_split() {
        check("The tests are running.", &["the", "test", "are", "run"]);
        check("children went, kept", &["child", "go", "keep"]);
        check("I don't; she'll", &["i", "do", "she"]);
        check("parse_config", &["parse_config", "parseconfig", "pars", "config"]);
        check("parseConfig()", &["parseconfig", "pars", "config"]);
        check("HTTPServer2", &["httpserver2", "http", "server2"]);
        check("APIs, userIDs", &["api", "userids", "user", "id"]);
        check("ASsert", &["assert", "a", "ssert"]);
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
    fn other_writing_systems_are_cut_into_terms() {
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
    fn query_has_each_term_once_without_stop_words() {
        let query = |text| Analyser::default().query_terms(text);
        assert_eq!(query("What is the port of the server?"), ["port", "server"]);
        assert_eq!(query("who are you"), ["who", "are", "you"]);
        assert_eq!(query("why does it only fail"), ["fail"]);
        assert_eq!(query("接続はどこですか"), ["接続", "接", "続"]);
    }

    proptest! {
        /// For any text: no term is empty, none has punctuation at which the index would cut, and a
        /// query has terms whenever the text has.
        #[test]
        fn terms_are_never_cut_by_the_index(text in "\\PC{0,60}") {
            let analyser = Analyser::default();
            let terms = analyser.terms(&text);
            for term in &terms {
                prop_assert!(!term.is_empty());
                prop_assert!(!term.contains(|c: char| c.is_ascii() && !c.is_ascii_alphanumeric()));
            }
            prop_assert_eq!(analyser.query_terms(&text).is_empty(), terms.is_empty());
        }

        /// The short way for plain words leads to the terms of the long one.
        #[test]
        fn plain_words_have_one_part(word in "[A-Za-z]{1,12}|\\PC{1,3}") {
            if is_plain_word(&word) {
                prop_assert_eq!(parts(&word), vec![&*word]);
                prop_assert_eq!(folded(&word), word.to_ascii_lowercase());
            }
        }
    }
}
