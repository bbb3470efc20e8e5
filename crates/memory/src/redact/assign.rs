//! Finds what is assigned to a secret-looking name, whatever the language: `name = "value"`,
//! `NAME=value`, `"name": "value"`, `name: value`.

use std::ops::Range;

use super::assigned_value::{bare, name_before, quoted};
use super::bytes::{ALNUM, BASE64, WORD, all, class, class_at, line_start};
use super::distant_names;
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
        None => match distant_names::named_before(bytes, sign, &name) {
            Some(strength) => (name, strength),
            None => typed_name(bytes, sign)?,
        },
    };
    if &bytes[name.clone()] == b"authorization" || ends_with(&bytes[name.clone()], b"authorization")
    {
        return authorization(bytes, after);
    }
    let (value, style) = value_after(bytes, sign, name.start)?;
    if value.is_empty() {
        return distant_names::next_line(bytes, value.start, strength);
    }
    if is_aws_secret(&bytes[name.clone()], &bytes[value.clone()]) {
        return Some(Finding { range: value, kind: "assigned-secret" });
    }
    let kind = match strength {
        NameStrength::Password => "password",
        _ => "assigned-secret",
    };
    secret(strength, &bytes[value.clone()], style).then_some(Finding { range: value, kind })
}

fn starts_slashes(bytes: &[u8], at: usize) -> bool {
    bytes.get(at) == Some(&b'/') && bytes.get(at + 1) == Some(&b'/')
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

/// Returns whether a value is a secret access key of AWS by its name and form. That of AWS's own documents counts, too: it is
/// what many people try their filters with.
fn is_aws_secret(name: &[u8], value: &[u8]) -> bool {
    (ends_with(name, b"secret_access_key") || ends_with(name, b"secretAccessKey"))
        && value.len() == 40
        && all(value, BASE64)
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
    // Punctuation may end a sentence after the value.
    let marks = bytes[value.end..].iter().take(2).take_while(|byte| b".?".contains(byte)).count();
    let next = bytes.get(value.end + marks);
    let ends_line = matches!(next, None | Some(b'\n' | b'\r'));
    let tight =
        bytes[sign] == b'=' && spaced == at && sign > 0 && class(bytes[sign - 1]) & ALNUM != 0;
    let code = !(tight || leads && ends_line || bytes[sign] == b':' && at > spaced);
    let word_after = bytes[sign] == b':' && !ends_line && next != Some(&b' ');
    let is_capital =
        |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    let style = match tight && bytes[name..sign].iter().all(is_capital) {
        _ if code || word_after => Style::Code,
        true => Style::Variable,
        false => Style::Setting,
    };
    Some((value, style))
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
    let style = if scheme.is_some() { Style::Variable } else { Style::Setting };
    (encoded || secret(NameStrength::Token, text, style))
        .then_some(Finding { range: value, kind: "authorization" })
}
