//! Finds secrets without a form of their own next to the public part that belongs to them.

use super::bytes::{ALNUM, HEX, UNDERSCORE, all, class, class_at};
use super::entropy::distinct;
use super::finding::Finding;

/// How far a secret may be from its public part.
const MAX_REACH_BYTES: usize = 200;
const TOKEN_BYTES: usize = 32;

/// Finds the secrets next to what was found: an account of Twilio and its token of 32 hex digits.
pub fn scan(bytes: &[u8], found: &mut Vec<Finding>) {
    let accounts: Vec<Finding> =
        found.iter().filter(|finding| finding.kind == "twilio-key").cloned().collect();
    let mut from = 0;
    for account in accounts {
        let end = (account.range.end + MAX_REACH_BYTES).min(bytes.len());
        // Windows that overlap are searched once.
        let mut at = account.range.start.saturating_sub(MAX_REACH_BYTES).max(from);
        while at < end {
            let stop = token_end(bytes, at, end);
            if stop - at == TOKEN_BYTES
                && all(&bytes[at..stop], HEX)
                && distinct(&bytes[at..stop]) >= 6
                && at.checked_sub(1).is_none_or(|before| class(bytes[before]) & ALNUM == 0)
                && class_at(bytes, stop) & ALNUM == 0
            {
                found.push(Finding { range: at..stop, kind: "twilio-token" });
            }
            at = stop.max(at + 1);
        }
        from = end;
    }
}

fn token_end(bytes: &[u8], from: usize, limit: usize) -> usize {
    let end = (limit + TOKEN_BYTES + 1).min(bytes.len());
    (from..end).find(|&at| class(bytes[at]) & (ALNUM | UNDERSCORE) == 0).unwrap_or(end)
}
