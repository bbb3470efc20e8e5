//! Finds values whose name is not directly before them: on the line before, in another attribute, in a query.

use std::ops::Range;

use super::assigned_value::{bare, name_before, quoted};
use super::bytes::{ALNUM, class, holds, line_end, line_start};
use super::encoded::is_basic_credential;
use super::finding::Finding;
use super::names::strength;
use super::values::{NameStrength, Style, secret};
use super::word_list::word_list;

const QUERY_NAMES: &[&[u8]] = word_list!("data/query_names.txt");

/// Returns what a sign assigns by a name that is not before it: in `"key": "DB_PASSWORD", "value": "…"` and
/// `name: DB_PASSWORD, value: …`, the name is a value itself; in a query, short names count.
pub fn named_before(bytes: &[u8], sign: usize, name: &Range<usize>) -> Option<NameStrength> {
    let text = &bytes[name.clone()];
    if text.eq_ignore_ascii_case(b"value") {
        return name_in_another_field(bytes, name.start);
    }
    let is_query = name.start > 0 && matches!(bytes[name.start - 1], b'?' | b'&');
    if is_query && QUERY_NAMES.iter().any(|known| known.eq_ignore_ascii_case(text)) {
        return Some(NameStrength::Hint);
    }
    let is_tight = bytes[sign] == b'=' && name.start > 0 && bytes[name.start - 1] == b' ';
    if is_tight && is_cookie(bytes, name.start, text) {
        return Some(NameStrength::Hint);
    }
    if text.eq_ignore_ascii_case(b"auth") {
        let value = quoted(bytes, skip_blanks(bytes, sign + 1))
            .unwrap_or_else(|| bare(bytes, skip_blanks(bytes, sign + 1)));
        return is_basic_credential(&bytes[value]).then_some(NameStrength::Token);
    }
    None
}

/// Returns whether a name is that of a session in the header of a cookie.
fn is_cookie(bytes: &[u8], start: usize, name: &[u8]) -> bool {
    const MAX_REACH_BYTES: usize = 300;
    const PARTS: &[&[u8]] = &[b"sess", b"sid", b"auth", b"tok", b"login", b"jwt"];
    PARTS.iter().any(|part| holds(name, part))
        && holds(&bytes[line_start(bytes, start, MAX_REACH_BYTES)..start], b"cookie")
}

fn skip_blanks(bytes: &[u8], from: usize) -> usize {
    let length = bytes[from..].iter().take(8).take_while(|&&byte| byte == b' ').count();
    from + length
}

/// Returns what the field before says about the value: `key="DbPassword" value=`.
fn name_in_another_field(bytes: &[u8], start: usize) -> Option<NameStrength> {
    const MAX_REACH_BYTES: usize = 120;
    const FIELDS: &[&[u8]] = &[b"key", b"name", b"id", b"field", b"variable", b"parameter"];
    let floor = start.saturating_sub(MAX_REACH_BYTES);
    let sign =
        floor + bytes[floor..start].iter().rposition(|&byte| byte == b'=' || byte == b':')?;
    let field = &bytes[name_before(bytes, sign)];
    if !FIELDS.iter().any(|known| known.eq_ignore_ascii_case(field)) {
        return None;
    }
    let from = skip_blanks(bytes, sign + 1);
    let value = quoted(&bytes[..start], from).unwrap_or_else(|| bare(&bytes[..start], from));
    strength(&bytes[value])
}

/// Returns the value on the line after a name, if it is alone there. An empty line or the first line of a code
/// block may be between them.
pub fn next_line(bytes: &[u8], from: usize, name: NameStrength) -> Option<Finding> {
    const MAX_GAP_BYTES: usize = 24;
    const MAX_LINE_BYTES: usize = 200;
    let mut at = from;
    let mut newlines = 0;
    let limit = (from + MAX_GAP_BYTES).min(bytes.len());
    while at < limit && matches!(bytes[at], b'\n' | b'\r' | b' ' | b'\t' | b'>' | b'`') {
        newlines += usize::from(bytes[at] == b'\n');
        at += 1;
    }
    if !(1..=3).contains(&newlines) {
        return None;
    }
    let end = line_end(bytes, at, MAX_LINE_BYTES);
    let value = quoted(&bytes[..end], at).unwrap_or_else(|| bare(&bytes[..end], at));
    let is_alone = bytes[value.end..end]
        .iter()
        .all(|&byte| byte <= b' ' || matches!(byte, b'"' | b'\'' | b'`'));
    let is_list = matches!(bytes.get(value.start), Some(b'-' | b'*' | b'#'));
    let kind = if name == NameStrength::Password { "password" } else { "assigned-secret" };
    let text = &bytes[value.clone()];
    let fits = is_alone
        && !is_list
        && text.iter().any(|&byte| class(byte) & ALNUM != 0)
        && secret(name, text, Style::Setting);
    fits.then_some(Finding { range: value, kind })
}

/// How functions begin that give a value to a name.
const SETTERS: &[&[u8]] = &[
    b"define",
    b"set",
    b"put",
    b"add",
    b"insert",
    b"append",
    b"header",
    b"env",
    b"with",
    b"config",
    b"const",
    b"var",
    b"property",
    b"store",
    b"default",
    b"export",
];

/// Returns the second argument of a call such as `define('DB_PASSWORD', '…')`, given the name without its quotes.
pub fn argument(bytes: &[u8], start: usize, end: usize) -> Option<Finding> {
    const MAX_GAP_BYTES: usize = 24;
    let quote = bytes.get(end)?;
    if start.checked_sub(1).is_none_or(|at| bytes[at] != *quote) {
        return None;
    }
    let before = bytes[..start - 1].strip_suffix(b" ").unwrap_or(&bytes[..start - 1]);
    let call = before.strip_suffix(b"(")?;
    let function =
        &call[call.len() - call.iter().rev().take(24).take_while(|&&byte| is_name(byte)).count()..];
    if !SETTERS.iter().any(|setter| holds(function, setter)) {
        return None;
    }
    let name = strength(&bytes[start..end])?;
    let limit = (end + 2 + MAX_GAP_BYTES).min(bytes.len());
    let from = (end + 2..limit).find(|&at| bytes[at] != b' ')?;
    let value = quoted(bytes, from)?;
    let kind = if name == NameStrength::Password { "password" } else { "assigned-secret" };
    secret(name, &bytes[value.clone()], Style::Quoted).then_some(Finding { range: value, kind })
}

fn is_name(byte: u8) -> bool {
    class(byte) & ALNUM != 0 || byte == b'_'
}
