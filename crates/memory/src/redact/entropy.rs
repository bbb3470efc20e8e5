//! Distinguishes random tokens from names, words and digests.
//!
//! Shannon entropy alone cannot do that: a long identifier has as much of it as a short token. Random
//! text differs in how often the class of its characters changes, and in how many of its letter pairs
//! neither prose nor code uses.

use super::bytes::{
    ALNUM, BASE64, DIGIT, EQUALS, HEX, LOWER, UPPER, WORD, all, class, class_at, run_end,
};
use super::word_list::word_list;

const IDENTIFIER_PREFIXES: &[&[u8]] = word_list!("data/identifier_prefixes.txt");

/// For each letter, the letters that commonly follow it in prose and code (94 % of all pairs).
const FOLLOWERS: &[&[u8]; 26] = &[
    b"bcdfgiklmnprstuvxy",
    b"aceilorsu",
    b"acehiklmoprstu",
    b"adeilorstu",
    b"abcdefgilmnopqrstvwxy",
    b"adefilorstu",
    b"aehilnorsu",
    b"aeiort",
    b"abcdefglmnoprstvxz",
    b"aosu",
    b"eis",
    b"adeilopstuy",
    b"abeimopstu",
    b"acdefgiklnopstuv",
    b"abcdfgiklmnoprstuvw",
    b"acdehiloprstuy",
    b"u",
    b"acdefgiklmnoprstuvy",
    b"aceghiklmnoprstuy",
    b"acdefhilmoprstuy",
    b"abcdefilmnprst",
    b"aei",
    b"aehinors",
    b"ceipt",
    b"nps",
    b"eio",
];

const COMMON: &[u32; 26] = &common();

const fn common() -> [u32; 26] {
    let mut table = [0; 26];
    let mut letter = 0;
    while letter < 26 {
        let mut at = 0;
        while at < FOLLOWERS[letter].len() {
            table[letter] |= 1 << (FOLLOWERS[letter][at] - b'a');
            at += 1;
        }
        letter += 1;
    }
    table
}

/// The statistics of a token, counted in one pass.
#[derive(Debug, Default, Clone, Copy)]
pub struct Look {
    pub length: usize,
    pub lower: usize,
    pub upper: usize,
    pub digits: usize,
    /// Characters that are neither letters nor digits.
    pub signs: usize,
    /// How often the class changes. A capital before small letters counts as one of them.
    pub changes: usize,
    /// How often a letter follows a digit, or a digit a letter.
    pub digit_changes: usize,
    /// Neighbouring letters, and how many of these pairs are uncommon.
    pub pairs: usize,
    pub odd: usize,
}

impl Look {
    pub fn letters(&self) -> usize {
        self.lower + self.upper
    }
}

pub fn look(token: &[u8]) -> Look {
    let mut seen = Look { length: token.len(), ..Look::default() };
    let mut before = 0u8;
    let mut kind_before = 0;
    for &byte in token {
        let kind = class(byte) & ALNUM;
        match kind {
            LOWER => seen.lower += 1,
            UPPER => seen.upper += 1,
            DIGIT => seen.digits += 1,
            _ => seen.signs += 1,
        }
        if seen.lower + seen.upper + seen.digits + seen.signs > 1 && kind != kind_before {
            seen.changes += 1;
            let letter = LOWER | UPPER;
            if (kind == DIGIT && kind_before & letter != 0)
                || (kind_before == DIGIT && kind & letter != 0)
            {
                seen.digit_changes += 1;
            }
        }
        // A capital after a small letter begins a new word, so that pair says nothing.
        let joined = kind & (LOWER | UPPER) != 0
            && kind_before & (LOWER | UPPER) != 0
            && !(kind == UPPER && kind_before == LOWER);
        if joined {
            let first = before.to_ascii_lowercase() - b'a';
            let second = byte.to_ascii_lowercase() - b'a';
            seen.pairs += 1;
            seen.odd += usize::from(COMMON[first as usize] >> second & 1 == 0);
        }
        before = byte;
        kind_before = kind;
    }
    seen
}

/// Returns how many different bytes a token has.
pub fn distinct(token: &[u8]) -> u32 {
    let mut seen = 0u128;
    for &byte in token {
        seen |= 1 << (byte & 127);
    }
    seen.count_ones()
}

/// Returns whether a token of 16 characters or more is too irregular to be a name. Digests, which are
/// plain hex, are not.
pub fn random(token: &[u8]) -> bool {
    if token.len() < 16 || token.starts_with(b"0x") || hex_and_dashes(token) {
        return false;
    }
    let seen = look(token);
    let few_signs = seen.signs <= 1 + seen.length / 10;
    if !few_signs || (distinct(token) as usize) < seen.length.min(32) / 3 {
        return false;
    }
    if seen.upper >= 2 && seen.lower >= 2 && (seen.digits >= 1 || seen.length >= 32) {
        // Random base62 changes class at 62 % of its places and has 59 % odd pairs.
        let changes = seen.changes * 100 / seen.length;
        let odd = seen.odd * 100 / seen.pairs.max(1);
        let least = if seen.digits < 2 { 100 } else { 80 };
        return changes >= 28 && odd >= 25 && changes + odd >= least;
    }
    let one_case = seen.upper == 0 || seen.lower == 0;
    // Random base36 turns from letter to digit or back at 40 % of its places.
    one_case
        && seen.length >= 28
        && seen.digits >= 4
        && seen.letters() >= 12
        && seen.digit_changes * 100 >= seen.length * 22
        && seen.odd * 100 >= seen.pairs * 30
}

/// Returns whether a token has hex digits only, perhaps after `0x`, like all digests.
pub fn plain_hex(token: &[u8]) -> bool {
    let token = token.strip_prefix(b"0x").unwrap_or(token);
    all(token, HEX)
        || token.iter().all(|&byte| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte))
}

/// Returns whether a token is a UUID or similar, in any case and grouping.
fn hex_and_dashes(token: &[u8]) -> bool {
    token.iter().all(|&byte| byte.is_ascii_hexdigit() || byte == b'-' || byte == b'_')
}

/// Returns whether a token begins with the form of a UUID.
pub fn uuid(token: &[u8]) -> bool {
    let dashes = [8, 13, 18, 23];
    token.len() >= 36
        && token[..36].iter().enumerate().all(|(at, &byte)| {
            if dashes.contains(&at) { byte == b'-' } else { byte.is_ascii_hexdigit() }
        })
        && token[36..].iter().all(|&byte| !byte.is_ascii_alphanumeric())
}

/// Returns the end of the base62, base64 or base64url token that begins at `from`.
pub fn token_end(bytes: &[u8], from: usize) -> usize {
    let end = run_end(bytes, from, WORD | BASE64);
    let padded = run_end(bytes, end, EQUALS);
    if padded - end <= 2 && class_at(bytes, padded) & ALNUM == 0 { padded } else { end }
}

/// Returns whether a token without any context looks like a secret.
pub fn stray_secret(token: &[u8]) -> bool {
    const MAX_TOKEN_BYTES: usize = 128;
    if token.len() < 20 || token.len() > MAX_TOKEN_BYTES {
        return false;
    }
    let core = run_end(token, 0, WORD | BASE64);
    let core = &token[..core];
    let seen = look(core);
    let slashes = core.iter().filter(|&&byte| byte == b'/').count();
    let dashes = core.iter().filter(|&&byte| byte == b'-').count();
    if slashes > 1 + core.len() / 16 || (slashes > 0 && dashes > 0) {
        return false;
    }
    if seen.upper == 0 || seen.lower == 0 {
        return all(core, ALNUM) && seen.upper == 0 && random(core);
    }
    seen.digits >= 1 && random(core) && !named(core) && !encoded_text(core)
}

/// Returns whether a token is a name in parts, or an identifier with the kind of what it identifies:
/// such identifiers fill the logs of every service, and none of them opens anything.
fn named(token: &[u8]) -> bool {
    const MAX_PART_BYTES: usize = 12;
    let mut parts = token.split(|&byte| byte == b'_' || byte == b'-');
    let first = parts.next().unwrap_or_default();
    if first.len() == token.len() {
        return false;
    }
    let rest = &token[first.len() + 1..];
    // Anthropic's identifiers all begin with a version.
    let versioned = first.len() <= 12 && all(first, LOWER) && rest.starts_with(b"01");
    versioned && rest.len() == 24
        || IDENTIFIER_PREFIXES.contains(&first)
        || parts.map(<[u8]>::len).max().unwrap_or(0).max(first.len()) <= MAX_PART_BYTES
}

/// Returns whether a token is base64 of plain text, which is data and not a key.
fn encoded_text(token: &[u8]) -> bool {
    let mut bits = 0u32;
    let mut held = 0;
    for &byte in token {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            _ => 63,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            let decoded = (bits >> held) as u8;
            if !(decoded.is_ascii_graphic() || decoded.is_ascii_whitespace()) {
                return false;
            }
        }
    }
    true
}
