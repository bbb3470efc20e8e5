//! Terms that the answer is expected to have, by how a question begins: the answer to "when" names
//! a time.

use crate::recall::weights::WEIGHTS;

/// Words for times, in the index's spelling.
const TIMES: &str = "yesterday today tonight tomorrow last next week month year day ago weekend morn night recent \
monday tuesday wednesday thursday friday saturday sunday januari februari march april june juli august septemb octob \
novemb decemb summer winter spring fall soon sinc";
/// Words for numbers, in the index's spelling.
const NUMBERS: &str = "two three four five six seven eight nine ten sever coupl few twice time mani hundr first second third";
/// Returns the terms that the answer to a question is expected to have, with their weights.
pub(crate) fn expected_terms(question: &str) -> impl Iterator<Item = (&'static str, f32)> {
    let question = question.trim_start().to_lowercase();
    let begins = |beginnings: &[&str]| {
        let after = |one: &&str| question.strip_prefix(*one);
        beginnings.iter().filter_map(after).any(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    let (terms, weight) = if begins(&[
        "when",
        "since when",
        "how long ago",
        "what date",
        "what day",
        "what month",
        "what year",
        "what time",
    ]) {
        (TIMES, WEIGHTS.expected_time)
    } else if begins(&["how many", "how much", "how often", "how long"]) {
        (NUMBERS, WEIGHTS.expected_number)
    } else {
        ("", 0.0)
    };
    terms.split_ascii_whitespace().map(move |term| (term, weight))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::analyse::Analyser;

    #[test]
    fn questions_for_times_and_numbers_expect_words_for_them() {
        let first = |question| expected_terms(question).next().map(|(term, _)| term);
        assert_eq!(first("When did we deploy?"), Some("yesterday"));
        assert_eq!(first("how long ago was that"), Some("yesterday"));
        assert_eq!(first("how many retries"), Some("two"));
        assert_eq!(first("whenever it fails"), None);
        assert_eq!(first("why"), None);
    }

    #[test]
    fn expected_terms_are_in_the_spelling_of_the_index() {
        let analyser = Analyser::default();
        let words = "recently January September several couple times many hundred since morning";
        for term in analyser.terms(words) {
            assert!(
                TIMES.split(' ').chain(NUMBERS.split(' ')).any(|known| known == term),
                "{term}"
            );
        }
    }
}
