//! Finds tokens that are broken over a line, by a terminal or a mail program.

use super::bytes::{BASE64, DOT, LOWER, WORD, all, class, class_at, run_end_within};
use super::entropy::look;
use super::finding::Finding;
use super::shapes;

/// How long each part of a token may be.
const MAX_PART_BYTES: usize = 512;
/// How many lines a token may take.
const MAX_PARTS: usize = 8;

/// Finds all tokens of a known shape whose first part ends a line.
pub fn scan(bytes: &[u8], found: &mut Vec<Finding>) {
    let mut from = 0;
    while let Some(length) = bytes[from..].iter().position(|&byte| byte == b'\n') {
        let newline = from + length;
        from = newline + 1;
        let end = part_end(bytes, newline);
        // Most lines do not end within a token.
        if end < 4 || !all(&bytes[end - 4..end], WORD | DOT) {
            continue;
        }
        let floor = end.saturating_sub(MAX_PART_BYTES);
        let mut start = end;
        while start > floor && class(bytes[start - 1]) & (WORD | DOT) != 0 {
            start -= 1;
        }
        if end - start < 3 || start == floor && floor > 0 {
            continue;
        }
        if let Some(finding) = joined(bytes, start, end) {
            from = from.max(finding.range.end);
            found.push(finding);
        }
    }
}

/// The right and left side of a box that a terminal draws around text.
const BOX_SIDE: &[u8] = "│".as_bytes();

/// Returns where a part of a token may end on the line that ends at `newline`: before the sign that continues a line in
/// a shell, in PowerShell, in Windows or in quoted-printable text, or before the side of a box.
fn part_end(bytes: &[u8], newline: usize) -> usize {
    const MAX_BLANKS: usize = 120;
    let mut end = newline - usize::from(newline > 0 && bytes[newline - 1] == b'\r');
    if bytes[..end].ends_with(BOX_SIDE) {
        end -= BOX_SIDE.len();
        let floor = end.saturating_sub(MAX_BLANKS);
        while end > floor && bytes[end - 1] == b' ' {
            end -= 1;
        }
        return end;
    }
    while end > 0
        && matches!(bytes[end - 1], b'\\' | b' ' | b'=' | b'`' | b'^')
        && newline - end < 3
    {
        end -= 1;
    }
    end
}

/// Returns the token of a known shape whose first part is `start..end`.
fn joined(bytes: &[u8], start: usize, end: usize) -> Option<Finding> {
    if !shapes::has_prefix(&bytes[start..end]) {
        return None;
    }
    let mut token = bytes[start..end].to_vec();
    let mut last = end;
    let mut best = None;
    let mut is_complete = shapes::at(&token, 0).is_some();
    for _ in 1..MAX_PARTS {
        let Some(part) = next_part(bytes, last) else { break };
        if is_complete && !is_piece(&bytes[part.clone()]) {
            break;
        }
        token.extend_from_slice(&bytes[part.clone()]);
        last = part.end;
        if let Some(found) = shapes::at(&token, 0).filter(|found| found.range.end == token.len()) {
            is_complete = true;
            best = Some(Finding { range: start + found.range.start..last, kind: found.kind });
        }
    }
    best
}

/// Returns the end of a secret that ends at the end of a line and continues on the next ones.
pub fn continued_end(bytes: &[u8], mut end: usize) -> usize {
    for _ in 1..MAX_PARTS {
        match next_part(bytes, end) {
            Some(part) if is_piece(&bytes[part.clone()]) => end = part.end,
            _ => break,
        }
    }
    end
}

/// Returns the token that begins the next line, if `end` ends a line. Blanks and the marks of a quotation may
/// precede it, and nothing but blanks may follow it on its line, or the punctuation of a sentence.
fn next_part(bytes: &[u8], end: usize) -> Option<std::ops::Range<usize>> {
    const MAX_GAP_BYTES: usize = 24;
    const MAX_BOX_GAP_BYTES: usize = 160;
    let mut limit = (end + MAX_GAP_BYTES).min(bytes.len());
    let mut at = end;
    let mut newlines = 0;
    while at < limit {
        match bytes[at] {
            b'\n' => newlines += 1,
            b'\r' | b'\\' | b' ' | b'\t' | b'>' | b'|' => {}
            b'=' | b'`' | b'^' if newlines == 0 => {}
            0xe2 if bytes[at..].starts_with(BOX_SIDE) => {
                at += BOX_SIDE.len();
                limit = (end + MAX_BOX_GAP_BYTES).min(bytes.len());
                continue;
            }
            _ => break,
        }
        at += 1;
    }
    if newlines != 1 {
        return None;
    }
    let mut stop = run_end_within(bytes, at, WORD | BASE64 | DOT, MAX_PART_BYTES);
    while stop > at && bytes[stop - 1] == b'.' {
        stop -= 1;
    }
    let ends = bytes.get(stop).is_none_or(|&byte| b" \n\r\t\"'`,;.)\\&@]}<>|=".contains(&byte));
    (stop > at && ends).then_some(at..stop)
}

/// Returns whether a text looks like a piece of a token rather than a word.
fn is_piece(text: &[u8]) -> bool {
    let seen = look(text);
    let is_name = text.iter().filter(|&&byte| b"/.-_".contains(&byte)).count() * 6 > text.len();
    let is_version = seen.digits > 0 && seen.letters() < 2;
    text.len() >= 4
        && !all(text, LOWER)
        && !is_name
        && !is_version
        && class_at(text, 0) != 0
        && (seen.digit_changes >= 2 || seen.changes >= 3 && seen.odd * 5 >= seen.pairs)
}
