//! Byte classes: one table look-up decides whether a byte can be part of something secret.

use std::ops::Range;

pub const LOWER: u16 = 1;
pub const UPPER: u16 = 1 << 1;
pub const DIGIT: u16 = 1 << 2;
/// The lower-case letters `a` to `f`; with [`DIGIT`], the alphabet of hex digests.
pub const HEX_LETTER: u16 = 1 << 3;
pub const UNDERSCORE: u16 = 1 << 4;
pub const DASH: u16 = 1 << 5;
pub const DOT: u16 = 1 << 6;
pub const PLUS: u16 = 1 << 7;
pub const SLASH: u16 = 1 << 8;
pub const EQUALS: u16 = 1 << 9;
pub const TILDE: u16 = 1 << 10;
pub const COLON: u16 = 1 << 11;
pub const COMMA: u16 = 1 << 12;
pub const AT: u16 = 1 << 13;
/// The first bytes of characters that are written in another way than they are meant, and of invisible ones.
pub const ESCAPE: u16 = 1 << 14;

pub const ALNUM: u16 = LOWER | UPPER | DIGIT;
pub const HEX: u16 = DIGIT | HEX_LETTER;
pub const UPPER_ALNUM: u16 = UPPER | DIGIT;
/// The alphabet of base64url and of most tokens.
pub const WORD: u16 = ALNUM | UNDERSCORE | DASH;
pub const BASE64: u16 = ALNUM | PLUS | SLASH;
/// The bytes of a run that is examined; all others end a run.
pub const WIDE: u16 = WORD | DOT | PLUS | SLASH | EQUALS | TILDE | COLON;

const CLASSES: &[u16; 256] = &classes();

const fn classes() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b'a'..=b'f' => LOWER | HEX_LETTER,
            b'g'..=b'z' => LOWER,
            b'A'..=b'Z' => UPPER,
            b'0'..=b'9' => DIGIT,
            b'_' => UNDERSCORE,
            b'-' => DASH,
            b'.' => DOT,
            b'+' => PLUS,
            b'/' => SLASH,
            b'=' => EQUALS,
            b'~' => TILDE,
            b':' => COLON,
            b',' => COMMA,
            b'@' => AT,
            b'%' | b'\\' | b'&' | 0xc2 | 0xe2 | 0xef => ESCAPE,
            _ => 0,
        };
        byte += 1;
    }
    table
}

#[inline(always)]
pub fn class(byte: u8) -> u16 {
    CLASSES[byte as usize]
}

/// Returns the class of the byte at a position; 0 beyond the end.
#[inline]
pub fn class_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at).map_or(0, |&byte| class(byte))
}

/// Returns the end of the run of bytes of these classes that begins at `from`.
#[inline]
pub fn run_end(bytes: &[u8], from: usize, set: u16) -> usize {
    let mut at = from;
    while at < bytes.len() && class(bytes[at]) & set != 0 {
        at += 1;
    }
    at
}

/// Returns the end of a run like [`run_end`], but at most `most` bytes on: a search that begins at many
/// positions must not run to the end of a huge line from each of them.
#[inline]
pub fn run_end_within(bytes: &[u8], from: usize, set: u16, most: usize) -> usize {
    run_end(&bytes[..(from + most).min(bytes.len())], from, set)
}

/// Returns whether all bytes are of these classes.
pub fn all(bytes: &[u8], set: u16) -> bool {
    run_end(bytes, 0, set) == bytes.len()
}

pub fn starts_at(bytes: &[u8], at: usize, prefix: &[u8]) -> bool {
    bytes.get(at..).is_some_and(|rest| rest.starts_with(prefix))
}

/// Returns the first position of a needle in a range.
pub fn find_in(bytes: &[u8], range: Range<usize>, needle: &[u8]) -> Option<usize> {
    let hay = bytes.get(range.start..range.end.min(bytes.len()))?;
    hay.windows(needle.len()).position(|window| window == needle).map(|at| range.start + at)
}

/// Returns whether a lower-case needle occurs, in any case.
pub fn holds(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window.eq_ignore_ascii_case(needle))
}

/// Returns where the line of a position begins, at most `limit` bytes back.
pub fn line_start(bytes: &[u8], at: usize, limit: usize) -> usize {
    let floor = at.saturating_sub(limit);
    bytes[floor..at]
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(floor, |found| floor + found + 1)
}

/// Returns where the line of a position ends, at most `limit` bytes on.
pub fn line_end(bytes: &[u8], at: usize, limit: usize) -> usize {
    let at = at.min(bytes.len());
    let ceiling = (at + limit).min(bytes.len());
    bytes[at..ceiling].iter().position(|&byte| byte == b'\n').map_or(ceiling, |found| at + found)
}
