//! Finds passwords in URLs.

use super::entropy::{look, random};
use super::finding::Finding;
use super::values::{is_common_value, placeholder};

/// Returns the password in the URL whose `://` is at `colon`, and the end of the URL.
pub fn address(bytes: &[u8], colon: usize) -> (Option<Finding>, usize) {
    const MAX_URL_BYTES: usize = 2048;
    let start = colon + 3;
    let limit = (start + MAX_URL_BYTES).min(bytes.len());
    let stops =
        |byte: u8| byte <= b' ' || matches!(byte, b'"' | b'\'' | b'<' | b'>' | b'`' | b'\\');
    let end = (start..limit).find(|&at| stops(bytes[at])).unwrap_or(limit);
    let host_end = (start..end).find(|&at| matches!(bytes[at], b'/' | b'?')).unwrap_or(end);
    let Some(sign) = bytes[start..host_end].iter().rposition(|&byte| byte == b'@') else {
        return (None, end);
    };
    let sign = start + sign;
    let Some(split) = bytes[start..sign].iter().position(|&byte| byte == b':') else {
        return (None, end);
    };
    let user = &bytes[start..start + split];
    let password = start + split + 1..sign;
    let text = &bytes[password.clone()];
    let known = text.len() < 3
        || text == user
        || is_common_value(text)
        || (placeholder(text) && !random(text))
        || text.iter().any(|byte| b"{}$()[]|*,".contains(byte)) && look(text).digits == 0
        || text.starts_with(b"$")
        || text.starts_with(b"{")
        || text.starts_with(b"%");
    let finding = (!known).then_some(Finding { range: password, kind: "url-password" });
    (finding, end)
}
