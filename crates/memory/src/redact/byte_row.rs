//! Rows of bytes: hex digits in pairs with a sign between them, or the elements of an array.

use std::ops::Range;

use super::bytes::{ALNUM, class_at, starts_at};

/// The shortest key that is written in bytes has 128 bits. Addresses of hardware have 6 or 8 bytes.
const MIN_BYTES: usize = 16;
const MAX_BYTES: usize = 1024;
/// How many blanks and line breaks may be between two bytes.
const MAX_GAP_BYTES: usize = 40;
const MIN_DISTINCT_BYTES: u32 = 8;

/// Returns whether a value is nothing but a row of bytes.
pub fn is_row(value: &[u8]) -> bool {
    value.len() >= MIN_BYTES * 3 - 1 && row(value, 0).is_some_and(|row| row.end == value.len())
}

/// Returns whether a byte is written at `at`.
pub fn begins_byte(bytes: &[u8], at: usize) -> bool {
    one_byte(bytes, at).is_some()
}

/// Returns the end and the value of the byte at `at`: two hex digits, perhaps after `0x` or `\x`, or a number.
fn one_byte(bytes: &[u8], at: usize) -> Option<(usize, u8)> {
    let mark = if starts_at(bytes, at, b"0x")
        || starts_at(bytes, at, b"\\x")
        || starts_at(bytes, at, b"0X")
    {
        2
    } else {
        0
    };
    let from = at + mark;
    let hex = |at: usize| (*bytes.get(at)? as char).to_digit(16);
    let is_end = |at: usize| class_at(bytes, at) & ALNUM == 0;
    if let (Some(high), Some(low)) = (hex(from), hex(from + 1))
        && (is_end(from + 2) || mark > 0 && bytes[at] == b'\\')
    {
        return Some((from + 2, (high * 16 + low) as u8));
    }
    let digits = bytes[at..].iter().take(4).take_while(|byte| byte.is_ascii_digit()).count();
    if mark > 0 || !(1..=3).contains(&digits) || !is_end(at + digits) {
        return None;
    }
    let number = std::str::from_utf8(&bytes[at..at + digits]).ok()?.parse().ok()?;
    Some((at + digits, number))
}

/// Returns where the blanks and line breaks from `from` on end.
pub fn skip_gap(bytes: &[u8], from: usize) -> usize {
    let limit = (from + MAX_GAP_BYTES).min(bytes.len());
    (from..limit).find(|&at| !matches!(bytes[at], b' ' | b'\t' | b'\r' | b'\n')).unwrap_or(limit)
}

/// Returns the row of bytes that begins at `from`, with one sign between all of them. It may take several lines.
pub fn row(bytes: &[u8], from: usize) -> Option<Range<usize>> {
    let (mut end, first) = one_byte(bytes, from)?;
    let sign = *bytes.get(end)?;
    let is_escaped = bytes[from] == b'\\';
    if !is_escaped && !matches!(sign, b':' | b' ' | b'-' | b',') {
        return None;
    }
    let is_marked = starts_at(bytes, from, b"0x") || starts_at(bytes, from, b"0X");
    let mut seen = [0u128; 2];
    let mut add = |byte: u8| seen[usize::from(byte >> 7)] |= 1 << (byte & 127);
    add(first);
    let mut count = 1;
    while count < MAX_BYTES {
        let at = match is_escaped {
            true => end,
            false if bytes.get(end) == Some(&sign) => skip_gap(bytes, end + 1),
            false => break,
        };
        let Some((next, byte)) = one_byte(bytes, at) else { break };
        // Without a mark, pairs of digits have one width, and other numbers are only in lists.
        let is_pair = next - at == 2;
        let fits = if is_marked || is_escaped { next - at == 4 } else { is_pair || sign == b',' };
        if !fits {
            break;
        }
        add(byte);
        end = next;
        count += 1;
    }
    let distinct = seen[0].count_ones() + seen[1].count_ones();
    (count >= MIN_BYTES && distinct >= MIN_DISTINCT_BYTES && class_at(bytes, end) & ALNUM == 0)
        .then_some(from..end)
}
