//! Passages: the part of a long text that answers a query.

use std::collections::HashMap;
use std::ops::Range;

use crate::recall::tokens::{CharacterCounts, estimated_tokens};
use crate::text::analyse::{Analyser, truncated};
use crate::text::term_filter::TermFilter;

/// How many bytes of a text are searched for a passage: those of a longer text that have most of the
/// query's terms.
const MAX_SEARCHED_BYTES: usize = 64 << 10;
/// How many bytes two neighbouring parts of a longer text have in common.
const OVERLAP_BYTES: usize = 4 << 10;
/// How many letters of a term's end are not searched for in a longer text, because a stem may end
/// differently from its word.
const STEM_ENDING_CHARS: usize = 2;

/// Finds passages by the terms of one query.
pub(crate) struct PassageFinder<'a> {
    analyser: &'a Analyser,
    /// What each term of the query is worth.
    values: HashMap<&'a str, f64>,
    filter: TermFilter,
}

impl<'a> PassageFinder<'a> {
    pub(crate) fn new(
        analyser: &'a Analyser,
        terms: impl Iterator<Item = (&'a str, f64)>,
    ) -> PassageFinder<'a> {
        let values: HashMap<&str, f64> = terms.collect();
        let filter = TermFilter::new(analyser, values.keys().copied());
        PassageFinder { analyser, values, filter }
    }

    /// Returns the passage that has most of the query's terms; `None` if the text has at most
    /// `max_tokens` tokens. Of equals the first is returned.
    pub(crate) fn find(&self, text: &str, max_tokens: usize) -> Option<String> {
        if estimated_tokens(text) <= max_tokens {
            return None;
        }
        // Without a term of the query the passage is the beginning, which must not be blank.
        let text = self.part_with_terms(text).trim_start();
        let units = units(text, max_tokens);
        let found: Vec<Vec<(&str, f64)>> =
            units.iter().map(|unit| self.terms_of(&text[unit.clone()])).collect();
        let tokens: Vec<usize> =
            units.iter().map(|unit| estimated_tokens(&text[unit.clone()])).collect();
        let (mut best, mut best_value) = (0..0, -1.0);
        let (mut start, mut used) = (0, 0);
        for end in 0..units.len() {
            used += tokens[end];
            while used > max_tokens && start < end {
                used -= tokens[start];
                start += 1;
            }
            let value = value_of_distinct(&found[start..=end]);
            if value > best_value {
                (best, best_value) = (start..end + 1, value);
            }
        }
        while best.len() > 1 && found[best.start].is_empty() {
            best.start += 1;
        }
        // What follows the best units belongs to them more than what precedes.
        let mut used: usize = tokens[best.clone()].iter().sum();
        while best.end < units.len() && used + tokens[best.end] <= max_tokens {
            used += tokens[best.end];
            best.end += 1;
        }
        let (first, last) = (units.get(best.start)?, units.get(best.end.checked_sub(1)?)?);
        Some(text[first.start..last.end].trim().to_owned())
    }

    /// Returns the part of a long text that has most of the query's terms. Of equals the first is
    /// returned.
    fn part_with_terms<'t>(&self, text: &'t str) -> &'t str {
        let mut best = truncated(text, MAX_SEARCHED_BYTES);
        if best.len() == text.len() {
            return text;
        }
        let stems: Vec<(String, f64)> =
            self.values.iter().map(|(term, value)| (searchable_stem(term), *value)).collect();
        let value_of = |part: &str| -> f64 {
            let part = part.to_lowercase();
            let found = stems.iter().filter(|(stem, _)| part.contains(stem.as_str()));
            found.map(|(_, value)| value).sum()
        };
        let mut best_value = value_of(best);
        let mut start = 0;
        while start + MAX_SEARCHED_BYTES < text.len() {
            start = truncated(text, start + MAX_SEARCHED_BYTES - OVERLAP_BYTES).len();
            let part = truncated(&text[start..], MAX_SEARCHED_BYTES);
            let value = value_of(part);
            if value > best_value {
                (best, best_value) = (part, value);
            }
        }
        best
    }

    fn terms_of(&self, unit: &str) -> Vec<(&str, f64)> {
        let terms = self.analyser.terms_of_words(unit, |word| self.filter.admits(word));
        terms
            .iter()
            .filter_map(|term| self.values.get_key_value(&**term))
            .map(|(term, value)| (*term, *value))
            .collect()
    }
}

/// Returns the beginning of a term that its word has in a text, too.
fn searchable_stem(term: &str) -> String {
    let chars = term.chars().count();
    let kept = if chars > 2 * STEM_ENDING_CHARS { chars - STEM_ENDING_CHARS } else { chars };
    term.chars().take(kept).collect::<String>().to_lowercase()
}

/// Returns the sum of the values of all terms, each counted once.
fn value_of_distinct(units: &[Vec<(&str, f64)>]) -> f64 {
    let distinct: HashMap<&str, f64> = units.iter().flatten().copied().collect();
    distinct.values().sum()
}

/// Splits a text into sentences and lines. One with more than `max_tokens` tokens is cut between words
/// or, where it has no space, between characters.
fn units(text: &str, max_tokens: usize) -> Vec<Range<usize>> {
    let mut units = Vec::new();
    let mut start = 0;
    let mut counts = CharacterCounts::default();
    let mut last_space = None;
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        counts.add(character);
        // After a cut at a space, the rest may still be too long.
        while counts.estimated_tokens() > max_tokens && start < at {
            let cut = last_space.take().unwrap_or(at);
            units.push(start..cut);
            start = cut;
            counts = CharacterCounts::default();
            text[start..at].chars().chain([character]).for_each(|kept| counts.add(kept));
        }
        let end = at + character.len_utf8();
        if character.is_whitespace() {
            last_space = Some(end);
        }
        let followed_by_space = characters.peek().is_none_or(|(_, next)| next.is_whitespace());
        let is_end = match character {
            '\n' | '。' | '！' | '？' => true,
            '.' | '!' | '?' => followed_by_space,
            _ => false,
        };
        if is_end {
            units.push(start..end);
            (start, counts, last_space) = (end, CharacterCounts::default(), None);
        }
    }
    if start < text.len() {
        units.push(start..text.len());
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn find(text: &str, terms: &[&'static str], max_tokens: usize) -> Option<String> {
        let analyser = Analyser::default();
        let terms = terms.iter().map(|term| (*term, 1.0));
        PassageFinder::new(&analyser, terms).find(text, max_tokens)
    }

    #[test]
    fn passage_has_the_terms_of_the_query() {
        assert_eq!(find("The port is 80.", &["port"], 10), None);
        let text = "We talked about the weather for long. Nothing else was said.\n\
                    The port is 8080, as decided. Then we went home and slept well. The end came late.";
        assert_eq!(find(text, &["port"], 8).unwrap(), "The port is 8080, as decided.");
        assert_eq!(find(text, &["weather"], 10).unwrap(), "We talked about the weather for long.");
        assert_eq!(find(text, &[], 10).unwrap(), "We talked about the weather for long.");
        let both = find(text, &["port", "sleep"], 18).unwrap();
        assert_eq!(both, "The port is 8080, as decided. Then we went home and slept well.");
        let blank = format!("{}The port is 8080, as decided.", "\n".repeat(300));
        assert_eq!(find(&blank, &[], 16).unwrap(), "The port is 8080, as decided.");
        let chinese = "今天我们讨论了天气。端口改为八零八零。之后大家都回家了。";
        assert_eq!(find(chinese, &["端口"], 8).unwrap(), "端口改为八零八零。");
    }

    #[test]
    fn passage_is_found_anywhere_in_a_very_long_text() {
        for before in [60, 64, 66, 130, 400] {
            let filler = "Nothing of importance was said here. ".repeat(before * 1024 / 37);
            let text = format!("{filler}The stories of the kakapo are in drawer seven. {filler}");
            let found = find(&text, &["kakapo", "stori"], 12).unwrap();
            assert_eq!(
                found, "The stories of the kakapo are in drawer seven.",
                "after {before} KiB"
            );
        }
    }

    #[test]
    fn words_moved_to_the_next_unit_count_in_it() {
        let text = "port port Aport Աport 。";
        let units: Vec<&str> = units(text, 6).into_iter().map(|unit| &text[unit]).collect();
        assert_eq!(units, ["port port Aport ", "Աport 。"]);
        let text = " aaaabbbbccccdddéx";
        for unit in super::units(text, 4) {
            assert!(estimated_tokens(&text[unit.clone()]) <= 4, "{unit:?}");
        }
    }

    proptest! {
        /// For any text the units have all of it, and a passage is a part of it that fits.
        #[test]
        fn passage_is_a_part_of_the_text_that_fits(text in "(\\PC| |\n|\\. |。|port ){0,300}", max in 5_usize..60) {
            let parts = units(&text, max);
            let joined: String = parts.iter().map(|part| &text[part.clone()]).collect();
            prop_assert_eq!(&joined, &text);
            if let Some(passage) = find(&text, &["port"], max) {
                prop_assert!(text.contains(&passage));
                prop_assert!(estimated_tokens(&passage) <= max, "{}", estimated_tokens(&passage));
            }
        }
    }
}
