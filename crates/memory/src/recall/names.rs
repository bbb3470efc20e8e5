//! Names in a question. Words find names; a sentence model makes too much of them, and takes every turn
//! that names somebody for an answer to what was asked about them.

/// The text without the names that `leave_out` is true of. A name is a word in the middle of a sentence
/// that begins with a capital letter and goes on in small ones.
pub(crate) fn without_names(text: &str, leave_out: impl Fn(&str) -> bool) -> String {
    let mut begins = true;
    let mut kept = Vec::new();
    for word in text.split_whitespace() {
        let name = name(word).filter(|_| !begins);
        if !name.is_some_and(&leave_out) {
            kept.push(word);
        }
        begins = word.ends_with(['.', '?', '!', ':']);
    }
    let rest = kept.join(" ");
    // What consists of names is about them.
    if rest.chars().any(char::is_alphanumeric) { rest } else { text.to_owned() }
}

fn name(word: &str) -> Option<&str> {
    let word = word.trim_matches(|letter: char| !letter.is_alphanumeric());
    let word = word.strip_suffix("'s").or_else(|| word.strip_suffix("’s")).unwrap_or(word);
    let mut letters = word.chars();
    let capital = letters.next().is_some_and(char::is_uppercase);
    let small = letters.as_str().chars().all(char::is_lowercase) && !letters.as_str().is_empty();
    (capital && small).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_left_out() {
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
