//! What a name says about the value that is assigned to it.

use super::bytes::{ALNUM, WORD, class};
use super::values::NameStrength;
use super::word_list::word_list;

/// Longer names are not examined.
const MAX_NAME_BYTES: usize = 64;
/// Shorter names suggest nothing.
const MIN_HINT_BYTES: usize = 6;

const PASSWORD_NAMES: &[&[u8]] = word_list!("data/password_names.txt");
const SECRET_NAMES: &[&[u8]] = word_list!("data/secret_names.txt");
const PUBLIC_NAMES: &[&[u8]] = word_list!("data/public_names.txt");
const HINT_WORDS: &[&[u8]] = word_list!("data/hint_words.txt");

/// A name, as it is written and as the word lists have it.
struct Name<'a> {
    written: &'a [u8],
    /// The letters and digits in lower case.
    plain: &'a [u8],
}

/// A kind of names, and what it says about the value.
struct NameRule {
    is_match: fn(&Name<'_>) -> bool,
    strength: NameStrength,
}

/// The rules; the first one that matches counts.
const RULES: &[NameRule] = &[
    rule(|name| name.ends_with_any(PASSWORD_NAMES), NameStrength::Password),
    rule(|name| name.plain == b"pass", NameStrength::Password),
    rule(|name| name.plain == b"pw", NameStrength::Password),
    rule(|name| name.written.ends_with(b"_pw"), NameStrength::Password),
    rule(|name| name.written.ends_with(b"_PW"), NameStrength::Password),
    rule(|name| name.written.ends_with(b"_pass"), NameStrength::Password),
    rule(|name| name.written.ends_with(b"_PASS"), NameStrength::Password),
    // `auth` alone is a function or a section; `_auth` is a credential of npm.
    rule(|name| name.ends_with_any(SECRET_NAMES) && !name.is_plain_auth(), NameStrength::Token),
    rule(|name| name.is_long() && name.contains_any(HINT_WORDS), NameStrength::Hint),
    rule(|name| name.is_long() && is_key_variable(name.written), NameStrength::Hint),
];

const fn rule(is_match: fn(&Name<'_>) -> bool, strength: NameStrength) -> NameRule {
    NameRule { is_match, strength }
}

/// Returns what a name says about its value; `None` if it says nothing.
pub fn strength(name: &[u8]) -> Option<NameStrength> {
    // Nearly every name ends here, by its length or because it contains no secret word.
    if name.len() < 2 || name.len() > MAX_NAME_BYTES || !has_secret_root(name) {
        return None;
    }
    let mut plain = [0u8; MAX_NAME_BYTES];
    let mut length = 0;
    for &byte in name {
        if class(byte) & ALNUM != 0 {
            plain[length] = byte.to_ascii_lowercase();
            length += 1;
        }
    }
    let name = Name { written: name, plain: &plain[..length] };
    let rule = RULES.iter().find(|rule| (rule.is_match)(&name))?;
    (!name.contains_any(PUBLIC_NAMES)).then_some(rule.strength)
}

impl Name<'_> {
    fn ends_with_any(&self, words: &[&[u8]]) -> bool {
        let last = self.plain.last();
        words.iter().any(|word| last == word.last() && self.plain.ends_with(word))
    }

    fn contains_any(&self, words: &[&[u8]]) -> bool {
        let contains = |word: &[u8]| self.plain.windows(word.len()).any(|window| window == word);
        words.iter().any(|word| contains(word))
    }

    fn is_plain_auth(&self) -> bool {
        self.plain == b"auth" && !self.written.starts_with(b"_")
    }

    fn is_long(&self) -> bool {
        self.plain.len() >= MIN_HINT_BYTES
    }
}

/// Returns whether a name contains the root of any secret word: one pass that spares nearly all names
/// the word lists.
fn has_secret_root(name: &[u8]) -> bool {
    if name.len() >= 2 && name[name.len() - 2..].eq_ignore_ascii_case(b"pw") {
        return true;
    }
    name.windows(3).any(|root| {
        matches!(
            &[root[0] | 32, root[1] | 32, root[2] | 32],
            b"pas" | b"pwd" | b"sec" | b"tok" | b"key" | b"cre" | b"aut" | b"psk" | b"sal"
        )
    })
}

/// Returns whether a name is that of an environment variable that ends in `_KEY`; most contain a key.
fn is_key_variable(name: &[u8]) -> bool {
    name.ends_with(b"_KEY")
        && name.iter().all(|&byte| class(byte) & WORD != 0 && !byte.is_ascii_lowercase())
}
