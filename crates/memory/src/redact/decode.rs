//! A text as it is meant: without invisible characters, with percent-encoded and escaped characters decoded.

use std::ops::Range;

use super::bytes::{ESCAPE, class};

/// A decoded text. It knows where each of its bytes comes from.
pub struct Decoded {
    pub text: String,
    /// For each byte, where its written form is.
    written: Vec<(u32, u32)>,
    /// The positions of decoded characters, and of those before which an invisible one was, in order.
    changes: Vec<usize>,
}

impl Decoded {
    /// Returns where a range of the decoded text is in the written one.
    pub fn written(&self, range: &Range<usize>) -> Range<usize> {
        self.written[range.start].0 as usize..self.written[range.end - 1].1 as usize
    }

    /// Returns whether a decoded or invisible character is in a range or shortly before it.
    pub fn is_changed_near(&self, range: &Range<usize>) -> bool {
        const MAX_REACH_BYTES: usize = 64;
        let floor = range.start.saturating_sub(MAX_REACH_BYTES);
        let after = self.changes.partition_point(|&at| at < floor);
        self.changes.get(after).is_some_and(|&at| at < range.end)
    }
}

/// Returns the first position from `from` on where a character is written in another way, or an invisible one is.
pub fn next_escape(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(length) = bytes[at..].iter().position(|&byte| class(byte) & ESCAPE != 0) {
        at += length;
        if escape_at(bytes, at).is_some() {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// Decodes a text whose first escape is at `first`; `None` if it is too long.
pub fn decode(written: &str, first: usize) -> Option<Decoded> {
    let bytes = written.as_bytes();
    u32::try_from(written.len()).ok()?;
    let mut decoded = Decoded {
        text: String::with_capacity(written.len()),
        written: (0..first as u32).map(|at| (at, at + 1)).collect(),
        changes: Vec::new(),
    };
    decoded.text.push_str(&written[..first]);
    let mut at = first;
    while at < bytes.len() {
        match escape_at(bytes, at) {
            Some((None, length)) => {
                decoded.changes.push(decoded.text.len());
                at += length;
            }
            Some((Some(meant), length)) => {
                decoded.changes.push(decoded.text.len());
                decoded.written.push((at as u32, (at + length) as u32));
                decoded.text.push(meant as char);
                at += length;
            }
            None => {
                let next = next_escape(bytes, at + 1).unwrap_or(bytes.len());
                decoded.written.extend((at as u32..next as u32).map(|at| (at, at + 1)));
                decoded.text.push_str(&written[at..next]);
                at = next;
            }
        }
    }
    Some(decoded)
}

/// Returns the ASCII character that is written at `at` in another way, and the length of that. Invisible
/// characters mean nothing.
fn escape_at(bytes: &[u8], at: usize) -> Option<(Option<u8>, usize)> {
    let rest = &bytes[at..];
    match rest[0] {
        b'%' => {
            // `%25` is a percent sign, which may be the first part of another encoded character.
            let mut from = 1;
            while rest.get(from..from + 2) == Some(b"25")
                && from < 8
                && hex(rest, from + 2, 2).is_some()
            {
                from += 2;
            }
            let byte = hex(rest, from, 2)?;
            is_meant(byte).then_some((Some(byte as u8), from + 2))
        }
        b'\\' if matches!(rest.get(1), Some(b'u')) => {
            let code = hex(rest, 2, 4)?;
            match code {
                0x200b..=0x200f | 0x2060 | 0xfeff | 0xad => Some((None, 6)),
                code => is_meant(code).then_some((Some(code as u8), 6)),
            }
        }
        b'\\' if matches!(rest.get(1), Some(b'x')) => {
            let code = hex(rest, 2, 2)?;
            is_meant(code).then_some((Some(code as u8), 4))
        }
        b'&' if rest.get(1) == Some(&b'#') => entity(rest),
        b'&' if rest.starts_with(b"&amp;") => Some((Some(b'&'), 5)),
        0xe2 => match rest.get(1..3)? {
            // Zero-width spaces and joiners, direction marks, the word joiner.
            [0x80, 0x8b..=0x8f | 0xaa..=0xae] | [0x81, 0xa0..=0xa4] => Some((None, 3)),
            _ => None,
        },
        // The byte order mark, and the soft hyphen.
        0xef => (rest.get(1..3)? == [0xbb, 0xbf]).then_some((None, 3)),
        0xc2 => (rest.get(1)? == &0xad).then_some((None, 2)),
        _ => None,
    }
}

/// Returns the character of `&#95;` or `&#x5f;`.
fn entity(rest: &[u8]) -> Option<(Option<u8>, usize)> {
    let is_hex = matches!(rest.get(2), Some(b'x' | b'X'));
    let from = if is_hex { 3 } else { 2 };
    let end = from + rest[from..].iter().take(5).position(|&byte| byte == b';')?;
    let digits = std::str::from_utf8(&rest[from..end]).ok()?;
    let code = u32::from_str_radix(digits, if is_hex { 16 } else { 10 }).ok()?;
    is_meant(code).then_some((Some(code as u8), end + 1))
}

/// Returns whether a code is one of a visible ASCII character or a space.
fn is_meant(code: u32) -> bool {
    (0x20..0x7f).contains(&code)
}

fn hex(bytes: &[u8], from: usize, length: usize) -> Option<u32> {
    let digits = bytes.get(from..from + length)?;
    digits.iter().try_fold(0, |sum, &byte| Some(sum * 16 + (byte as char).to_digit(16)?))
}
