//! The members of a JSON web key (RFC 7518): some are public, some private.

use super::assigned_value::name_before;
use super::bytes::{WORD, find_in, run_end_within};
use super::finding::Finding;

/// The members of private and symmetric keys.
const PRIVATE_MEMBERS: &[&[u8]] = &[b"d", b"p", b"q", b"dp", b"dq", b"qi", b"k"];
const PUBLIC_MEMBERS: &[&[u8]] = &[b"n", b"x", b"y", b"e", b"kid", b"x5t", b"x5t#S256"];
const MIN_MEMBER_BYTES: usize = 22;
/// The private exponent of the longest common key has 683 characters, and ten members surround it.
const MAX_MEMBER_BYTES: usize = 1400;
const MAX_REACH_BYTES: usize = 3000;

/// Returns the private member of a key that the colon at `sign` assigns.
pub fn private_member(bytes: &[u8], sign: usize) -> Option<Finding> {
    // Nearly all names are longer, or without quotes.
    let is_quote = |back: usize| sign.checked_sub(back).is_some_and(|at| bytes[at] == b'"');
    if !is_quote(1) || !(is_quote(3) || is_quote(4) || is_quote(5)) {
        return None;
    }
    if !PRIVATE_MEMBERS.contains(&&bytes[name_before(bytes, sign)]) {
        return None;
    }
    let blanks = bytes[sign + 1..].iter().take(4).take_while(|&&byte| byte == b' ').count();
    let marks =
        bytes[sign + 1 + blanks..].iter().take(2).take_while(|byte| b"\\\"'".contains(byte));
    let start = sign + 1 + blanks + marks.count();
    let end = run_end_within(bytes, start, WORD, MAX_MEMBER_BYTES);
    (end - start >= MIN_MEMBER_BYTES && is_in_key(bytes, sign))
        .then_some(Finding { range: start..end, kind: "private-key" })
}

/// Returns whether a name before the sign at `sign` is that of a public member of a key.
pub fn is_public_member(bytes: &[u8], sign: usize) -> bool {
    PUBLIC_MEMBERS.contains(&&bytes[name_before(bytes, sign)]) && is_in_key(bytes, sign)
}

/// Returns whether the type of a key is near.
fn is_in_key(bytes: &[u8], at: usize) -> bool {
    let near = at.saturating_sub(MAX_REACH_BYTES)..(at + MAX_REACH_BYTES).min(bytes.len());
    find_in(bytes, near, b"kty").is_some()
}

#[cfg(test)]
mod tests {
    use crate::redact::mask;

    #[test]
    fn private_members_are_masked_and_public_ones_are_not() {
        let value = "Xk3vQ9_tLm2Rz7Hw-Bc5Ny8PdFg4Js6Vu1Ta0Qe3KxM";
        let key = |d: &str| {
            format!(r#"{{"kty":"EC","crv":"P-256","x":"{value}","y":"{value}","d":"{d}"}}"#)
        };
        assert_eq!(mask(&key(value)).text, key("[secret:private-key]"));
        let long = value.repeat(14);
        let key = |d: &str| format!(r#"{{"kty": "RSA", "e": "AQAB", "d": "{d}", "kid": "a1"}}"#);
        assert_eq!(mask(&key(&long)).text, key("[secret:private-key]"));
    }
}
