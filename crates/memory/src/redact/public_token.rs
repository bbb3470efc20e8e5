//! Recognises random-looking tokens that are public by what surrounds them: a digest, a file name, a
//! piece of embedded data, a key that is made to be shown.

use super::assigned_value::name_before;
use super::bytes::{ALNUM, BASE64, DIGIT, EQUALS, all, class, class_at, line_end, line_start};
use super::jwk::is_public_member;
use super::word_list::word_list;

const PUBLIC_PREFIXES: &[&[u8]] = word_list!("data/public_prefixes.txt");
const PUBLIC_FIELDS: &[&[u8]] = word_list!("data/public_fields.txt");
/// Words after which a digest or an identifier follows.
const PUBLIC_WORDS: &[&[u8]] = &[
    b"id",
    b"commit",
    b"digest",
    b"hash",
    b"checksum",
    b"sha1",
    b"sha256",
    b"sha384",
    b"sha512",
    b"fingerprint",
    b"revision",
    b"cid",
    b"etag",
];
/// How many quotes and blanks may separate a value from the sign that assigns it.
const MAX_SIGN_GAP: usize = 4;
/// A shorter line is not one of many lines of embedded data.
const MIN_EMBEDDED_BYTES: usize = 40;
/// How far the lines around a token are searched.
const MAX_LINE_BYTES: usize = 200;

/// A token in its text.
struct Token<'a> {
    bytes: &'a [u8],
    start: usize,
    end: usize,
}

/// The rules by which a token is public; any of them is enough.
const RULES: &[fn(&Token<'_>) -> bool] = &[
    has_public_prefix,
    follows_a_path_or_mark,
    continues_as_a_name_or_call,
    is_a_data_url,
    has_a_public_field_name,
    is_in_a_public_element,
    follows_a_public_word,
    is_an_encoded_word,
    is_a_content_identifier,
    is_embedded_data,
];

/// Returns whether the token at `start..end` is public.
pub fn is_public(bytes: &[u8], start: usize, end: usize) -> bool {
    let token = Token { bytes, start, end };
    RULES.iter().any(|is_public| is_public(&token))
}

fn has_public_prefix(token: &Token<'_>) -> bool {
    let text = &token.bytes[token.start..token.end];
    PUBLIC_PREFIXES.iter().any(|prefix| text.starts_with(prefix))
}

fn follows_a_path_or_mark(token: &Token<'_>) -> bool {
    let before = token.start.checked_sub(1).map_or(0, |at| token.bytes[at]);
    matches!(before, b'.' | b'/' | b'\\' | b'@' | b'#' | b'$' | b'%' | b'~')
}

fn continues_as_a_name_or_call(token: &Token<'_>) -> bool {
    let next = token.bytes.get(token.end).copied().unwrap_or(0);
    let is_joined = class_at(token.bytes, token.end + 1) & ALNUM != 0;
    matches!(next, b'.' | b'~' | b'@' | b':' | b'/') && is_joined
        || matches!(next, b'(' | b'<' | b'[')
}

fn is_a_data_url(token: &Token<'_>) -> bool {
    let before = &token.bytes[..token.start];
    before.ends_with(b"base64,") || before.ends_with(b"base64, ")
}

fn has_a_public_field_name(token: &Token<'_>) -> bool {
    let Token { bytes, start, .. } = *token;
    let mut sign = start;
    while sign > 0 && start - sign < MAX_SIGN_GAP && b" \"'`".contains(&bytes[sign - 1]) {
        sign -= 1;
    }
    // A weak tag of an entity: `ETag: W/"…"`.
    if bytes[..sign].ends_with(b"W/") && sign + 1 == start {
        return true;
    }
    if sign == 0 || !b":=".contains(&bytes[sign - 1]) {
        return false;
    }
    is_public_name(&bytes[name_before(bytes, sign - 1)]) || is_public_member(bytes, sign - 1)
}

/// Returns whether a name is that of an identifier or a digest, such as `x-request-id`, `x-amz-id-2` or `narHash`.
fn is_public_name(name: &[u8]) -> bool {
    let mut parts = name.rsplit(|byte| b"_-.".contains(byte)).skip_while(|part| all(part, DIGIT));
    let last = parts.next().unwrap_or(name);
    last.ends_with(b"Id")
        || last.ends_with(b"ID")
        || last.ends_with(b"Hash")
        || PUBLIC_FIELDS.iter().any(|known| known.eq_ignore_ascii_case(last))
}

/// Returns whether a token is the text of an element such as `<HostId>`.
fn is_in_a_public_element(token: &Token<'_>) -> bool {
    const MAX_NAME_BYTES: usize = 32;
    let before = &token.bytes[..token.start];
    let Some(tag) = before.strip_suffix(b">") else { return false };
    let tag = &tag[tag.len().saturating_sub(MAX_NAME_BYTES)..];
    tag.iter().rposition(|&byte| byte == b'<').is_some_and(|open| is_public_name(&tag[open + 1..]))
}

/// Returns whether the word before a token says what it is: "request id …", "commit …".
fn follows_a_public_word(token: &Token<'_>) -> bool {
    let Some(before) = token.bytes[..token.start].strip_suffix(b" ") else { return false };
    let length = before.iter().rev().take(12).take_while(|&&byte| class(byte) & ALNUM != 0).count();
    PUBLIC_WORDS.iter().any(|word| word.eq_ignore_ascii_case(&before[before.len() - length..]))
}

/// Returns whether a token is a word of a mail header in another character set: `=?utf-8?b?…?=`.
fn is_an_encoded_word(token: &Token<'_>) -> bool {
    let before = &token.bytes[..token.start];
    before.ends_with(b"?b?")
        || before.ends_with(b"?B?")
        || before.ends_with(b"?q?")
        || before.ends_with(b"?Q?")
}

/// Returns whether a token names content by its digest, as IPFS does: `Qm` and 44 characters of base58.
fn is_a_content_identifier(token: &Token<'_>) -> bool {
    let text = &token.bytes[token.start..token.end];
    text.len() == 46 && text.starts_with(b"Qm") && all(text, ALNUM)
}

/// Returns whether a token is one of several lines that together are embedded data.
fn is_embedded_data(token: &Token<'_>) -> bool {
    let Token { bytes, start, end } = *token;
    if end - start < MIN_EMBEDDED_BYTES {
        return false;
    }
    let line = line_start(bytes, start, MAX_LINE_BYTES);
    let line_before = line_start(bytes, line.saturating_sub(1), MAX_LINE_BYTES);
    let line_stop = line_end(bytes, end, MAX_LINE_BYTES);
    let line_after = line_end(bytes, line_stop + 1, MAX_LINE_BYTES);
    let is_encoded = |line: &[u8]| {
        let runs = line.split(|&byte| class(byte) & (BASE64 | EQUALS) == 0);
        runs.map(<[u8]>::len).max().unwrap_or(0) >= MIN_EMBEDDED_BYTES
    };
    is_encoded(&bytes[line_before..line])
        || is_encoded(bytes.get(line_stop + 1..line_after).unwrap_or_default())
}
