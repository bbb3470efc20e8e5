//! One pass over a text: it runs over everything that cannot be secret at the speed of a table
//! look-up, and stops only at long runs, at signs that assign, and at a few words.

use super::bytes::{
    ALNUM, BASE64, COLON, DASH, EQUALS, WIDE, WORD, class, class_at, line_end, line_start,
    starts_at,
};
use super::entropy::{stray_secret, token_end};
use super::special::Block;
use super::{Finding, assign, line, shapes, special};

/// No known shape is shorter than this.
const LONG: usize = 16;

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
        let short = at - start < LONG && seen & (COLON | EQUALS | DASH) == 0;
        if !short || wordy(bytes[start], at - start) {
            at = scan.run(start, at, seen).max(at);
        }
    }
    let mut found = scan.found;
    found.retain(|finding| {
        text.is_char_boundary(finding.range.start) && text.is_char_boundary(finding.range.end)
    });
    found
}

/// Whether a word of this length and first letter may be one that announces a secret.
fn wordy(first: u8, length: usize) -> bool {
    matches!((first, length), (b'B' | b'b', 6) | (b'S', 4) | (b'F', 5) | (b'p', 6 | 8))
}

struct Scan<'a> {
    bytes: &'a [u8],
    found: Vec<Finding>,
    /// Up to here, random text is no secret by itself: it is part of an address.
    quiet: usize,
}

impl Scan<'_> {
    /// Searches a run and returns where to go on, which may lie beyond it.
    fn run(&mut self, start: usize, end: usize, seen: u16) -> usize {
        let bytes = self.bytes;
        if let Some(finding) = line::after_word(bytes, start, end) {
            return self.take(finding);
        }
        let long = end - start >= LONG;
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
                    Some(Block::Secret(range)) => {
                        return self.take(Finding { range, kind: "private-key" });
                    }
                    Some(Block::Public(end)) => return end,
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
                if end - at >= LONG
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

    /// Looks at what a colon or an equals sign separates.
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

    /// Whether a token may start here: no letter or digit precedes it, unless as part of an escape
    /// sequence such as `\n` or `%3D`.
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

    /// A token that nothing announces but its look; returns where the token ends if it is one that
    /// was judged, so that its parts are not judged again.
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
        if !stray_secret(&bytes[at..stop]) || self.harmless(at, stop) {
            return None;
        }
        Some(self.take(Finding { range: at..stop, kind: "high-entropy" }))
    }

    /// Whether what stands around a random token tells that it is public: a digest, a file name, a
    /// piece of embedded data, a key that is made to be shown.
    fn harmless(&self, at: usize, stop: usize) -> bool {
        let bytes = self.bytes;
        let token = &bytes[at..stop];
        const PUBLIC: &[&[u8]] = &[
            b"sha1-",
            b"sha256-",
            b"sha384-",
            b"sha512-",
            b"md5-",
            b"AAAAB3Nza",
            b"AAAAC3Nza",
            b"AAAAE2Vj",
            b"AAAAG",
            b"_ZN",
            b"_R",
            b"_Z",
            b"iVBORw0KGgo",
            b"R0lGOD",
            b"/9j/",
            b"UklGR",
            b"d09GM",
            b"T2dnUw",
            b"MII",
            b"$s",
        ];
        const NAMES: &[&[u8]] = &[
            b"integrity",
            b"checksum",
            b"hash",
            b"digest",
            b"sha",
            b"sha1",
            b"sha256",
            b"sha384",
            b"sha512",
            b"md5",
            b"etag",
            b"fingerprint",
            b"public",
            b"pub",
            b"publickey",
            b"cert",
            b"certificate",
            b"nonce",
            b"commit",
            b"h1",
            b"resolved",
            b"mappings",
            b"signature",
            b"sig",
            b"href",
            b"src",
            b"data",
            b"image",
            b"icon",
            b"id",
            b"uuid",
            b"cursor",
            b"challenge",
            b"slug",
            b"ref",
            b"state",
            b"cache",
        ];
        if PUBLIC.iter().any(|start| token.starts_with(start)) {
            return true;
        }
        let before = at.checked_sub(1).map_or(0, |at| bytes[at]);
        if matches!(before, b'.' | b'/' | b'\\' | b'@' | b'#' | b'$' | b'%' | b'~') {
            return true;
        }
        let next = bytes.get(stop).copied().unwrap_or(0);
        let joined = class_at(bytes, stop + 1) & ALNUM != 0;
        if matches!(next, b'.' | b'~' | b'@' | b':' | b'/') && joined
            || matches!(next, b'(' | b'<' | b'[')
        {
            return true;
        }
        if bytes[..at].ends_with(b"base64,") || bytes[..at].ends_with(b"base64, ") {
            return true;
        }
        let mut sign = at;
        while sign > 0 && at - sign < 4 && b" \"'`".contains(&bytes[sign - 1]) {
            sign -= 1;
        }
        if sign > 0 && b":=".contains(&bytes[sign - 1]) {
            let name = assign::name_before(bytes, sign - 1);
            let name = &bytes[name];
            let last = name.rsplit(|byte| b"_-.".contains(byte)).next().unwrap_or(name);
            if last.ends_with(b"Id") || last.ends_with(b"ID") || last.ends_with(b"Hash") {
                return true;
            }
            if NAMES.iter().any(|known| known.eq_ignore_ascii_case(last)) {
                return true;
            }
        }
        self.embedded(at, stop)
    }

    /// Whether a token is one line of many that together hold embedded data.
    fn embedded(&self, at: usize, stop: usize) -> bool {
        const LEAST: usize = 40;
        const REACH: usize = 200;
        if stop - at < LEAST {
            return false;
        }
        let bytes = self.bytes;
        let start = line_start(bytes, at, REACH);
        let before = line_start(bytes, start.saturating_sub(1), REACH);
        let end = line_end(bytes, stop, REACH);
        let after = line_end(bytes, end + 1, REACH);
        let encoded = |line: &[u8]| {
            let run = line.split(|&byte| class(byte) & (BASE64 | EQUALS) == 0);
            run.map(<[u8]>::len).max().unwrap_or(0) >= LEAST
        };
        encoded(&bytes[before..start]) || encoded(bytes.get(end + 1..after).unwrap_or_default())
    }
}
