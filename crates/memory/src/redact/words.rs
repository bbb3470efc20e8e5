//! One pass over the words of a text: numbers with check digits, rows of words, and words that announce a
//! secret.

use super::bytes::{ALNUM, class};
use super::finding::Finding;
use super::word_runs::WordRuns;
use super::{line, numbers, prose};

/// The classes of a word with characters that are not ASCII.
const NOT_ASCII: u16 = u16::MAX;

/// Finds all secrets that are words or follow words.
pub fn scan(text: &str, found: &mut Vec<Finding>) {
    let bytes = text.as_bytes();
    let mut runs = WordRuns::default();
    let mut at = 0;
    // Up to these positions, numbers and announced secrets are known.
    let (mut numbers_end, mut prose_end) = (0, 0);
    while at < bytes.len() {
        if class(bytes[at]) & ALNUM == 0 && bytes[at] < 128 {
            at += 1;
            continue;
        }
        let start = at;
        let mut seen = 0;
        while at < bytes.len() {
            let kind = class(bytes[at]) & ALNUM;
            if kind == 0 {
                if bytes[at] < 128 {
                    break;
                }
                seen = NOT_ASCII;
            }
            seen |= kind;
            at += 1;
        }
        let word = start..at;
        if start >= numbers_end
            && let Some(finding) = numbers::at(bytes, start)
        {
            numbers_end = finding.range.end;
            found.push(finding);
        }
        if start >= prose_end {
            prose_end = prose::at(text, &word, seen, found);
        }
        if matches!(bytes[start], b'w' | b'h' | b'n' | b's' | b'c' | b'r')
            && let Some(finding) = line::command(bytes, start)
        {
            found.push(finding);
        }
        runs.add(bytes, word, seen, found);
    }
    runs.finish(bytes, found);
}
