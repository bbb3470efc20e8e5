//! Passes over a text. The first skips everything that cannot be secret at the speed of a table look-up,
//! and stops only at long runs, at signs that assign, and at a few words. The others look for numbers with
//! check digits, rows of words, words that announce a secret, and tokens that are encoded or broken.

use std::cell::Cell;

use super::bytes::{
    ALNUM, BASE64, COLON, DASH, EQUALS, WIDE, WORD, class, line_end, line_start, starts_at,
};
use super::entropy::{stray_secret, token_end};
use super::finding::Finding;
use super::key_blocks::PemBlock;
use super::public_token::is_public;
use super::{
    account_tokens, assign, decode, distant_names, encoded, hashes, jwk, key_blocks, key_bytes,
    line, shapes, token_parts, url_passwords, words, wrapped,
};

/// The length of the shortest known shape.
const MIN_SHAPE_BYTES: usize = 16;
/// How often a secret may be encoded in base64. Each level is searched as it is written and as it is meant,
/// so that the work doubles with each.
const MAX_ENCODINGS: usize = 2;

/// How deep a text is searched.
#[derive(Clone, Copy)]
struct Depth<'a> {
    /// How often tokens are decoded.
    encodings: usize,
    /// How many bytes were searched for tokens, on all levels.
    searched_bytes: &'a Cell<usize>,
}

/// Finds the secrets of a text, in order and apart from each other.
pub fn scan(text: &str) -> Vec<Finding> {
    scan_to(text, Depth { encodings: MAX_ENCODINGS, searched_bytes: &Cell::new(0) })
}

fn scan_to(text: &str, depth: Depth<'_>) -> Vec<Finding> {
    let bytes = text.as_bytes();
    let mut found = scan_tokens(text, depth);
    for finding in &mut found {
        if is_one_token(finding.kind) {
            finding.range.end = wrapped::continued_end(bytes, finding.range.end);
        }
    }
    words::scan(text, &mut found);
    wrapped::scan(bytes, &mut found);
    scan_decoded(text, depth, &mut found);
    account_tokens::scan(bytes, &mut found);
    found.retain(|finding| {
        text.is_char_boundary(finding.range.start) && text.is_char_boundary(finding.range.end)
    });
    joined(found)
}

/// Finds what is only a secret once encoded characters are decoded and invisible ones are removed. Only lines
/// with such characters are searched.
fn scan_decoded(text: &str, depth: Depth<'_>, found: &mut Vec<Finding>) {
    let bytes = text.as_bytes();
    let mut from = 0;
    while let Some(escape) = decode::next_escape(bytes, from) {
        let start = line_start(bytes, escape, escape - from);
        let end = line_end(bytes, escape, bytes.len());
        from = end;
        if let Some(decoded) = decode::decode(&text[start..end], escape - start) {
            let mut inside = scan_tokens(&decoded.text, depth);
            words::scan(&decoded.text, &mut inside);
            inside.retain(|finding| decoded.is_changed_near(&finding.range));
            found.extend(inside.into_iter().map(|finding| {
                let range = decoded.written(&finding.range);
                Finding { range: start + range.start..start + range.end, kind: finding.kind }
            }));
        }
    }
}

fn is_one_token(kind: &str) -> bool {
    !matches!(kind, "password" | "url-password" | "private-key")
}

/// Sorts findings and joins those that overlap. The longer one gives the kind.
fn joined(mut found: Vec<Finding>) -> Vec<Finding> {
    found.sort_by_key(|finding| finding.range.start);
    let mut result: Vec<Finding> = Vec::with_capacity(found.len());
    for finding in found {
        match result.last_mut() {
            Some(last) if finding.range.start < last.range.end => {
                if finding.range.len() > last.range.len() {
                    last.kind = finding.kind;
                }
                last.range.end = last.range.end.max(finding.range.end);
            }
            _ => result.push(finding),
        }
    }
    result
}

/// Finds tokens and assigned values.
fn scan_tokens(text: &str, depth: Depth<'_>) -> Vec<Finding> {
    depth.searched_bytes.set(depth.searched_bytes.get() + text.len());
    let bytes = text.as_bytes();
    let mut scan = Scan { bytes, found: Vec::new(), quiet: 0, depth };
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
        let before = if start > 0 { bytes[start - 1] } else { 0 };
        let next = if at < bytes.len() { bytes[at] } else { 0 };
        if (matches!(before, b'$' | b'}' | b'*') || next == b'$')
            && let Some(finding) = hashes::near(bytes, start, at)
        {
            at = scan.take(finding).max(at);
            continue;
        }
        let short = at - start < MIN_SHAPE_BYTES && seen & (COLON | EQUALS | DASH) == 0;
        if !short || may_announce(bytes[start], at - start) {
            at = scan.run(start, at, seen).max(at);
        }
        let named = match (bytes.get(at), bytes.get(at + 1)) {
            (Some(b'>'), _) | (Some(b'"'), Some(b'>')) => line::element(bytes, start, at),
            (Some(b'"' | b'\''), Some(b',')) => distant_names::argument(bytes, start, at),
            _ => None,
        };
        if let Some(finding) = named {
            at = scan.take(finding).max(at);
        }
    }
    scan.found
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
    depth: Depth<'a>,
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
            if starts_at(bytes, dashes, key_blocks::BEGIN) {
                block = Some(dashes);
            }
        }
        let mut at = start;
        while at < end {
            if block == Some(at) {
                match key_blocks::block(bytes, at) {
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
                    && let Some(finding) =
                        shapes::at(bytes, at).or_else(|| token_parts::at(bytes, at))
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
            let (finding, end) = url_passwords::address(bytes, at);
            self.quiet = self.quiet.max(end);
            finding
        } else {
            assign::at(bytes, at)
                .or_else(|| key_bytes::assigned(bytes, at))
                .or_else(|| self.colon(at).filter(|_| bytes[at] == b':'))
        }?;
        // A value of a known shape is named after its shape.
        let known = shapes::at(bytes, finding.range.start)
            .or_else(|| token_parts::at(bytes, finding.range.start));
        let kind = known.filter(|known| known.range == finding.range).map(|known| known.kind);
        Some(self.take(Finding { kind: kind.unwrap_or(finding.kind), ..finding }))
    }

    /// Searches what only a colon separates.
    fn colon(&self, at: usize) -> Option<Finding> {
        let bytes = self.bytes;
        line::pgpass(bytes, at)
            .or_else(|| hashes::windows(bytes, at))
            .or_else(|| jwk::private_member(bytes, at))
            .or_else(|| line::lettered(bytes, at))
            .or_else(|| line::credentials(bytes, at))
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
        let escaped = start > 0 && bytes[start - 1] == b'\\' && at == start + 1;
        if at > start && class(bytes[at - 1]) & (WORD | BASE64) != 0 && !escaped {
            return None;
        }
        if let Some(range) = encoded::key_body(bytes, at) {
            return Some(self.take(Finding { range, kind: "private-key" }));
        }
        let stop = token_end(bytes, at);
        if let Some(kind) = encoded_secret(&bytes[at..stop], self.depth) {
            return Some(self.take(Finding { range: at..stop, kind }));
        }
        if at < self.quiet || end - at < 20 {
            return None;
        }
        if !stray_secret(&bytes[at..stop]) || is_public(bytes, at, stop) {
            return None;
        }
        Some(self.take(Finding { range: at..stop, kind: "high-entropy" }))
    }
}

/// Returns the kind of the secret in a token that is base64 of text.
fn encoded_secret(token: &[u8], depth: Depth<'_>) -> Option<&'static str> {
    let encodings = depth.encodings.checked_sub(1)?;
    let text = encoded::decode_text(token).filter(|_| token.len() >= MIN_SHAPE_BYTES)?;
    Some(scan_to(&text, Depth { encodings, ..depth }).first()?.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    fn searched_bytes(text: &str) -> usize {
        let searched_bytes = Cell::new(0);
        scan_to(text, Depth { encodings: MAX_ENCODINGS, searched_bytes: &searched_bytes });
        searched_bytes.get()
    }

    #[test]
    fn nested_encodings_take_bounded_work() {
        let secret = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
        let twice = STANDARD.encode(format!("token {}", STANDARD.encode(&secret)));
        assert_eq!(scan(&twice).len(), 1);

        let mut nested = "just a few words".to_owned();
        while nested.len() < 64 << 10 {
            nested = format!("{} %41", STANDARD.encode(nested));
        }
        let flat = format!("{} %41", "word ".repeat(nested.len() / 5));
        let (nested, flat) = (searched_bytes(&nested), searched_bytes(&flat));
        // Each level is three quarters of the one around it, and is searched twice.
        assert!(nested <= 6 * flat, "{nested} bytes, {flat} without encodings");
    }
}
