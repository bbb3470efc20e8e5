//! One pass over a text. It skips everything that cannot be secret at the speed of a table look-up,
//! and stops only at long runs, at signs that assign, and at a few words.

use super::bytes::{ALNUM, BASE64, COLON, DASH, EQUALS, WIDE, WORD, class, starts_at};
use super::entropy::{stray_secret, token_end};
use super::finding::Finding;
use super::public_token::is_public;
use super::special::PemBlock;
use super::{assign, line, shapes, special};

/// The length of the shortest known shape.
const MIN_SHAPE_BYTES: usize = 16;

pub fn scan(text: &str) -> Vec<Finding> {
    let bytes = text.as_bytes();
    let mut scan = Scan { bytes, found: Vec::new(), quiet: 0 };
    let mut at = 0;
    while at < bytes.len() {
        if class(bytes[at]) & WIDE == 0 {
            at += 1;
            continue;
        }
        let start = at;
        let mut seen = 0;
        while at < bytes.len() && class(bytes[at]) & WIDE != 0 {
            seen |= class(bytes[at]);
            at += 1;
        }
        let short = at - start < MIN_SHAPE_BYTES && seen & (COLON | EQUALS | DASH) == 0;
        if !short || may_announce(bytes[start], at - start) {
            at = scan.run(start, at, seen).max(at);
        }
    }
    let mut found = scan.found;
    found.retain(|finding| {
        text.is_char_boundary(finding.range.start) && text.is_char_boundary(finding.range.end)
    });
    found
}

/// Returns whether a word of this first letter and length may announce a secret.
fn may_announce(first: u8, length: usize) -> bool {
    matches!((first, length), (b'B' | b'b', 6) | (b'S', 4) | (b'F', 5) | (b'p', 6 | 8))
}

struct Scan<'a> {
    bytes: &'a [u8],
    found: Vec<Finding>,
    /// Up to here, random text alone is not a secret: it is part of a URL.
    quiet: usize,
}

impl Scan<'_> {
    /// Searches a run. Returns where to continue, which may be after it.
    fn run(&mut self, start: usize, end: usize, seen: u16) -> usize {
        let bytes = self.bytes;
        if let Some(finding) = line::after_word(bytes, start, end) {
            return self.take(finding);
        }
        let long = end - start >= MIN_SHAPE_BYTES;
        let mut block = None;
        if seen & DASH != 0 && end - start >= 10 && bytes.get(end) == Some(&b' ') {
            let dashes = end - 10;
            if starts_at(bytes, dashes, special::BEGIN) {
                block = Some(dashes);
            }
        }
        let mut at = start;
        while at < end {
            if block == Some(at) {
                match special::block(bytes, at) {
                    Some(PemBlock::Secret(range)) => {
                        return self.take(Finding { range, kind: "private-key" });
                    }
                    Some(PemBlock::Public(end)) => return end,
                    None => {}
                }
            }
            let here = class(bytes[at]);
            if here & (COLON | EQUALS) != 0 {
                if let Some(next) = self.sign(at) {
                    at = next;
                    continue;
                }
            } else if long && self.boundary(start, at) {
                if end - at >= MIN_SHAPE_BYTES
                    && let Some(finding) = shapes::at(bytes, at).or_else(|| special::at(bytes, at))
                {
                    at = self.take(finding);
                    continue;
                }
                if let Some(next) = self.stray(start, at, end) {
                    at = next;
                    continue;
                }
            }
            at += 1;
        }
        at
    }

    fn take(&mut self, finding: Finding) -> usize {
        let end = finding.range.end;
        self.found.push(finding);
        end
    }

    /// Searches what a colon or an equals sign separates.
    fn sign(&mut self, at: usize) -> Option<usize> {
        let bytes = self.bytes;
        let finding = if starts_at(bytes, at, b"://") && at > 0 && class(bytes[at - 1]) & ALNUM != 0
        {
            let (finding, end) = special::address(bytes, at);
            self.quiet = self.quiet.max(end);
            finding
        } else {
            assign::at(bytes, at).or_else(|| line::pgpass(bytes, at).filter(|_| bytes[at] == b':'))
        }?;
        // A value of a known shape is named after its shape.
        let known = shapes::at(bytes, finding.range.start)
            .or_else(|| special::at(bytes, finding.range.start));
        let kind = known.filter(|known| known.range == finding.range).map(|known| known.kind);
        Some(self.take(Finding { kind: kind.unwrap_or(finding.kind), ..finding }))
    }

    /// Returns whether a token may begin at `at`: no letter or digit precedes it, except as part of an
    /// escape sequence such as `\n` or `%3D`.
    fn boundary(&self, start: usize, at: usize) -> bool {
        let bytes = self.bytes;
        if at == start || class(bytes[at - 1]) & ALNUM == 0 {
            return true;
        }
        match start.checked_sub(1).map(|before| bytes[before]) {
            Some(b'\\') => at == start + 1 && b"nrt".contains(&bytes[start]),
            Some(b'%') => at == start + 2,
            _ => false,
        }
    }

    /// Searches for a token that only looks random. Returns its end if it is a secret, so that its parts
    /// are not judged again.
    fn stray(&mut self, start: usize, at: usize, end: usize) -> Option<usize> {
        let bytes = self.bytes;
        if at < self.quiet || end - at < 20 {
            return None;
        }
        let escaped = start > 0 && bytes[start - 1] == b'\\' && at == start + 1;
        if at > start && class(bytes[at - 1]) & (WORD | BASE64) != 0 && !escaped {
            return None;
        }
        let stop = token_end(bytes, at);
        if !stray_secret(&bytes[at..stop]) || is_public(bytes, at, stop) {
            return None;
        }
        Some(self.take(Finding { range: at..stop, kind: "high-entropy" }))
    }
}
