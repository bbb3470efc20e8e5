//! Finds tokens of known shapes.

use super::bytes::{ALNUM, class_at, run_end_within};
use super::entropy::{distinct, look, random};
use super::finding::Finding;
use super::shape_table::{Proof, SHAPES, Shape};
use super::values::placeholder;

/// The shapes by their first byte: those of byte `b` are
/// `ORDER[STARTS[b]..STARTS[b + 1]]`.
struct Index {
    starts: [u16; 257],
    order: [u16; SHAPES.len()],
}

const INDEX: &Index = &index();

const fn index() -> Index {
    let mut index = Index { starts: [0; 257], order: [0; SHAPES.len()] };
    let mut filled: usize = 0;
    let mut byte = 0;
    while byte < 256 {
        index.starts[byte] = filled as u16;
        let mut at = 0;
        while at < SHAPES.len() {
            if SHAPES[at].prefix.as_bytes()[0] as usize == byte {
                index.order[filled] = at as u16;
                filled += 1;
            }
            at += 1;
        }
        byte += 1;
    }
    index.starts[256] = filled as u16;
    index
}

/// For each first byte, the second bytes of the shapes that begin with it, as bits: a look-up that spares nearly all
/// positions the comparison.
const SECONDS: &[u128; 128] = &seconds();

const fn seconds() -> [u128; 128] {
    let mut table = [0; 128];
    let mut at = 0;
    while at < SHAPES.len() {
        let prefix = SHAPES[at].prefix.as_bytes();
        table[prefix[0] as usize] |= 1 << prefix[1];
        at += 1;
    }
    table
}

/// Returns the secret of a known shape that begins at this position.
pub fn at(bytes: &[u8], from: usize) -> Option<Finding> {
    let first = bytes[from] as usize;
    let second = *bytes.get(from + 1)?;
    if first >= 128 || second >= 128 || SECONDS[first] >> second & 1 == 0 {
        return None;
    }
    let candidates = INDEX.starts[first] as usize..INDEX.starts[first + 1] as usize;
    INDEX.order[candidates].iter().find_map(|&shape| SHAPES[shape as usize].fits(bytes, from))
}

/// Returns whether a text begins with a known prefix and some of what follows it.
pub fn has_prefix(text: &[u8]) -> bool {
    let Some(&first) = text.first() else { return false };
    let candidates =
        INDEX.starts[first as usize] as usize..INDEX.starts[first as usize + 1] as usize;
    INDEX.order[candidates].iter().any(|&shape| {
        let prefix = SHAPES[shape as usize].prefix.as_bytes();
        prefix.len() >= 3 && text.len() > prefix.len() && text.starts_with(prefix)
    })
}

impl Shape {
    #[inline]
    fn fits(&self, bytes: &[u8], from: usize) -> Option<Finding> {
        if !bytes[from..].starts_with(self.prefix.as_bytes()) {
            return None;
        }
        let start = from + self.prefix.len();
        let mut end = run_end_within(bytes, start, self.set, self.most + 8);
        // A full stop or a dash at the end belongs to the sentence, not to the token.
        while end > start && !ends_token(bytes[end - 1]) {
            end -= 1;
        }
        let fits = end - start >= self.least
            && end - start <= self.most
            && class_at(bytes, end) & ALNUM == 0
            && self.proven(&bytes[start..end]);
        let range = if self.keep { start..end } else { from..end };
        fits.then_some(Finding { range, kind: self.kind })
    }

    fn proven(&self, body: &[u8]) -> bool {
        match self.proof {
            Proof::Form => distinct(body) >= 4,
            Proof::Mixed => mixed(body),
            Proof::Random => {
                let seen = look(body);
                seen.upper > 0 && seen.lower > 0 && seen.digits > 0 && random(body)
            }
        }
    }
}

fn ends_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'=' || byte == b'_' || byte == b'-'
}

/// Returns whether the text after a strong prefix is a token rather than a name or a placeholder.
fn mixed(body: &[u8]) -> bool {
    if distinct(body) < 4 || (placeholder(body) && !random(body)) {
        return false;
    }
    let seen = look(body);
    let letters = seen.letters();
    if seen.digits > 0 && letters > 0 {
        return seen.digit_changes >= 2 || seen.odd * 3 >= seen.pairs;
    }
    // Without digits, only uncommon letter pairs distinguish a token from a name; without letters, it
    // is a number.
    letters > 0 && seen.signs * 8 <= seen.length && seen.odd * 4 >= seen.pairs && seen.changes >= 3
}
