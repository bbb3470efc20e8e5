//! What an answer is likely to say, by how a question begins: one to "when" names a time.

/// Terms of times and of numbers, in the index's spelling.
const TIMES: &str = "yesterday today tonight tomorrow last next week month year day ago weekend morn night recent \
monday tuesday wednesday thursday friday saturday sunday januari februari march april june juli august septemb octob \
novemb decemb summer winter spring fall soon sinc";
const NUMBERS: &str = "two three four five six seven eight nine ten sever coupl few twice time mani hundr first second third";
/// What one of them counts beside a term of the question.
const TIME: f32 = 0.3;
const NUMBER: f32 = 0.2;

/// Terms that answers to such a question have, and what they count.
pub(crate) fn answers(question: &str) -> impl Iterator<Item = (&'static str, f32)> {
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
        (TIMES, TIME)
    } else if begins(&["how many", "how much", "how often", "how long"]) {
        (NUMBERS, NUMBER)
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
    fn questions_for_times_and_numbers_are_known() {
        let first = |question| answers(question).next().map(|(term, _)| term);
        assert_eq!(first("When did we deploy?"), Some("yesterday"));
        assert_eq!(first("how long ago was that"), Some("yesterday"));
        assert_eq!(first("how many retries"), Some("two"));
        assert_eq!(first("whenever it fails"), None);
        assert_eq!(first("why"), None);
    }

    #[test]
    fn they_are_spelled_as_in_the_index() {
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
