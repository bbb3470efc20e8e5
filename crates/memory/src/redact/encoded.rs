//! Base64: text that is encoded in it may contain a secret, and so may keys without their first line.

use std::ops::Range;

use super::bytes::{BASE64, EQUALS, class, class_at, run_end, run_end_within, starts_at};
use super::entropy::look;

/// Returns the bytes that a token encodes in base64 or base64url, at most `most` of them, without its padding.
pub fn decode(token: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity((token.len() * 3 / 4).min(most));
    let mut bits = 0u32;
    let mut held = 0;
    for &byte in token {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' => break,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            decoded.push((bits >> held) as u8);
            if decoded.len() == most {
                break;
            }
        }
    }
    Some(decoded)
}

/// Returns the text that a token encodes; `None` if that is not plain text.
pub fn decode_text(token: &[u8]) -> Option<String> {
    const FIRST_BYTES: usize = 12;
    let is_text = |bytes: &[u8]| {
        bytes.iter().all(|&byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
    };
    // The first character has the upper six bits of the first byte, which is at least a space and below 128. Nearly
    // all other tokens end after the first bytes.
    let may_be_text = matches!(token.first(), Some(b'I'..=b'Z' | b'a'..=b'f' | b'C'));
    if !may_be_text || !is_text(&decode(token, FIRST_BYTES)?) {
        return None;
    }
    let text = decode(token, usize::MAX)?;
    (is_text(&text) && text.len() >= 6).then(|| String::from_utf8(text).ok())?
}

/// Returns whether a token is base64 of a name and a password, separated by a colon.
pub fn is_basic_credential(token: &[u8]) -> bool {
    let token = token.strip_suffix(b"==").or(token.strip_suffix(b"=")).unwrap_or(token);
    let Some(text) = decode_text(token) else { return false };
    let Some((name, password)) = text.split_once(':') else { return false };
    let is_plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain(name) && is_plain(password) && password.len() >= 4 && look(token).changes >= 3
}

/// How private keys begin in base64, by the structure of their first bytes.
const OPENSSH_KEY: &[u8] = b"b3BlbnNzaC1rZXktdjE";

/// Returns the private key without its first line that begins at `from`. Its lines end before the first line
/// that is not base64.
pub fn key_body(bytes: &[u8], from: usize) -> Option<Range<usize>> {
    const MIN_LINE_BYTES: usize = 40;
    const FIRST_BYTES: usize = 40;
    if !matches!(bytes[from], b'M' | b'b') {
        return None;
    }
    if run_end_within(bytes, from, BASE64, MIN_LINE_BYTES) - from < MIN_LINE_BYTES {
        return None;
    }
    let end = run_end(bytes, from, BASE64);
    let line = run_end_within(bytes, end, EQUALS, 2);
    let is_key = starts_at(bytes, from, OPENSSH_KEY)
        || is_private_der(&decode(&bytes[from..line.min(from + 56)], FIRST_BYTES)?);
    is_key.then(|| from..body_end(bytes, line))
}

/// Returns whether the first bytes are those of a private key: a sequence that begins with the version 0 or 1,
/// followed by a number (PKCS #1), an algorithm (PKCS #8) or bytes (SEC 1); or an encrypted key.
fn is_private_der(der: &[u8]) -> bool {
    /// The object identifier of password-based encryption.
    const PBES2: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d];
    let content = match der {
        [0x30, 0x82, _, _, content @ ..] => content,
        [0x30, 0x81, _, content @ ..] => content,
        [0x30, length, content @ ..] if *length < 0x80 => content,
        _ => return false,
    };
    match content {
        // A certificate request has the version, too, but then the sequence of a name, whose first part is a set.
        [0x02, 0x01, 0x00 | 0x01, 0x02 | 0x04, ..] => true,
        [0x02, 0x01, 0x00 | 0x01, 0x30, _, 0x06, ..] => true,
        [0x30, _, rest @ ..] => rest.starts_with(PBES2),
        _ => false,
    }
}

/// Returns where the base64 lines end that follow the line that ends at `end`. Lines end with a line break, or with
/// one that is written `\n`.
fn body_end(bytes: &[u8], mut end: usize) -> usize {
    const MIN_LINE_BYTES: usize = 16;
    const MAX_INDENT_BYTES: usize = 40;
    loop {
        let mut at = end;
        while starts_at(bytes, at, b"\\n") || starts_at(bytes, at, b"\\r") {
            at += 2;
        }
        let limit = (at + MAX_INDENT_BYTES).min(bytes.len());
        while at < limit && matches!(bytes[at], b'\n' | b'\r' | b' ' | b'\t' | b'>' | b'|') {
            at += 1;
        }
        if at == end {
            return end;
        }
        let next = run_end(bytes, at, BASE64 | EQUALS);
        let is_last = next > at && bytes[next - 1] == b'=';
        let ends_line = matches!(class_at(bytes, next), 0)
            && bytes.get(next).is_none_or(|&byte| b"\n\r\\\"' `".contains(&byte));
        if (next - at < MIN_LINE_BYTES && !is_last) || !ends_line || !is_dense(&bytes[at..next]) {
            return end;
        }
        end = next;
        if is_last {
            return end;
        }
    }
}

/// Returns whether a line looks encoded: long words of prose have one case.
fn is_dense(line: &[u8]) -> bool {
    line.len() >= 48
        || look(line).changes * 4 >= line.len()
        || line.iter().any(|&byte| class(byte) & EQUALS != 0)
}
