//! Tells quickly that a word has none of the terms that are looked for.

use crate::text::analyse::Analyser;

/// The letters that a word must begin with to have one of some terms. Stems begin like their words, except that a "y" in the
/// second place may change ("dying" becomes "die"), and except for irregular forms, which are looked for by themselves.
pub(crate) struct TermFilter {
    /// For each first letter the second ones, a bit for each.
    second_letters: [u32; 26],
}

const ALL_LETTERS: u32 = u32::MAX;

impl TermFilter {
    pub(crate) fn new<'a>(analyser: &Analyser, terms: impl Iterator<Item = &'a str>) -> TermFilter {
        let mut filter = TermFilter { second_letters: [0; 26] };
        for term in terms {
            filter.add(term);
            analyser.irregular_forms(term).iter().for_each(|form| filter.add(form));
        }
        filter
    }

    fn add(&mut self, word: &str) {
        let Some((first, second)) = beginning(word) else { return };
        self.second_letters[first] |= second.map_or(ALL_LETTERS, |second| 1 << second);
    }

    /// Returns whether a word of ASCII letters may have one of the terms.
    pub(crate) fn admits(&self, word: &str) -> bool {
        let Some((first, second)) = beginning(word) else { return true };
        let admitted = self.second_letters[first];
        match second {
            Some(second) if second != letter(b'y') => admitted & (1 << second) != 0,
            _ => admitted != 0,
        }
    }
}

fn letter(byte: u8) -> usize {
    usize::from(byte - b'a')
}

/// Returns the numbers of a word's first two letters, of the second if it is one; `None` if the first is not an ASCII letter.
fn beginning(word: &str) -> Option<(usize, Option<usize>)> {
    let mut letters = word.bytes().map(|byte| byte.to_ascii_lowercase());
    let first = letters.next().filter(u8::is_ascii_lowercase)?;
    Some((letter(first), letters.next().filter(u8::is_ascii_lowercase).map(letter)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(analyser: &Analyser, word: &str) {
        for term in analyser.terms(word) {
            let filter = TermFilter::new(analyser, [&*term].into_iter());
            assert!(filter.admits(word), "{word}: {term}");
        }
    }

    #[test]
    fn words_of_a_term_are_admitted_and_most_others_are_not() {
        let analyser = Analyser::default();
        for word in [
            "went", "Better", "dying", "lying", "tying", "skies", "yes", "a", "used", "were",
            "mice", "Anna",
        ] {
            check(&analyser, word);
        }
        let forms = include_str!("../../data/irregular.txt").lines();
        forms.filter_map(|line| line.split(' ').next()).for_each(|form| check(&analyser, form));
        let filter = TermFilter::new(&analyser, ["port", "go"].into_iter());
        for word in ["port", "Ports", "pony", "go", "went", "gone", "weather"] {
            assert!(filter.admits(word), "{word}");
        }
        for word in ["plan", "The", "stop"] {
            assert!(!filter.admits(word), "{word}");
        }
    }

    proptest! {
        #[test]
        fn any_word_of_a_term_is_admitted(word in "[A-Za-z]?[a-z]{0,4}(y|e|i|a)?(s|ed|ing|ies|ied|eed|ly|ational|ness)?") {
            check(&Analyser::default(), &word);
        }
    }
}
