//! The terms of a turn and their frequencies.

/// How a term begins that does not count for the length of its turn: the turn does not say it, but is
/// found by it.
pub const UNCOUNTED: char = '\u{E080}';

/// Returns every occurrence of every term in a text of terms separated by blanks.
pub fn occurrences(terms: &str) -> impl Iterator<Item = &str> {
    terms.split(' ').filter(|term| !term.is_empty())
}

/// Returns how often each term occurs, sorted by term.
pub fn frequencies(terms: &str) -> Vec<(&str, u32)> {
    let mut all: Vec<&str> = occurrences(terms).collect();
    all.sort_unstable();
    all.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32)).collect()
}

/// Returns the length of a turn in terms: the sum of the frequencies of those that count.
pub fn length(frequencies: &[(&str, u32)]) -> u32 {
    let counted = frequencies.iter().filter(|(term, _)| !term.starts_with(UNCOUNTED));
    counted.map(|(_, frequency)| frequency).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_are_sorted_by_term_and_count_repetitions() {
        let counted = frequencies("b a  b c b");
        assert_eq!(counted, [("a", 1), ("b", 3), ("c", 1)]);
        assert_eq!(length(&counted), 5);
        assert_eq!(frequencies(""), []);
        assert_eq!(length(&frequencies("a b \u{E080}a \u{E080}c")), 2);
    }
}
