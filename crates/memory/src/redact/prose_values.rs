//! Judges whether a word of a sentence is a secret. Prose has no syntax that sets values apart, so a value must
//! look like one.

use super::bytes::{ALNUM, DIGIT, LOWER, UPPER, all, class, holds};
use super::entropy::{distinct, look, plain_hex, random, uuid};
use super::values::{NameStrength, Style, is_common_value, placeholder, secret};
use super::word_list::word_list;

const TECHNICAL_WORDS: &[&[u8]] = word_list!("data/technical_words.txt");
const PHRASE_STOP_WORDS: &[&[u8]] = word_list!("data/sentence_words.txt");

/// Returns whether a word after "the password is" is a password.
pub fn is_password(value: &[u8]) -> bool {
    if !value.is_ascii() {
        return fold(value).is_some_and(|folded| is_password(&folded));
    }
    !is_technical(value)
        && !is_address(value)
        && !is_unit(value)
        && (secret(NameStrength::Password, value, Style::Setting) || is_passphrase(value, b'-', 4))
}

/// Returns a word with another letter for each letter that is not ASCII; `None` if it has other characters. The rules for
/// passwords count classes of characters, and a letter of any alphabet is a letter.
fn fold(value: &[u8]) -> Option<Vec<u8>> {
    let mut folded = Vec::with_capacity(value.len());
    for c in std::str::from_utf8(value).ok()?.chars() {
        let letter = b'a' + (c as u32 % 26) as u8;
        match () {
            () if c.is_ascii() => folded.push(c as u8),
            () if c.is_uppercase() => folded.push(letter.to_ascii_uppercase()),
            () if c.is_lowercase() => folded.push(letter),
            () => return None,
        }
    }
    Some(folded)
}

/// Returns whether a text between quotes after "the password is" is a password.
pub fn is_quoted_password(value: &[u8]) -> bool {
    let is_word = value.iter().all(|&byte| class(byte) & (LOWER | UPPER) != 0);
    is_password(value)
        || !is_word && value.len() >= 12 && is_passphrase(value, b'-', 2)
        || is_passphrase(value, b' ', 4)
}

/// Returns whether a word is a password in any sentence: small and capital letters, digits and signs.
pub fn is_strong(value: &[u8]) -> bool {
    if !value.is_ascii() {
        return fold(value).is_some_and(|folded| is_strong(&folded));
    }
    const SIGNS: &[u8] = b"!@#%^&*?+~";
    let seen = look(value);
    (8..=64).contains(&seen.length)
        && seen.lower > 0
        && seen.upper > 0
        && seen.digits > 0
        && (value[1..].iter().any(|byte| SIGNS.contains(byte)) || value.ends_with(b"$"))
        && !value.starts_with(b"-")
        && is_password(value)
}

/// Returns whether a word in a sentence about a key is one, since it looks random.
pub fn is_random(value: &[u8]) -> bool {
    all(value, ALNUM) && random(value) && !is_technical(value)
}

/// Returns whether a word after "the API key is" is a key.
pub fn is_generated(value: &[u8]) -> bool {
    if value.len() < 16 || placeholder(value) && !random(value) || is_technical(value) {
        return false;
    }
    if uuid(value) {
        return true;
    }
    if plain_hex(value) {
        return value.len() >= 32 && distinct(value) >= 6;
    }
    let seen = look(value);
    let is_base32 = all(value, ALNUM)
        && (seen.upper == 0 || seen.lower == 0)
        && seen.digits >= 2
        && seen.letters() >= 8
        && seen.odd * 100 >= seen.pairs * 30;
    is_base32 || is_random(value) || secret(NameStrength::Token, value, Style::Setting)
}

/// Returns whether a word is a code for one use: four to eight digits, or short groups of letters and digits.
pub fn is_code(value: &[u8]) -> bool {
    let seen = look(value);
    let dashes = value.iter().filter(|&&byte| byte == b'-').count();
    if seen.signs != dashes || dashes > 3 || value.len() > 24 || value.len() < 3 {
        return false;
    }
    let is_number = seen.letters() == 0 && (3..=12).contains(&seen.digits);
    let is_mixed =
        seen.letters() > 0 && seen.digits >= 2 && seen.length >= 6 && seen.digit_changes >= 2;
    let is_date = value.len() == 10 && dashes == 2;
    (is_number || is_mixed) && !is_date && distinct(value) >= 2
}

/// Returns whether a value names a format, an algorithm or a version.
fn is_technical(value: &[u8]) -> bool {
    let is_listed =
        |part: &[u8]| TECHNICAL_WORDS.iter().any(|word| word.eq_ignore_ascii_case(part));
    if is_listed(value) {
        return true;
    }
    let mut numbers = 0;
    let mut starts_technical = false;
    for (index, part) in value.split(|byte| b"-_./+".contains(byte)).enumerate() {
        let is_number = all(part, DIGIT);
        if !is_number && !all(part, LOWER | UPPER) && !is_listed(part) {
            return false;
        }
        starts_technical |= index == 0 && (is_number || is_listed(part));
        numbers += usize::from(is_number && !part.is_empty());
    }
    numbers == 0 || starts_technical
}

/// Returns whether a value is an address of mail or a host.
fn is_address(value: &[u8]) -> bool {
    let Some(sign) = value.iter().rposition(|&byte| byte == b'@') else { return false };
    let host = &value[sign + 1..];
    host.contains(&b'.') && all(host, ALNUM | super::bytes::DOT | super::bytes::DASH)
}

/// Returns whether a value is a number with its unit, such as `256bit`, `128000ms` or `2nd`.
fn is_unit(value: &[u8]) -> bool {
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
    let unit = &value[digits..];
    digits > 0
        && !unit.is_empty()
        && (all(unit, LOWER) || value.ends_with(b"%") || value.ends_with(b"B"))
}

/// Returns whether a value has at least `least` words, all of them uncommon in sentences.
fn is_passphrase(value: &[u8], separator: u8, least: usize) -> bool {
    let words = value.split(|&byte| byte == separator);
    let is_word = |word: &[u8]| {
        word.len() >= 3
            && word.iter().all(|&byte| class(byte) & ALNUM != 0)
            && !PHRASE_STOP_WORDS.iter().any(|stop| stop.eq_ignore_ascii_case(word))
    };
    let count = words.clone().count();
    count >= least
        && count <= 10
        && words.clone().all(is_word)
        && !placeholder(value)
        && !is_common_value(value)
        && ![&b"pass"[..], b"secret", b"token", b"key"].iter().any(|word| holds(value, word))
}
