//! Tells a rule that stands from a request for the task at hand.

/// How a sentence begins that states a standing rule.
const BEGINNINGS: &[&str] = &[
    "always ",
    "never ",
    "do not ",
    "don't ",
    "avoid ",
    "must not ",
    "no need for ",
    "no need to ",
    "stop using ",
    "we always ",
    "we never ",
    "we don't need ",
    "we don't use ",
    "we don't want ",
    "we do not need ",
    "we do not use ",
    "we do not want ",
    "you must always ",
    "you must never ",
];
/// Phrases of a standing rule, anywhere in the sentence.
const PHRASES: &[&str] = &[
    "from now on",
    "must never",
    "must always",
    "should never",
    "should always",
    "in the future",
    "всегда",
    "никогда",
    "нельзя",
    "总是",
    "始终",
    "必须",
    "不要",
    "禁止",
    "必ず",
    "いつも",
    "常に",
    "しないで",
];
/// Words with which a sentence may go on from the one before it.
const CONNECTIVES: &[&str] =
    &["please", "and", "also", "but", "so", "ok", "okay", "well", "yes", "no,", "then", "just"];
/// Phrases of a request that ends with the task.
const PASSING: &[&str] = &[
    "yet",
    "for now",
    "right now",
    "this time",
    "today",
    "until",
    "don't worry",
    "don't know",
    "don't think",
    "don't see",
    "don't understand",
    "don't forget",
];

/// Returns whether a sentence states a rule that stands beyond its task.
pub(crate) fn is_standing(sentence: &str) -> bool {
    let sentence = sentence.to_lowercase().replace('’', "'");
    let is_passing = PASSING.iter().any(|phrase| has_words(&sentence, phrase));
    let mut rest = sentence.trim_start_matches(|c: char| !c.is_alphanumeric());
    while let Some(after) = CONNECTIVES.iter().find_map(|word| {
        let after = rest.strip_prefix(word)?;
        after.starts_with([' ', ',']).then(|| after.trim_start_matches([' ', ',']))
    }) {
        rest = after;
    }
    let states = BEGINNINGS.iter().any(|beginning| rest.starts_with(beginning))
        || PHRASES.iter().any(|phrase| rest.contains(phrase));
    states && !is_passing
}

/// Returns whether a text has a phrase as whole words.
fn has_words(text: &str, phrase: &str) -> bool {
    let is_edge = |c: Option<char>| !c.is_some_and(char::is_alphanumeric);
    text.match_indices(phrase).any(|(at, _)| {
        is_edge(text[..at].chars().next_back()) && is_edge(text[at + phrase.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_stand_are_told_from_requests() {
        for rule in [
            "never force-push",
            "do not wrap long lines in markdown",
            "and we don't need backward compatibility",
            "Please, don’t run the whole test suite, only on the HEAD",
            "- Always use pnpm",
            "From now on commits are signed",
            "提交前必须运行测试",
        ] {
            assert!(is_standing(rule), "{rule}");
        }
        for request in [
            "don't commit yet",
            "I don't think we need watch",
            "we should never have merged it today",
            "fix the build",
            "don't worry about the tests",
            "nevertheless it fails",
            "the always-on job fails",
        ] {
            assert!(!is_standing(request), "{request}");
        }
    }
}
