//! Finds secrets that have no prefix of their own: key blocks, tokens in parts, URLs.

use std::ops::Range;

use super::bytes::{
    ALNUM, BASE64, DIGIT, DOT, EQUALS, HEX, SLASH, TILDE, UPPER, WORD, all, class, class_at,
    find_in, holds, run_end, run_end_within, starts_at,
};
use super::entropy::{look, random};
use super::finding::Finding;
use super::values::{is_common_value, placeholder};

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

/// A block that begins with dashes. A private key ends with its last line or, if it was cut off, where
/// its text no longer looks like a key. Other blocks are skipped as a whole, since certificates and
/// public keys are full of random text that is not secret.
pub enum PemBlock {
    Secret(Range<usize>),
    Public(usize),
}

pub const BEGIN: &[u8] = b"-----BEGIN ";

pub fn block(bytes: &[u8], from: usize) -> Option<PemBlock> {
    const MAX_LABEL_BYTES: usize = 60;
    const MAX_BLOCK_BYTES: usize = 64 * 1024;
    let label = from + BEGIN.len();
    let limit = (label + MAX_LABEL_BYTES).min(bytes.len());
    let label_end = find_in(bytes, label..limit, b"-----").filter(|&end| end > label)?;
    if !bytes[label..label_end].iter().all(|&b| class(b) & (UPPER | DIGIT) != 0 || b == b' ') {
        return None;
    }
    let secret = holds(&bytes[label..label_end], b"private key");
    let body = label_end + 5;
    let window = body..(body + MAX_BLOCK_BYTES).min(bytes.len());
    let dashes = find_in(bytes, window.clone(), b"-----");
    let next = dashes.filter(|&at| starts_at(bytes, at, b"-----END "));
    let closed = next.and_then(|end| {
        let rest = end + 9;
        let limit = (rest + MAX_LABEL_BYTES).min(bytes.len());
        (bytes.get(rest..rest + label_end - label) == Some(&bytes[label..label_end]))
            .then(|| find_in(bytes, rest..limit, b"-----").map(|at| at + 5))?
    });
    // A block that was cut off ends before the next dashes, or at the maximum length.
    let limit = dashes.unwrap_or(window.end);
    let end = closed.unwrap_or_else(|| key_text_end(&bytes[..limit], body));
    // A first line alone, as in code that searches for one, contains no key.
    let holds_key = bytes[body..end].iter().filter(|&&b| class(b) & BASE64 != 0).count() >= 40
        && longest_run(&bytes[body..end]) >= 20;
    match (secret, holds_key) {
        (_, false) => None,
        (true, true) => Some(PemBlock::Secret(from..end)),
        (false, true) => Some(PemBlock::Public(end)),
    }
}

fn longest_run(bytes: &[u8]) -> usize {
    bytes.split(|&byte| class(byte) & (BASE64 | EQUALS) == 0).map(<[u8]>::len).max().unwrap_or(0)
}

/// Returns where the base64 lines of a block end. Its line ends are real or written `\n`.
fn key_text_end(bytes: &[u8], from: usize) -> usize {
    let mut end = from;
    let mut at = from;
    while at < bytes.len() {
        let run = run_end(bytes, at, BASE64 | EQUALS);
        if run - at >= 16 {
            end = run;
        } else if run == at {
            match bytes[at] {
                b'\n' | b'\r' | b'\\' | b' ' | b'\t' | b'"' | b'\'' | b'+' | b',' | b':' | b'-' => {
                }
                _ => break,
            }
        } else if run - at > 1 && end > from {
            // A short last line belongs to the key if a longer one precedes it.
            let padded = bytes[run - 1] == b'=' || bytes[at] == b'n' || bytes[at] == b'r';
            if !padded {
                break;
            }
            end = run;
        }
        at = run.max(at + 1);
    }
    end
}

fn putty_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mark = b"Private-MAC: ";
    let limit = (from + 16 * 1024).min(bytes.len());
    let mac = find_in(bytes, from..limit, mark)?;
    Some(run_end(bytes, mac + mark.len(), HEX))
}

/// Returns the password in the URL whose `://` is at `colon`, and the end of the URL.
pub fn address(bytes: &[u8], colon: usize) -> (Option<Finding>, usize) {
    const MAX_URL_BYTES: usize = 2048;
    let start = colon + 3;
    let limit = (start + MAX_URL_BYTES).min(bytes.len());
    let stops =
        |byte: u8| byte <= b' ' || matches!(byte, b'"' | b'\'' | b'<' | b'>' | b'`' | b'\\');
    let end = (start..limit).find(|&at| stops(bytes[at])).unwrap_or(limit);
    let host_end = (start..end).find(|&at| matches!(bytes[at], b'/' | b'?')).unwrap_or(end);
    let Some(sign) = bytes[start..host_end].iter().rposition(|&byte| byte == b'@') else {
        return (None, end);
    };
    let sign = start + sign;
    let Some(split) = bytes[start..sign].iter().position(|&byte| byte == b':') else {
        return (None, end);
    };
    let user = &bytes[start..start + split];
    let password = start + split + 1..sign;
    let text = &bytes[password.clone()];
    let known = text.len() < 3
        || text == user
        || is_common_value(text)
        || (placeholder(text) && !random(text))
        || text.iter().any(|byte| b"{}$()[]|*,".contains(byte)) && look(text).digits == 0
        || text.starts_with(b"$")
        || text.starts_with(b"{")
        || text.starts_with(b"%");
    let finding = (!known).then_some(Finding { range: password, kind: "url-password" });
    (finding, end)
}
