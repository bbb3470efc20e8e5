//! Finds keys that are written byte by byte, by the name before them.

use std::ops::Range;

use super::assigned_value::name_before;
use super::byte_row::{begins_byte, row, skip_gap};
use super::bytes::{ALNUM, class, holds, line_end};
use super::finding::Finding;
use super::names::strength;

/// How far a row of bytes may be from its name.
const MAX_GAP_BYTES: usize = 40;
const KIND: &str = "key-bytes";

/// Finds the row of bytes that follows the word for a key that ends at `end`.
pub fn after_word(bytes: &[u8], end: usize) -> Option<Finding> {
    let limit = line_end(bytes, end, MAX_GAP_BYTES);
    let from = (end..limit)
        .find(|&at| begins_byte(bytes, at) && (at == end || class(bytes[at - 1]) & ALNUM == 0))?;
    let between = &bytes[end..from];
    if holds(between, b"fingerprint") || holds(between, b"public") {
        return None;
    }
    row(bytes, from).map(|range| Finding { range, kind: KIND })
}

/// The parts of a private key as OpenSSL prints them.
const PRIVATE_PARTS: &[&[u8]] = &[
    b"priv",
    b"privateExponent",
    b"prime1",
    b"prime2",
    b"exponent1",
    b"exponent2",
    b"coefficient",
];

/// Returns the row of bytes that a sign assigns: a part of a private key on the lines after its name, or the elements
/// of an array with a secret-looking name.
pub fn assigned(bytes: &[u8], sign: usize) -> Option<Finding> {
    let mut at = sign + 1;
    let limit = (at + MAX_GAP_BYTES).min(bytes.len());
    while at < limit && matches!(bytes[at], b' ' | b'\t' | b'\r' | b'\n') {
        at += 1;
    }
    let next = *bytes.get(at)?;
    let is_below = bytes[sign] == b':' && bytes[sign + 1..at].contains(&b'\n');
    if is_below && begins_byte(bytes, at) {
        let name = &bytes[name_before(bytes, sign)];
        let is_private = PRIVATE_PARTS.contains(&name);
        return is_private.then(|| row(bytes, at))?.map(|range| Finding { range, kind: KIND });
    }
    if !matches!(next, b'{' | b'[' | b'&') {
        return None;
    }
    let open = at + bytes[at..limit].iter().position(|&byte| byte == b'{' || byte == b'[')?;
    let from = skip_gap(bytes, open + 1);
    if !begins_byte(bytes, from) {
        return None;
    }
    let name = array_name(bytes, sign);
    strength(&bytes[name])?;
    row(bytes, from).map(|range| Finding { range, kind: KIND })
}

/// Returns the name of an array: `key` in `uint8_t key[32] =` and `key: [u8; 32] =`.
fn array_name(bytes: &[u8], sign: usize) -> Range<usize> {
    const MAX_TYPE_BYTES: usize = 24;
    let trimmed =
        sign - bytes[..sign].iter().rev().take(4).take_while(|&&byte| byte == b' ').count();
    if trimmed > 0 && bytes[trimmed - 1] == b']' {
        let floor = trimmed.saturating_sub(MAX_TYPE_BYTES);
        if let Some(open) = bytes[floor..trimmed].iter().rposition(|&byte| byte == b'[') {
            let mut end = floor + open;
            while end > floor && matches!(bytes[end - 1], b' ' | b':' | b'&') {
                end -= 1;
            }
            return name_before(bytes, end);
        }
    }
    name_before(bytes, sign)
}

#[cfg(test)]
mod tests {
    use crate::redact::mask;

    fn key(length: u8, write: impl Fn(u8) -> String, sign: &str) -> String {
        let bytes: Vec<String> = (1..=length).map(|at| write(at.wrapping_mul(91) ^ 0x5c)).collect();
        bytes.join(sign)
    }

    fn check(around: &str, secret: &str) {
        let input = around.replace('@', secret);
        assert_eq!(mask(&input).text, around.replace('@', "[secret:key-bytes]"), "from {input}");
    }

    #[test]
    fn keys_in_bytes_are_masked_after_their_name() {
        let small = |byte: u8| format!("{byte:02x}");
        let capital = |byte: u8| format!("{byte:02X}");
        let marked = |byte: u8| format!("0x{byte:02x}");
        check("the encryption key is @ today", &key(32, small, ":"));
        check("AES key: @", &key(16, capital, " "));
        check("const uint8_t aes_key[16] = { @ };", &key(16, marked, ", "));
        check("static SECRET_KEY: [u8; 32] = [@];", &key(32, marked, ",\n    "));
        check("private_key = [@]", &key(32, |byte| byte.to_string(), ", "));
        check("privateExponent:\n    @\nprime1:", &key(64, small, ":\n    "));
        check("priv:\n    @\npub:", &key(32, small, ":"));
    }

    #[test]
    fn bytes_without_a_secret_name_are_not_masked() {
        for text in [
            format!("SHA256 Fingerprint={}", key(32, |byte| format!("{byte:02X}"), ":")),
            format!("signing key fingerprint: {}", key(20, |byte| format!("{byte:02x}"), ":")),
            format!("let table = [{}];", key(64, |byte| format!("0x{byte:02x}"), ", ")),
            format!("modulus:\n    {}", key(64, |byte| format!("{byte:02x}"), ":\n    ")),
            format!("secret key {}", key(6, |byte| format!("{byte:02x}"), ":")),
            "the token 10 20 30 40 is split".to_owned(),
        ] {
            assert_eq!(mask(&text).text, text);
        }
    }
}
