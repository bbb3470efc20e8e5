//! Finds numbers of cards, bank accounts and people. Check digits distinguish them from other numbers.

use super::bytes::{ALNUM, DIGIT, LOWER, UPPER, class, class_at, holds};
use super::entropy::distinct;
use super::finding::Finding;

/// Returns the number that begins with the word at `from`.
pub fn at(bytes: &[u8], from: usize) -> Option<Finding> {
    match class(bytes[from]) & ALNUM {
        DIGIT => card(bytes, from).or_else(|| social_security(bytes, from)),
        UPPER | LOWER => bank_account(bytes, from),
        _ => None,
    }
}

/// Returns whether a number that begins at `from` is part of something longer: a decimal, a path, a
/// version, a longer group.
fn is_joined_before(bytes: &[u8], from: usize) -> bool {
    let before = |back: usize| from.checked_sub(back).map_or(0, |at| bytes[at]);
    match before(1) {
        b'.' | b'_' | b'/' | b'+' | b'#' | b'$' => true,
        b'-' | b' ' => class(before(2)) & DIGIT != 0,
        _ => false,
    }
}

fn is_joined_after(bytes: &[u8], end: usize) -> bool {
    let next = bytes.get(end).copied().unwrap_or(0);
    let then = class_at(bytes, end + 1);
    class(next) & ALNUM != 0
        || next == b'_'
        || matches!(next, b'.' | b'/') && then & ALNUM != 0
        || matches!(next, b'-' | b' ') && then & DIGIT != 0
}

/// A range of the first four digits, and the lengths of the numbers that begin so.
struct Brand {
    first: std::ops::RangeInclusive<u32>,
    lengths: &'static [usize],
}

const fn brand(first: std::ops::RangeInclusive<u32>, lengths: &'static [usize]) -> Brand {
    Brand { first, lengths }
}

/// The ranges that the large schemes issue.
const BRANDS: &[Brand] = &[
    brand(4000..=4999, &[16]),
    brand(5100..=5599, &[16]),
    brand(2221..=2720, &[16]),
    brand(3400..=3499, &[15]),
    brand(3700..=3799, &[15]),
    brand(6011..=6011, &[16]),
    brand(6440..=6599, &[16]),
    brand(3528..=3589, &[16]),
    brand(3000..=3059, &[14]),
    brand(3600..=3699, &[14]),
    brand(3800..=3999, &[14]),
    brand(2200..=2204, &[16]),
    brand(6200..=6299, &[16, 17, 18, 19]),
];

/// Returns the number of a payment card, whole or in groups of at least two digits.
fn card(bytes: &[u8], from: usize) -> Option<Finding> {
    const MAX_DIGITS: usize = 19;
    let mut digits = [0u8; MAX_DIGITS];
    let mut count = 0;
    let mut at = from;
    let mut separator = 0;
    let mut group = 0;
    while let Some(&byte) = bytes.get(at) {
        if class(byte) & DIGIT != 0 {
            *digits.get_mut(count)? = byte - b'0';
            count += 1;
            group += 1;
        } else if matches!(byte, b' ' | b'-' | b'.')
            && (separator == 0 || separator == byte)
            && group >= 4
            && class_at(bytes, at + 1) & DIGIT != 0
        {
            separator = byte;
            group = 0;
        } else {
            break;
        }
        at += 1;
    }
    let has_short_group = separator != 0 && group < 4;
    if count < 14 || has_short_group || is_joined_before(bytes, from) || is_joined_after(bytes, at)
    {
        return None;
    }
    let digits = &digits[..count];
    let first = digits[..4].iter().fold(0, |sum, &digit| sum * 10 + u32::from(digit));
    let is_issued =
        BRANDS.iter().any(|brand| brand.first.contains(&first) && brand.lengths.contains(&count));
    (is_issued && distinct(digits) >= 2 && luhn(digits))
        .then_some(Finding { range: from..at, kind: "card-number" })
}

/// Returns whether the last digit is the check digit that ISO/IEC 7812 prescribes.
fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(index, &digit)| match (index % 2, u32::from(digit)) {
            (0, digit) => digit,
            (_, digit) if digit < 5 => digit * 2,
            (_, digit) => digit * 2 - 9,
        })
        .sum();
    sum.is_multiple_of(10)
}

/// The lengths of the account numbers of each country (ISO 13616).
const IBAN_LENGTHS: &[(&[u8; 2], usize)] = &[
    (b"AD", 24),
    (b"AE", 23),
    (b"AL", 28),
    (b"AT", 20),
    (b"AZ", 28),
    (b"BA", 20),
    (b"BE", 16),
    (b"BG", 22),
    (b"BH", 22),
    (b"BR", 29),
    (b"BY", 28),
    (b"CH", 21),
    (b"CR", 22),
    (b"CY", 28),
    (b"CZ", 24),
    (b"DE", 22),
    (b"DK", 18),
    (b"DO", 28),
    (b"EE", 20),
    (b"EG", 29),
    (b"ES", 24),
    (b"FI", 18),
    (b"FO", 18),
    (b"FR", 27),
    (b"GB", 22),
    (b"GE", 22),
    (b"GI", 23),
    (b"GL", 18),
    (b"GR", 27),
    (b"GT", 28),
    (b"HR", 21),
    (b"HU", 28),
    (b"IE", 22),
    (b"IL", 23),
    (b"IQ", 23),
    (b"IS", 26),
    (b"IT", 27),
    (b"JO", 30),
    (b"KW", 30),
    (b"KZ", 20),
    (b"LB", 28),
    (b"LC", 32),
    (b"LI", 21),
    (b"LT", 20),
    (b"LU", 20),
    (b"LV", 21),
    (b"MC", 27),
    (b"MD", 24),
    (b"ME", 22),
    (b"MK", 19),
    (b"MR", 27),
    (b"MT", 31),
    (b"MU", 30),
    (b"NL", 18),
    (b"NO", 15),
    (b"PK", 24),
    (b"PL", 28),
    (b"PS", 29),
    (b"PT", 25),
    (b"QA", 29),
    (b"RO", 24),
    (b"RS", 22),
    (b"SA", 24),
    (b"SC", 31),
    (b"SE", 24),
    (b"SI", 19),
    (b"SK", 24),
    (b"SM", 27),
    (b"ST", 25),
    (b"SV", 28),
    (b"TL", 23),
    (b"TN", 24),
    (b"TR", 26),
    (b"UA", 29),
    (b"VA", 22),
    (b"VG", 24),
    (b"XK", 20),
];

/// Returns an international bank account number, whole or in groups.
fn bank_account(bytes: &[u8], from: usize) -> Option<Finding> {
    let country = bytes.get(from..from + 2)?;
    if class_at(bytes, from + 2) & DIGIT == 0 || class_at(bytes, from + 3) & DIGIT == 0 {
        return None;
    }
    let (_, length) = IBAN_LENGTHS.iter().find(|(known, _)| known.eq_ignore_ascii_case(country))?;
    let mut remainder = 0u32;
    let mut first = 0u32;
    let mut at = from;
    let mut count = 0;
    while count < *length {
        let byte = *bytes.get(at)?;
        at += 1;
        let value = match byte {
            b'0'..=b'9' => u32::from(byte - b'0'),
            b'A'..=b'Z' => u32::from(byte - b'A') + 10,
            b'a'..=b'z' => u32::from(byte - b'a') + 10,
            b' ' | b'-' if count >= 4 && class_at(bytes, at) & ALNUM != 0 => continue,
            _ => return None,
        };
        let (sum, base) = if count < 4 { (&mut first, 97 * 97) } else { (&mut remainder, 97) };
        let shift = if value < 10 { 10 } else { 100 };
        *sum = if base == 97 { (*sum * shift + value) % 97 } else { *sum * shift + value };
        count += 1;
    }
    // The country and the check digits, six digits in all, count as the last ones.
    let checked = (remainder * (1_000_000 % 97) + first) % 97 == 1;
    (checked && class_at(bytes, at) & ALNUM == 0)
        .then_some(Finding { range: from..at, kind: "bank-account" })
}

/// Returns a social security number of the United States, `AAA-GG-SSSS`, if it can have been issued.
fn social_security(bytes: &[u8], from: usize) -> Option<Finding> {
    const FORM: &[u8] = b"ddd-dd-dddd";
    const MAX_REACH_BYTES: usize = 40;
    let text = bytes.get(from..from + FORM.len())?;
    let fits = |(&byte, &form): (&u8, &u8)| match form {
        b'd' => class(byte) & DIGIT != 0,
        _ => matches!(byte, b'-' | b' '),
    };
    if !text.iter().zip(FORM).all(fits) {
        return None;
    }
    let joined = is_joined_before(bytes, from) || is_joined_after(bytes, from + FORM.len());
    // With blanks it must be called so.
    let before = &bytes[from.saturating_sub(MAX_REACH_BYTES)..from];
    let is_named = holds(before, b"ssn") || holds(before, b"social security");
    if (text[3] != b'-' || text[6] != b'-') && !is_named {
        return None;
    }
    let is_issued = &text[..3] != b"000"
        && &text[..3] != b"666"
        && text[0] != b'9'
        && &text[4..6] != b"00"
        && &text[7..] != b"0000";
    (is_issued && !joined && class_at(bytes, from + FORM.len()) & ALNUM == 0)
        .then_some(Finding { range: from..from + FORM.len(), kind: "social-security-number" })
}
