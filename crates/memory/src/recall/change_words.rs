//! Words by which a turn says that something changed, in several languages.

use crate::text::analyse::truncated;

/// How many bytes of a text are searched for words of change.
const MAX_CHANGE_BYTES: usize = 1 << 10;

/// Words that say that something changed.
const CHANGE_WORDS: [&str; 17] = [
    "amended",
    "amendment",
    "anymore",
    "overrides",
    "revised",
    "superseded",
    "supersedes",
    "updated",
    "instead",
    "replace",
    "replaces",
    "replaced",
    "reverted",
    "dropped",
    "became",
    "теперь",
    "вместо",
];
/// Pairs of words that say that something changed.
const CHANGE_PAIRS: [(&str, &str); 14] = [
    ("no", "longer"),
    ("any", "more"),
    ("after", "all"),
    ("now", "on"),
    ("switch", "to"),
    ("switched", "to"),
    ("changed", "to"),
    ("move", "to"),
    ("moves", "to"),
    ("moved", "to"),
    ("moved", "from"),
    ("goes", "away"),
    ("as", "of"),
    ("больше", "не"),
];
/// Parts of words that say that something changed, for languages with endings or without spaces.
const CHANGE_PARTS: [&str; 12] = [
    "замен",
    "передумал",
    "отказ",
    "改为",
    "改成",
    "换成",
    "不再",
    "变更",
    "変更",
    "ではなく",
    "もう使わ",
    "に移",
];

/// Returns whether a text says that something is not as it was.
pub(crate) fn says_changed(text: &str) -> bool {
    let text = truncated(text, MAX_CHANGE_BYTES);
    if text.is_ascii() {
        // Most texts are ASCII, and comparing without case needs no copy of them.
        return has_change_word(text);
    }
    let text = text.to_lowercase();
    has_change_word(&text) || CHANGE_PARTS.iter().any(|part| text.contains(part))
}

fn has_change_word(text: &str) -> bool {
    let mut previous = "";
    words(text).any(|word| {
        let previous = std::mem::replace(&mut previous, word);
        let is_pair = |(first, second): &(&str, &str)| {
            second.eq_ignore_ascii_case(word) && first.eq_ignore_ascii_case(previous)
        };
        CHANGE_WORDS.iter().any(|change| change.eq_ignore_ascii_case(word))
            || CHANGE_PAIRS.iter().any(is_pair)
    })
}

/// Returns the words of a text, without punctuation.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_in_ascii_and_other_texts_are_found_alike() {
        let mut texts: Vec<String> =
            CHANGE_WORDS.iter().map(|word| format!("It {word}.")).collect();
        texts.extend(CHANGE_PAIRS.iter().map(|(before, word)| format!("x-{before} {word}!")));
        texts.extend(
            ["", " ", "no-longer", "no x longer", "xinstead", "INSTEAD", "Moved  To"]
                .map(str::to_owned),
        );
        texts.extend(
            ["nolonger", "nono longer", "replacement", "insteadinstead"].map(str::to_owned),
        );
        for text in texts {
            assert_eq!(says_changed(&text), says_changed(&format!("{text} é")), "{text}");
        }
    }

    #[test]
    fn changes_are_found_in_several_languages() {
        for text in [
            "The timeout is no longer 2 s.",
            "Let's use Jotai instead, please",
            "Порт теперь 8080",
            "端口改为 8080",
            "初期値は 12 時に変更。",
        ] {
            assert!(says_changed(text), "{text}");
        }
        for text in ["The timeout is 2 s.", "steadfast", "Порт 8080", ""] {
            assert!(!says_changed(text), "{text}");
        }
    }
}
