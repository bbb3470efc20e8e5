//! Names of people in a query.
//!
//! Terms find names well. A sentence model overrates them: it takes every turn that names somebody
//! for an answer to a question about them. The model therefore gets queries without some of their
//! names.

/// Returns a text without the names for which `is_left_out` is true; the whole text if nothing
/// would remain. A name is a word inside a sentence that has a capital letter followed by lower
/// case.
pub(crate) fn without_names(text: &str, is_left_out: impl Fn(&str) -> bool) -> String {
    let mut starts_sentence = true;
    let mut kept = Vec::new();
    for word in text.split_whitespace() {
        let name = name(word).filter(|_| !starts_sentence);
        if !name.is_some_and(&is_left_out) {
            kept.push(word);
        }
        starts_sentence = word.ends_with(['.', '?', '!', ':']);
    }
    let rest = kept.join(" ");
    if rest.chars().any(char::is_alphanumeric) { rest } else { text.to_owned() }
}

fn name(word: &str) -> Option<&str> {
    let word = word.trim_matches(|letter: char| !letter.is_alphanumeric());
    let word = word.strip_suffix("'s").or_else(|| word.strip_suffix("’s")).unwrap_or(word);
    let mut letters = word.chars();
    let capital = letters.next().is_some_and(char::is_uppercase);
    let lowercase =
        letters.as_str().chars().all(char::is_lowercase) && !letters.as_str().is_empty();
    (capital && lowercase).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_inside_sentences_are_left_out() {
        let check = |text: &str, expect: &str| assert_eq!(without_names(text, |_| true), expect);
        check(
            "When did Caroline's sister go to the LGBTQ group?",
            "When did sister go to the LGBTQ group?",
        );
        check("Ask Bob. Why did it fail", "Ask Why did it fail");
        check("what is parseConfig in HTTP2 of I", "what is parseConfig in HTTP2 of I");
        check("Caroline Melanie", "Caroline");
        check("- Bob", "- Bob");
        check("", "");
        let some = |name: &str| name == "Bob";
        assert_eq!(without_names("did Bob meet Alice?", some), "did meet Alice?");
    }
}
