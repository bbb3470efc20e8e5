//! Finds what is assigned to a secret-looking name, whatever the language: `name = "value"`,
//! `NAME=value`, `"name": "value"`, `name: value`.

use std::ops::Range;

use super::bytes::{ALNUM, DASH, DOT, UNDERSCORE, WORD, class, class_at, line_start};
use super::finding::Finding;
use super::names::strength;
use super::values::{NameStrength, Style, secret};

/// Returns the secret that the `=` or `:` at `sign` assigns.
pub fn at(bytes: &[u8], sign: usize) -> Option<Finding> {
    let after = sign + 1;
    // `::` is a path, and `==`, `!=`, `<=` and `>=` compare.
    if matches!(bytes.get(after), Some(b':'))
        || (sign > 0 && b"!<>:".contains(&bytes[sign - 1]) && bytes[sign] != b'=')
    {
        return None;
    }
    if bytes[sign] == b':' && starts_slashes(bytes, after) {
        return None;
    }
    let name = name_before(bytes, sign);
    let (name, strength) = match strength(&bytes[name.clone()]) {
        Some(strength) => (name, strength),
        None => typed_name(bytes, sign)?,
    };
    if &bytes[name.clone()] == b"authorization" || ends_with(&bytes[name.clone()], b"authorization")
    {
        return authorization(bytes, after);
    }
    let (value, style) = value_after(bytes, sign, name.start)?;
    let kind = match strength {
        NameStrength::Password => "password",
        _ => "assigned-secret",
    };
    secret(strength, &bytes[value.clone()], style).then_some(Finding { range: value, kind })
}

fn starts_slashes(bytes: &[u8], at: usize) -> bool {
    bytes.get(at) == Some(&b'/') && bytes.get(at + 1) == Some(&b'/')
}

/// Returns the name that a sign assigns to, without quotes and brackets around it.
pub fn name_before(bytes: &[u8], sign: usize) -> Range<usize> {
    const MAX_NAME_BYTES: usize = 64;
    const MAX_GAP_BYTES: usize = 40;
    let mut end = sign;
    let floor = sign.saturating_sub(MAX_GAP_BYTES);
    while end > floor && matches!(bytes[end - 1], b' ' | b'\t' | b':' | b'?' | b'+' | b'=') {
        end -= 1;
    }
    let mut closing = 0;
    while end > 0
        && closing < 4
        && matches!(bytes[end - 1], b'"' | b'\'' | b'`' | b']' | b'\\' | b'*')
    {
        end -= 1;
        closing += 1;
    }
    let floor = end.saturating_sub(MAX_NAME_BYTES);
    let mut start = end;
    while start > floor && class(bytes[start - 1]) & (ALNUM | UNDERSCORE | DASH | DOT) != 0 {
        start -= 1;
    }
    // In a string, the letter of an escape sequence is not part of the name.
    if start > 0 && start < end && bytes[start - 1] == b'\\' && b"nrt".contains(&bytes[start]) {
        start += 1;
    }
    start..end
}

/// Returns the name before a type, as in `password: &str = "…"`.
fn typed_name(bytes: &[u8], sign: usize) -> Option<(Range<usize>, NameStrength)> {
    const MAX_TYPE_BYTES: usize = 40;
    if bytes[sign] != b'=' || !matches!(bytes.get(sign + 1), Some(b' ' | b'"' | b'\'')) {
        return None;
    }
    let quote = bytes[sign + 1..].iter().take(4).any(|&byte| byte == b'"' || byte == b'\'');
    if !quote {
        return None;
    }
    let floor = sign.saturating_sub(MAX_TYPE_BYTES);
    let mut at = sign;
    while at > floor {
        at -= 1;
        match bytes[at] {
            b':' if at > 0 && bytes[at - 1] == b':' => at -= 1,
            b':' => {
                let name = name_before(bytes, at);
                return strength(&bytes[name.clone()]).map(|strength| (name, strength));
            }
            byte if class(byte) & ALNUM != 0 || b" &'<>_|?".contains(&byte) => {}
            _ => return None,
        }
    }
    None
}

fn ends_with(name: &[u8], end: &[u8]) -> bool {
    name.len() >= end.len() && name[name.len() - end.len()..].eq_ignore_ascii_case(end)
}

/// Returns the value after a sign, and how it is written.
fn value_after(bytes: &[u8], sign: usize, name: usize) -> Option<(Range<usize>, Style)> {
    const MAX_GAP_BYTES: usize = 24;
    let mut at = sign + 1;
    while matches!(bytes.get(at), Some(b'=' | b'>')) {
        at += 1;
    }
    let spaced = at;
    while at < sign + MAX_GAP_BYTES && matches!(bytes.get(at), Some(b' ' | b'\t')) {
        at += 1;
    }
    if let Some(value) = quoted(bytes, at) {
        return Some((value, Style::Quoted));
    }
    let value = bare(bytes, at);
    let first = line_start(bytes, name, 120);
    let leads = bytes[first..name].iter().all(|byte| b" \t-#>*$".contains(byte))
        || bytes[first..name].ends_with(b"export ")
        || bytes[first..name].ends_with(b"ENV ");
    let ends_line = matches!(bytes.get(value.end), None | Some(b'\n' | b'\r'));
    let tight =
        bytes[sign] == b'=' && spaced == at && sign > 0 && class(bytes[sign - 1]) & ALNUM != 0;
    let code = !(tight || leads && ends_line || bytes[sign] == b':' && at > spaced);
    let word_after = bytes[sign] == b':' && !ends_line && bytes.get(value.end) != Some(&b' ');
    let style = if code || word_after { Style::Code } else { Style::Setting };
    Some((value, style))
}

/// Returns the content of the string that begins at `from`, on one line. Its quotes may be escaped, as
/// in JSON inside JSON, and letters such as `r`, `b` or `@` may precede them.
pub fn quoted(bytes: &[u8], from: usize) -> Option<Range<usize>> {
    const MAX_VALUE_BYTES: usize = 640;
    let mut at = from;
    while at < from + 2
        && matches!(bytes.get(at), Some(b'r' | b'b' | b'u' | b'f' | b'@' | b'L' | b'c'))
    {
        at += 1;
    }
    let escaped = bytes.get(at) == Some(&b'\\');
    at += usize::from(escaped);
    let quote = *bytes.get(at).filter(|byte| b"\"'`".contains(byte))?;
    let start = at + 1;
    let mut end = start;
    while end < bytes.len() && end - start <= MAX_VALUE_BYTES {
        match bytes[end] {
            b'\n' => return None,
            b'\\' if escaped && bytes.get(end + 1) == Some(&quote) => return Some(start..end),
            b'\\' => end += 1,
            byte if byte == quote => return Some(start..end),
            _ => {}
        }
        end += 1;
    }
    None
}

/// Returns the value from `from` to the next space, quote or separator.
pub fn bare(bytes: &[u8], from: usize) -> Range<usize> {
    // Longer than any accepted value, so that a value that is cut off here is never accepted.
    const MAX_VALUE_BYTES: usize = 640;
    let limit = (from + MAX_VALUE_BYTES).min(bytes.len()).max(from);
    let stops = |byte: u8| {
        byte <= b' ' || matches!(byte, b'"' | b'\'' | b'`' | b',' | b';' | b'\\' | b'&' | b'|')
    };
    let mut end = (from..limit).find(|&at| stops(bytes[at])).unwrap_or(limit);
    while end > from && matches!(bytes[end - 1], b'.' | b':' | b')' | b'?' | b'>' | b']' | b'}') {
        end -= 1;
    }
    from..end
}

/// Returns the credentials after `Authorization:`, of any scheme.
pub fn authorization(bytes: &[u8], from: usize) -> Option<Finding> {
    const SCHEMES: &[&[u8]] =
        &[b"Bearer", b"Basic", b"Token", b"token", b"bearer", b"basic", b"ApiKey", b"SSWS", b"Bot"];
    let mut at = from;
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'"' | b'\'' | b'`' | b'\\' | b'=' | b'>')) {
        at += 1;
    }
    let scheme = SCHEMES.iter().find(|scheme| bytes[at..].starts_with(scheme));
    if let Some(scheme) = scheme {
        at += scheme.len();
        let word = at;
        while bytes.get(at) == Some(&b' ') {
            at += 1;
        }
        if at == word {
            return None;
        }
    }
    let value = bare(bytes, at);
    let text = &bytes[value.clone()];
    let basic = scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"basic"));
    let encoded = basic
        && (8..=600).contains(&text.len())
        && class_at(text, text.len() - 1) & WORD | u16::from(text.ends_with(b"=")) != 0
        && super::entropy::look(text).changes >= 3
        && !super::values::placeholder(text);
    (encoded || secret(NameStrength::Token, text, Style::Setting))
        .then_some(Finding { range: value, kind: "authorization" })
}
