//! Finds numbers of bank accounts without check digits by the words before them.

use super::bytes::{ALNUM, DIGIT, class, class_at, holds, line_start};
use super::entropy::distinct;
use super::finding::Finding;

/// How far a number may be from its name.
const MAX_GAP_BYTES: usize = 24;
const MIN_DIGITS: usize = 7;
const MAX_DIGITS: usize = 18;
/// Words between a name and its number.
const LINKS: &[&[u8]] =
    &[b"is", b"no", b"nr", b"ist", b"lautet", b"est", b"es", b"to", b"number", b"e", b"and"];

/// Returns whether words before `start`, on its line, say that an account is at a bank.
pub fn is_at_bank(bytes: &[u8], start: usize) -> bool {
    const MAX_REACH_BYTES: usize = 80;
    const HINTS: &[&[u8]] =
        &[b"routing", b"sort code", b"ach ", b"blz", b"swift", b"bic ", b"iban"];
    let before = &bytes[line_start(bytes, start, MAX_REACH_BYTES)..start];
    HINTS.iter().any(|hint| holds(before, hint))
}

/// Returns the number after the name of an account number that is at `start..end`.
pub fn after_name(bytes: &[u8], start: usize, end: usize) -> Option<Finding> {
    const MAX_REACH_BYTES: usize = 60;
    let limit = (end + MAX_GAP_BYTES).min(bytes.len());
    let mut at = end;
    while at < limit && class(bytes[at]) & DIGIT == 0 {
        let byte = bytes[at];
        if class(byte) & ALNUM != 0 {
            let stop = (at..limit).find(|&at| class(bytes[at]) & ALNUM == 0)?;
            if !LINKS.iter().any(|link| link.eq_ignore_ascii_case(&bytes[at..stop])) {
                return None;
            }
            at = stop;
            continue;
        }
        if byte < 128 && !b" \t:=#.\"'`(*>|".contains(&byte) {
            return None;
        }
        at += 1;
    }
    let from = at;
    let mut digits = Vec::with_capacity(MAX_DIGITS);
    while let Some(&byte) = bytes.get(at) {
        if class(byte) & DIGIT != 0 {
            digits.push(byte);
        } else if !(matches!(byte, b' ' | b'-') && class_at(bytes, at + 1) & DIGIT != 0) {
            break;
        }
        if digits.len() > MAX_DIGITS {
            return None;
        }
        at += 1;
    }
    let is_joined = class_at(bytes, at) & ALNUM != 0
        || matches!(bytes.get(at), Some(b'.' | b'_')) && class_at(bytes, at + 1) & ALNUM != 0;
    let is_counted = digits.windows(2).all(|pair| pair[1] == pair[0] + 1 || pair[1] == b'0');
    // Cloud providers call identifiers so, which are in every address of a resource.
    let before = &bytes[line_start(bytes, start, MAX_REACH_BYTES)..start];
    let is_cloud = holds(before, b"aws") || holds(before, b"amazon");
    (digits.len() >= MIN_DIGITS && distinct(&digits) >= 4 && !is_joined && !is_counted && !is_cloud)
        .then_some(Finding { range: from..at, kind: "bank-account" })
}

#[cfg(test)]
mod tests {
    use crate::redact::mask;

    #[test]
    fn account_numbers_are_masked_after_their_name() {
        for around in [
            "wire it to account number @, please",
            "Acct No. @",
            "{\"account_number\": \"@\"}",
            "Kontonummer: @",
            "numéro de compte : @",
            "el número de cuenta es @.",
            "numer konta to @",
            "номер счёта @",
            "口座番号は@です",
            "routing 021000021, account @",
        ] {
            let input = around.replace('@', "204 618 7735");
            let expect = around.replace('@', "[secret:bank-account]");
            assert_eq!(mask(&input).text, expect);
        }
    }

    #[test]
    fn other_numbers_are_not_masked() {
        for text in [
            "account number 12345678 is an example",
            "the account number has 10 digits",
            "AWS account number 204618773509",
            "account numbers: 4 of 20461877",
            "order number 2046187735",
        ] {
            assert_eq!(mask(text).text, text);
        }
    }
}
