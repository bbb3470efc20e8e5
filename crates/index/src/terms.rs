//! The terms of a turn and their frequencies.

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

/// Returns the length of a turn in terms: the sum of its frequencies.
pub fn length(frequencies: &[(&str, u32)]) -> u32 {
    frequencies.iter().map(|(_, frequency)| frequency).sum()
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
    }
}
