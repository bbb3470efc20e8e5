//! Escaping of U+0000, which PostgreSQL's `text` cannot store: it becomes U+001A and `0`, and U+001A itself becomes U+001A
//! and `1`. Hardly any text contains either, so the stored texts stay readable.

use std::borrow::Cow;

const ESCAPE: char = '\u{1a}';

/// Escapes a text for storage.
pub(crate) fn put(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte == 0 || byte == ESCAPE as u8) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace(ESCAPE, "\u{1a}1").replace('\0', "\u{1a}0"))
}

/// Restores a stored text.
pub(crate) fn take(stored: String) -> String {
    if !stored.contains(ESCAPE) {
        return stored;
    }
    stored.replace("\u{1a}0", "\0").replace("\u{1a}1", "\u{1a}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_and_no_two_become_one() {
        let pieces = ["", "\0", "\u{1a}", "0", "1", "\u{1a}0", "\u{1a}1", "x"];
        let mut seen = std::collections::BTreeMap::new();
        for a in pieces {
            for b in pieces {
                for c in pieces {
                    let text = format!("{a}{b}{c}");
                    let stored = put(&text).into_owned();
                    assert!(!stored.contains('\0'));
                    assert_eq!(take(stored.clone()), text);
                    assert_eq!(seen.entry(stored).or_insert(text.clone()), &text);
                }
            }
        }
        assert!(matches!(put("plain ünïcode 🦀"), Cow::Borrowed(_)));
    }
}
