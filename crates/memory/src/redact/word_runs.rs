//! Finds secrets that are rows of short words: recovery phrases of wallets, secrets of one-time passwords and
//! app passwords in groups of four.

use std::ops::Range;

use sha2::{Digest, Sha256};

use super::bytes::{ALNUM, DIGIT, LOWER, UPPER, class, holds, run_end};
use super::entropy::look;
use super::finding::Finding;
use super::word_list::word_list;

const MNEMONIC_WORDS: &[&[u8]] = word_list!("data/mnemonic_words.txt");
const PHRASE_HINTS: &[&[u8]] = word_list!("data/phrase_hints.txt");
const GROUP_HINTS: &[&[u8]] = word_list!("data/group_hints.txt");

const MIN_PHRASE_WORDS: usize = 12;
/// A longer row is a list of words.
const MAX_PHRASE_WORDS: usize = 40;
const MIN_GROUPS: usize = 4;
const MAX_GROUPS: usize = 16;
/// How far a word that announces a row may be from it.
const MAX_HINT_BYTES: usize = 120;

/// The rows that end with the word before.
#[derive(Default)]
pub struct WordRuns {
    words: WordRun,
    groups: WordRun,
}

impl WordRuns {
    /// Takes the next word of a text, with the classes of its bytes.
    #[inline]
    pub fn add(&mut self, bytes: &[u8], word: Range<usize>, seen: u16, found: &mut Vec<Finding>) {
        let is_letters = seen & !(LOWER | UPPER) == 0;
        if is_letters && word.len() >= 3 && word.len() <= 8 {
            if !self.words.accepts(bytes, word.start, is_word_gap) {
                self.words.take_phrase(bytes, found);
            }
            self.words.add(&word);
        } else if !(seen == DIGIT && word.len() <= 2) {
            // Numbers count the words of a phrase; anything else ends it.
            self.words.take_phrase(bytes, found);
        }
        let is_group = word.len() == 4
            && (seen == LOWER
                || seen == UPPER
                || seen == LOWER | DIGIT
                || seen == UPPER | DIGIT
                || seen == DIGIT);
        if !is_group {
            self.groups.take_groups(bytes, found);
            return;
        }
        if !self.groups.accepts(bytes, word.start, is_group_gap) {
            self.groups.take_groups(bytes, found);
        }
        self.groups.add(&word);
    }

    /// Ends the rows at the end of the text.
    pub fn finish(&mut self, bytes: &[u8], found: &mut Vec<Finding>) {
        self.words.take_phrase(bytes, found);
        self.groups.take_groups(bytes, found);
    }
}

/// Returns whether a gap separates two words of one phrase: blanks, commas, quotes or numbers, without an
/// empty line.
fn is_word_gap(gap: &[u8]) -> bool {
    gap.len() <= 16
        && gap.iter().all(|&byte| class(byte) & DIGIT != 0 || b" \t\r\n,.):\"'|-*".contains(&byte))
        && gap.iter().filter(|&&byte| byte == b'\n').count() <= 1
        && (gap.iter().any(|&byte| class(byte) & DIGIT != 0)
            || !gap.iter().any(|byte| b".):".contains(byte)))
}

fn is_group_gap(gap: &[u8]) -> bool {
    matches!(gap, b" " | b"-" | b"\xc2\xa0")
}

/// Neighbouring words, from the first to the last.
#[derive(Default)]
struct WordRun {
    start: usize,
    end: usize,
    count: usize,
}

impl WordRun {
    #[inline]
    fn accepts(&self, bytes: &[u8], start: usize, is_gap: fn(&[u8]) -> bool) -> bool {
        self.count == 0
            || start == self.end + 1 && bytes[self.end] == b' '
            || is_gap(&bytes[self.end..start])
    }

    #[inline]
    fn add(&mut self, word: &Range<usize>) {
        if self.count == 0 {
            self.start = word.start;
        }
        self.end = word.end;
        self.count += 1;
    }

    /// Ends the row as a phrase.
    #[inline]
    fn take_phrase(&mut self, bytes: &[u8], found: &mut Vec<Finding>) {
        if self.count >= MIN_PHRASE_WORDS {
            find_phrase(bytes, &self.words(bytes), found);
        }
        self.count = 0;
    }

    /// Ends the row as groups of four.
    #[inline]
    fn take_groups(&mut self, bytes: &[u8], found: &mut Vec<Finding>) {
        if (MIN_GROUPS..=MAX_GROUPS).contains(&self.count)
            && let Some(kind) = group_kind(bytes, &(self.start..self.end), &self.words(bytes))
        {
            found.push(Finding { range: self.start..self.end, kind });
        }
        self.count = 0;
    }

    /// Returns the words, without the numbers that count them.
    fn words(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut words = Vec::with_capacity(self.count);
        let mut at = self.start;
        while at < self.end {
            let end = run_end(&bytes[..self.end], at, ALNUM);
            if end - at >= 3 {
                words.push(at..end);
            }
            at = end.max(at) + 1;
        }
        words
    }
}

/// Finds recovery phrases in a row: twelve words or more that are all in the list, in no order. Next to a
/// word that announces a phrase, some words may be of another list.
fn find_phrase(bytes: &[u8], words: &[Range<usize>], found: &mut Vec<Finding>) {
    let is_known: Vec<bool> = words.iter().map(|word| is_mnemonic(&bytes[word.clone()])).collect();
    let mut from = 0;
    while from < words.len() {
        let length = is_known[from..].iter().take_while(|&&known| known).count();
        let row = &words[from..from + length];
        if (MIN_PHRASE_WORDS..=MAX_PHRASE_WORDS).contains(&length) && is_phrase(bytes, row) {
            let range = row[0].start..row[length - 1].end;
            found.push(Finding { range, kind: "recovery-phrase" });
            return;
        }
        from += length.max(1);
    }
    // Text that announces a phrase ends with a colon or a line, which also begins the row.
    let hinted = is_hinted(bytes, words[0].start..words[0].start, PHRASE_HINTS);
    let known = is_known.iter().filter(|&&known| known).count();
    if hinted && words.len() <= 26 && known * 4 >= words.len() * 3 && is_phrase(bytes, words) {
        let range = words[0].start..words[words.len() - 1].end;
        found.push(Finding { range, kind: "recovery-phrase" });
    }
}

fn is_mnemonic(word: &[u8]) -> bool {
    place_in_list(word).is_some()
}

/// Returns the number that a word of a recovery phrase stands for.
fn place_in_list(word: &[u8]) -> Option<usize> {
    let mut lower = [0u8; 8];
    let lower = lower.get_mut(..word.len())?;
    lower.copy_from_slice(word);
    lower.make_ascii_lowercase();
    MNEMONIC_WORDS.binary_search(&&*lower).ok()
}

/// Returns whether words are a recovery phrase as BIP-39 has it: each word stands for eleven bits, and the last bits, one
/// for every three words, are the first ones of the digest of the others.
fn has_checksum(bytes: &[u8], words: &[Range<usize>]) -> bool {
    if !matches!(words.len(), 12 | 15 | 18 | 21 | 24) {
        return false;
    }
    let mut bits = Vec::with_capacity(words.len() * 11);
    for word in words {
        let Some(place) = place_in_list(&bytes[word.clone()]) else { return false };
        bits.extend((0..11).rev().map(|bit| place >> bit & 1 == 1));
    }
    let (entropy, checksum) = bits.split_at(bits.len() - words.len() / 3);
    let byte = |bits: &[bool]| bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
    let entropy: Vec<u8> = entropy.chunks(8).map(byte).collect();
    let digest = Sha256::digest(&entropy)[0];
    byte(checksum) == digest >> (8 - checksum.len())
}

/// Returns whether words are chosen at random: their checksum is right, or they are not in alphabetical order, as in a
/// list, and few of them occur twice.
fn is_phrase(bytes: &[u8], words: &[Range<usize>]) -> bool {
    if has_checksum(bytes, words) {
        return true;
    }
    let is_sorted = words.windows(2).all(|pair| bytes[pair[0].clone()] <= bytes[pair[1].clone()]);
    let mut different: Vec<&[u8]> = words.iter().map(|word| &bytes[word.clone()]).collect();
    different.sort_unstable();
    different.dedup();
    // One well-known phrase for tests consists of one word and another.
    !is_sorted && different.len() * 3 >= words.len() * 2
}

/// Returns the kind of secret that groups of four are, if they are one.
fn group_kind(bytes: &[u8], range: &Range<usize>, groups: &[Range<usize>]) -> Option<&'static str> {
    let joined: Vec<u8> = groups.iter().flat_map(|group| &bytes[group.clone()]).copied().collect();
    let seen = look(&joined);
    if seen.letters() == 0 || seen.lower > 0 && seen.upper > 0 {
        return None;
    }
    let hinted = is_hinted(bytes, range.clone(), GROUP_HINTS);
    if seen.digits == 0 {
        // Sixteen small letters are an app password of Google, unless they are words.
        let odd: usize = groups.iter().map(|group| look(&bytes[group.clone()]).odd).sum();
        let is_strange = odd * 100 >= groups.len() * 3 * if hinted { 25 } else { 50 };
        let is_app_password = groups.len() == 4 && seen.upper == 0;
        let is_secret = seen.upper > 0 && hinted && groups.len() >= 4;
        return match (is_strange, is_app_password, is_secret) {
            (true, true, _) => Some("app-password"),
            (true, _, true) => Some("one-time-password-secret"),
            _ => None,
        };
    }
    let is_base32 = joined
        .iter()
        .all(|&byte| class(byte) & (LOWER | UPPER) != 0 || (b'2'..=b'7').contains(&byte));
    let is_hex = joined.iter().all(u8::is_ascii_hexdigit);
    // A word with a number at its end is a name.
    let is_mixed = |group: &Range<usize>| {
        let group = &bytes[group.clone()];
        look(group).digit_changes > 0
            && (class(group[3]) & DIGIT == 0 || class(group[0]) & DIGIT != 0)
            || look(group).digit_changes > 1
    };
    let mixed = groups.iter().filter(|group| is_mixed(group)).count();
    (is_base32 && !is_hex && mixed >= if hinted { 1 } else { 2 })
        .then_some("one-time-password-secret")
}

/// Returns whether a hint is shortly before or after a row.
fn is_hinted(bytes: &[u8], range: Range<usize>, hints: &[&[u8]]) -> bool {
    let before = &bytes[range.start.saturating_sub(MAX_HINT_BYTES)..range.start];
    let after = &bytes[range.end..(range.end + MAX_HINT_BYTES / 2).min(bytes.len())];
    hints.iter().any(|hint| holds(before, hint) || holds(after, hint))
}
