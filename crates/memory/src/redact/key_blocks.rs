//! Finds private keys in blocks of lines: those of PEM files, and those of PuTTY.

use std::ops::Range;

use super::bytes::{BASE64, DIGIT, EQUALS, HEX, UPPER, class, find_in, holds, run_end, starts_at};

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

/// Returns the end of a private key in a file of PuTTY.
pub fn putty_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mark = b"Private-MAC: ";
    let limit = (from + 16 * 1024).min(bytes.len());
    let mac = find_in(bytes, from..limit, mark)?;
    Some(run_end(bytes, mac + mark.len(), HEX))
}
