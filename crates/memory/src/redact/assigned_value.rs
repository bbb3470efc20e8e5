//! The name before a sign that assigns, and the value after it.

use std::ops::Range;

use super::bytes::{ALNUM, DASH, DOT, UNDERSCORE, class};

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
