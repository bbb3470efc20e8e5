//! Judges the value that is assigned to a secret-looking name.

use super::byte_row::is_row;
use super::bytes::{ALNUM, DIGIT, LOWER, UPPER, class, holds};
use super::entropy::{distinct, look, plain_hex, random, uuid};
use super::word_list::word_list;

const PLACEHOLDER_MARKS: &[&[u8]] = word_list!("data/placeholder_marks.txt");
const COMMON_VALUES: &[&[u8]] = word_list!("data/common_values.txt");

/// How much a name says about its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameStrength {
    /// People choose passwords, so little in the value needs to look random.
    Password,
    /// Machines make tokens and keys, so the value must look generated.
    Token,
    /// A secret word is somewhere in the name; only an unmistakable value counts.
    Hint,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Quoted,
    /// Bare in a settings file, a shell line or a chat.
    Setting,
    /// The value of a variable of the environment or of a header, which is a value and nothing else.
    Variable,
    /// Bare in what may be code, where it is more likely the name of a variable.
    Code,
}

/// Returns whether a value is a secret.
pub fn secret(name: NameStrength, value: &[u8], style: Style) -> bool {
    const MAX_VALUE_BYTES: usize = 600;
    if value.len() < 5 || value.len() > MAX_VALUE_BYTES {
        return false;
    }
    // Most UUIDs are identifiers; some services use one as a key.
    if uuid(value) {
        return name == NameStrength::Token && style != Style::Code && distinct(value) >= 8;
    }
    if is_row(value) {
        return name != NameStrength::Hint || style == Style::Quoted;
    }
    if style == Style::Quoted && is_framework_key(value) {
        return true;
    }
    if value.iter().any(|&byte| byte <= b' ') || (style != Style::Quoted && codelike(value)) {
        return false;
    }
    if plain_hex(value) && value.len() >= 32 {
        return distinct(value) >= 6;
    }
    if random(value) && !interpolated(value) {
        return true;
    }
    if name == NameStrength::Hint || placeholder(value) || interpolated(value) {
        return false;
    }
    if style == Style::Variable && is_chosen(value) {
        return true;
    }
    if is_common_value(value) {
        return false;
    }
    let is_value = match name {
        NameStrength::Password => password(value, style),
        _ => token(value, style) || style == Style::Quoted && signed(value),
    };
    is_value || style != Style::Code && is_encoded(value)
}

/// Returns whether somebody may have chosen a value as a secret, however simple: a word with digits, or a long one.
fn is_chosen(value: &[u8]) -> bool {
    let seen = look(value);
    let is_word = COMMON_VALUES.iter().any(|known| known.eq_ignore_ascii_case(value));
    seen.letters() > 0 && !is_word && (seen.digits > 0 && seen.length >= 8 || seen.length >= 14)
}

/// Returns whether a value is base64 of a short text, as values of secrets in Kubernetes are.
fn is_encoded(value: &[u8]) -> bool {
    let seen = look(value);
    let is_padded = value.ends_with(b"=");
    (is_padded || value.len().is_multiple_of(4))
        && value.len() >= 8
        && seen.upper > 0
        && seen.lower > 0
        && seen.changes >= 3
        && super::encoded::decode_text(value).is_some_and(|text| {
            text.trim_end().bytes().all(|byte| byte.is_ascii_graphic())
                && (is_padded || look(text.as_bytes()).digits > 0)
                && !placeholder(text.as_bytes())
                && !is_common_value(text.trim_end().as_bytes())
        })
}

/// Returns whether a long value is full of signs, as keys of web frameworks are.
fn signed(value: &[u8]) -> bool {
    let seen = look(value);
    seen.length >= 24
        && seen.signs >= 4
        && seen.digits >= 2
        && seen.letters() >= 8
        && distinct(value) >= 16
        && value.iter().filter(|&&byte| b"!@#$%^&*(+=~".contains(&byte)).count() >= 4
}

/// Returns whether a value is a key that a web framework made of letters, digits and all kinds of signs, as Django and
/// WordPress do. It may contain a placeholder such as `%s`, or a blank, by chance.
fn is_framework_key(value: &[u8]) -> bool {
    const MIN_KEY_BYTES: usize = 40;
    if value.len() < MIN_KEY_BYTES {
        return false;
    }
    let seen = look(value);
    let is_sign = |&byte: &u8| byte.is_ascii_punctuation() && !b"_-./:,\\\"'".contains(&byte);
    let signs: Vec<u8> = value.iter().copied().filter(|byte| is_sign(byte)).collect();
    let blanks = value.iter().filter(|&&byte| byte == b' ').count();
    signs.len() >= 7
        && distinct(&signs) >= 6
        && seen.digits >= 3
        && seen.letters() >= 12
        && seen.changes * 3 >= seen.length
        && !is_pattern(value)
        && blanks * 16 <= value.len()
        && value.is_ascii()
}

/// Returns whether a value is a regular expression, such as one that passwords must match.
fn is_pattern(value: &[u8]) -> bool {
    value.contains(&b'\\') || holds(value, b"a-z") || holds(value, b"(?")
}

fn password(value: &[u8], style: Style) -> bool {
    let seen = look(value);
    if seen.letters() == 0 {
        let number = seen.digits == seen.length;
        return number && style != Style::Code && seen.digits >= 6 && !counted(value);
    }
    let strong_signs = value
        .iter()
        .filter(|&&byte| class(byte) & ALNUM == 0 && !b"_-./:,;\\\"'=".contains(&byte))
        .count();
    let made = seen.digits > 0 || strong_signs > 0;
    if style == Style::Code {
        return made && seen.length >= 8 && (seen.digit_changes >= 3 || strong_signs > 0);
    }
    // One sign at either end of a word is punctuation or an operator.
    let inner = &value[1..value.len() - 1];
    let inner_signs = inner.iter().any(|&byte| class(byte) & ALNUM == 0 && byte < 128);
    made && seen.length >= 6 && (seen.digits > 0 || inner_signs || seen.upper > 1)
        || seen.length >= 10 && seen.pairs >= 6 && seen.odd * 2 >= seen.pairs && seen.signs == 0
}

fn token(value: &[u8], style: Style) -> bool {
    let seen = look(value);
    let least = if style == Style::Code { 16 } else { 8 };
    if seen.length < least || seen.letters() < 2 || seen.digits < 1 {
        return false;
    }
    if seen.signs * 4 > seen.length || value.iter().any(|byte| b"()[]{}<>|*;".contains(byte)) {
        return false;
    }
    let irregular = seen.odd * 5 >= seen.pairs * 2 && seen.pairs >= 2;
    if seen.digits < 2 {
        let changing = seen.changes * 5 >= seen.length * 2;
        return seen.length >= 16
            && seen.signs == 0
            && seen.odd * 4 >= seen.pairs
            && (irregular || changing);
    }
    seen.digit_changes >= 4 || (seen.digit_changes >= 2 && irregular) || named_secret(value)
}

/// Returns whether a token names itself a secret, such as `prod-secret-9f8a`.
fn named_secret(value: &[u8]) -> bool {
    let seen = look(value);
    seen.digits >= 3 && seen.digit_changes >= 2 && holds(value, b"secret")
}

/// Returns whether the digits only count up or repeat.
fn counted(value: &[u8]) -> bool {
    distinct(value) <= 2 || value.windows(2).all(|pair| pair[1] == pair[0] + 1 || pair[1] == b'0')
}

/// Returns whether a bare value is more likely code: a call, a type, a path.
fn codelike(value: &[u8]) -> bool {
    value.iter().any(|byte| b"()[]{}<>|;\"'`\\".contains(byte))
        || value.starts_with(b"&")
        || value.starts_with(b"$")
        || value.starts_with(b"*")
        || value.starts_with(b"@")
        || value.starts_with(b"!")
        || value.starts_with(b"/")
        || value.starts_with(b"./")
        || value.starts_with(b"~/")
        || constant(value)
        || [&b"Uint"[..], b"Int", b"Float", b"BigInt"].iter().any(|kind| value.starts_with(kind))
        || value.windows(2).any(|pair| pair == b"::" || pair == b"->")
        || (value.contains(&b'.') && dotted_names(value))
}

/// Returns whether a value is more likely the name of a constant or a type in capitals.
fn constant(value: &[u8]) -> bool {
    let named = |&byte: &u8| class(byte) & (UPPER | DIGIT) != 0 || byte == b'_';
    value.contains(&b'_') && value.iter().all(named)
}

/// Returns whether every part between dots could be the name of a field or a file.
fn dotted_names(value: &[u8]) -> bool {
    value.split(|&byte| byte == b'.').all(|part| {
        part.first().is_none_or(|&byte| class(byte) & (LOWER | UPPER) != 0 || byte == b'_')
            && look(part).digit_changes <= 2
    })
}

/// Returns whether a value is filled in elsewhere: `${TOKEN}`, `%s`, `{{ token }}`, `$(cat file)`.
fn interpolated(value: &[u8]) -> bool {
    let holds = |needle: &[u8]| value.windows(needle.len()).any(|window| window == needle);
    value.contains(&b'{') && value.contains(&b'}')
        || value.starts_with(b"{")
        || (value.starts_with(b"$")
            && value[1..].iter().all(|&b| class(b) & ALNUM != 0 || b == b'_'))
        || (value.starts_with(b"%") && value.ends_with(b"%"))
        || holds(b"$(")
        || holds(b"%s")
        || holds(b"://")
        || (value.contains(&b'<') && value.contains(&b'>'))
        || value.starts_with(b"^")
        || value.starts_with(b"/")
        || value.starts_with(b"./")
        || value.starts_with(b"@")
        || value.starts_with(b"#")
}

/// Returns whether a value is a placeholder for another.
pub fn placeholder(value: &[u8]) -> bool {
    PLACEHOLDER_MARKS.iter().any(|mark| holds(value, mark)) || distinct(value) <= 2
}

/// Returns whether a value is nothing but a common word, perhaps with digits or signs after it.
pub fn is_common_value(value: &[u8]) -> bool {
    let letters = value.iter().rposition(|byte| byte.is_ascii_alphabetic()).map_or(0, |at| at + 1);
    let word = &value[..letters];
    word.is_empty() && value.len() < 6
        || COMMON_VALUES.iter().any(|known| known.eq_ignore_ascii_case(word))
}
