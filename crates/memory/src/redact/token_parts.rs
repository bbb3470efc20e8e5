//! Finds tokens that are known by their parts and lengths, rather than by a prefix alone.

use super::bytes::{
    ALNUM, DIGIT, DOT, HEX, SLASH, TILDE, WORD, all, class_at, run_end, run_end_within, starts_at,
};
use super::entropy::{look, random};
use super::finding::Finding;
use super::key_blocks::putty_end;

/// Returns the secret in several parts that begins at `from`.
pub fn at(bytes: &[u8], from: usize) -> Option<Finding> {
    let found = |end: Option<usize>, kind| Some(Finding { range: from..end?, kind });
    let first = bytes[from];
    match first {
        b'e' if starts_at(bytes, from, b"eyJ") => found(json_web_token(bytes, from), "jwt"),
        b'S' if starts_at(bytes, from, b"SG.") => {
            let end = parts(bytes, from + 3, &[(WORD, 16, 32), (WORD, 16, 64)]);
            found(end, "sendgrid-key")
        }
        b'p' if starts_at(bytes, from, b"pat") => {
            let end = parts(bytes, from, &[(ALNUM, 17, 17), (HEX, 64, 64)]);
            found(end, "airtable-token")
        }
        b'p' | b's' | b'c' => found(client_secret(bytes, from), "stripe-secret"),
        b'P' if starts_at(bytes, from, b"PuTTY-User-Key-File-") => {
            found(putty_end(bytes, from), "private-key")
        }
        b'M' | b'N' | b'O' => {
            let end = parts(bytes, from, &[(WORD, 23, 28), (WORD, 6, 7), (WORD, 27, 45)]);
            let end = end.filter(|&end| random(&bytes[from..run_end(&bytes[..end], from, WORD)]));
            found(end, "discord-token")
        }
        b'0'..=b'9' => {
            let numbered = numbered(bytes, from);
            if numbered.is_some() {
                numbered
            } else {
                found(data_center(bytes, from), "mailchimp-key")
            }
        }
        b'a'..=b'f' => found(data_center(bytes, from), "mailchimp-key"),
        _ => None,
    }
    .or_else(|| found(terraform(bytes, from), "terraform-token"))
    .or_else(|| found(azure_client(bytes, from), "azure-secret"))
}

/// Returns the end of parts of these classes and lengths, joined by dots.
fn parts(bytes: &[u8], from: usize, wanted: &[(u16, usize, usize)]) -> Option<usize> {
    let mut at = from;
    for (index, &(set, least, most)) in wanted.iter().enumerate() {
        if index > 0 {
            at = if bytes.get(at) == Some(&b'.') { at + 1 } else { return None };
        }
        let end = run_end_within(bytes, at, set, most + 1);
        if end - at < least || end - at > most {
            return None;
        }
        at = end;
    }
    (class_at(bytes, at) & ALNUM == 0).then_some(at)
}

/// Returns the end of the client secret of a payment at Stripe: its public identifier, `_secret_`, and a token.
fn client_secret(bytes: &[u8], from: usize) -> Option<usize> {
    const MARK: &[u8] = b"_secret_";
    const PREFIXES: &[&[u8]] = &[b"pi_", b"seti_", b"src_", b"cs_live_", b"cs_test_", b"cuss_"];
    let prefix = PREFIXES.iter().find(|prefix| starts_at(bytes, from, prefix))?;
    let id = run_end_within(bytes, from + prefix.len(), ALNUM, 80);
    if !starts_at(bytes, id, MARK) {
        return None;
    }
    let end = run_end_within(bytes, id + MARK.len(), ALNUM, 80);
    (end - id - MARK.len() >= 16).then_some(end)
}

/// Returns the end of a signed or encrypted JSON web token: three to five parts, the first being JSON.
fn json_web_token(bytes: &[u8], from: usize) -> Option<usize> {
    const MAX_HEADER_BYTES: usize = 4096;
    let header = run_end_within(bytes, from, WORD, MAX_HEADER_BYTES);
    if header - from < 15 || bytes.get(header) != Some(&b'.') {
        return None;
    }
    let body = run_end_within(bytes, header + 1, WORD, 10) - header - 1;
    let fits = body >= 10 && look(&bytes[from..header]).changes >= 4;
    // A full stop at the end belongs to the sentence.
    fits.then(|| run_end(bytes, header, WORD | DOT))
        .map(|end| if bytes[end - 1] == b'.' { end - 1 } else { end })
}

/// Returns a token of Telegram (`123456789:token`) or Asana (`1/123456789:token`).
fn numbered(bytes: &[u8], from: usize) -> Option<Finding> {
    let mut colon = run_end(bytes, from, DIGIT);
    let asana = bytes.get(colon) == Some(&b'/');
    if asana {
        colon = run_end_within(bytes, colon + 1, DIGIT | SLASH, 64);
    } else if !(8..=10).contains(&(colon - from)) {
        return None;
    }
    if bytes.get(colon) != Some(&b':') {
        return None;
    }
    let set = if asana { HEX } else { WORD };
    let end = run_end(bytes, colon + 1, set);
    let length = if asana { 32 } else { 35 };
    let fits = end - colon - 1 == length
        && colon - from >= 8
        && class_at(bytes, end) & ALNUM == 0
        && (asana || look(&bytes[colon + 1..end]).changes >= 6);
    let kind = if asana { "asana-token" } else { "telegram-token" };
    fits.then_some(Finding { range: from..end, kind })
}

/// Returns the end of a key of Mailchimp: 32 hex digits and a data center such as `-us12`; or of one of Mailgun: 32, 8
/// and 8 hex digits.
fn data_center(bytes: &[u8], from: usize) -> Option<usize> {
    let hex = run_end_within(bytes, from, HEX, 33);
    if hex - from == 32 && bytes.get(hex) == Some(&b'-') {
        let middle = run_end_within(bytes, hex + 1, HEX, 9);
        let end = run_end_within(bytes, middle + 1, HEX, 9);
        let is_mailgun = middle == hex + 9 && bytes.get(middle) == Some(&b'-') && end == middle + 9;
        if is_mailgun && class_at(bytes, end) & WORD == 0 {
            return Some(end);
        }
    }
    if hex - from != 32 || !starts_at(bytes, hex, b"-us") {
        return None;
    }
    let end = run_end(bytes, hex + 3, DIGIT);
    ((1..=2).contains(&(end - hex - 3)) && class_at(bytes, end) & WORD == 0).then_some(end)
}

fn terraform(bytes: &[u8], from: usize) -> Option<usize> {
    const MARK: &[u8] = b".atlasv1.";
    // A cheap check of the only position of the mark spares most tokens the scan.
    if !starts_at(bytes, from + 14, MARK) || !all(&bytes[from..from + 14], ALNUM) {
        return None;
    }
    let end = run_end(bytes, from + 14 + MARK.len(), WORD);
    (end - from >= 60).then_some(end)
}

/// Returns the end of a client secret of Azure: three characters, a digit, `Q~` and 31 to 34 more.
fn azure_client(bytes: &[u8], from: usize) -> Option<usize> {
    let set = WORD | DOT | TILDE;
    if !starts_at(bytes, from + 4, b"Q~") || class_at(bytes, from + 3) & DIGIT == 0 {
        return None;
    }
    let mut end = run_end_within(bytes, from, set, 48);
    end -= usize::from(bytes[end - 1] == b'.');
    (all(&bytes[from..from + 3], set) && (37..=40).contains(&(end - from))).then_some(end)
}
