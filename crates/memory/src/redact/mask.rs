//! Finds the secrets of a text, masks them, and restores them.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::finding::Finding;
use super::scan::scan;

/// The version of the rules. It grows with every change; turns that older rules masked are scanned
/// again.
pub const RULES_VERSION: u32 = 4;

/// The secret behind a mask. It is apart from the masked text so that it can be sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Original {
    /// The byte offset of the mask in the masked text.
    pub at: usize,
    /// The byte length of the mask.
    pub mask: usize,
    pub secret: String,
}

/// A text that is safe to index, and the secrets that restore it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Masked {
    pub text: String,
    pub originals: Vec<Original>,
}

/// Finds all secrets in a text.
///
/// A mask that is already in the text splits it, and so does every finding: the parts are searched
/// again on their own until none contains a secret. This makes masking idempotent, since the masked
/// text splits into exactly the parts in which nothing was found.
pub fn find(text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut from = 0;
    let mut search = 0;
    while let Some(open) = text[search..].find('[') {
        let open = search + open;
        search = open + 1;
        if let Some(length) = mask_length(&text.as_bytes()[open..]) {
            find_between(text, from..open, &mut found);
            from = open + length;
            search = from;
        }
    }
    find_between(text, from..text.len(), &mut found);
    found.sort_unstable_by_key(|finding| finding.range.start);
    found
}

/// Replaces every secret by `[secret:KIND]`.
pub fn mask(text: &str) -> Masked {
    let findings = find(text);
    let mut masked = Masked { text: String::with_capacity(text.len()), originals: Vec::new() };
    let mut from = 0;
    for finding in findings {
        masked.text.push_str(&text[from..finding.range.start]);
        let at = masked.text.len();
        masked.text.push_str(OPEN);
        masked.text.push_str(finding.kind);
        masked.text.push(']');
        let mask = masked.text.len() - at;
        from = finding.range.end;
        masked.originals.push(Original { at, mask, secret: text[finding.range].to_owned() });
    }
    masked.text.push_str(&text[from..]);
    masked
}

/// Replaces the masks by their originals. Returns `None` if they do not fit the text, since a text
/// that is restored in the wrong place is worse than one that stays masked.
pub fn unmask(masked: &str, originals: &[Original]) -> Option<String> {
    let secrets: usize = originals.iter().map(|original| original.secret.len()).sum();
    let mut text = String::with_capacity(masked.len().saturating_add(secrets));
    let mut from = 0;
    for original in originals {
        text.push_str(masked.get(from..original.at)?);
        let mask = masked.get(original.at..original.at.checked_add(original.mask)?)?;
        if mask_length(mask.as_bytes()) != Some(mask.len()) {
            return None;
        }
        text.push_str(&original.secret);
        from = original.at + original.mask;
    }
    text.push_str(masked.get(from..)?);
    Some(text)
}

const OPEN: &str = "[secret:";
const MAX_KIND_BYTES: usize = 32;

/// Returns the length of the mask at the beginning of these bytes.
fn mask_length(bytes: &[u8]) -> Option<usize> {
    let kind = bytes.strip_prefix(OPEN.as_bytes())?;
    let end = kind.iter().take(MAX_KIND_BYTES + 1).position(|&byte| byte == b']')?;
    let named = |&byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (end > 0 && kind[..end].iter().all(named)).then_some(OPEN.len() + end + 1)
}

/// Searches a part, and then the parts between the findings, until nothing more is found. Every
/// finding shortens the rest, so this ends.
fn find_between(text: &str, part: Range<usize>, found: &mut Vec<Finding>) {
    let mut parts = vec![];
    let mut next = Some(part);
    while let Some(part) = next {
        let findings = scan(&text[part.clone()]);
        let mut end = part.end;
        for finding in findings.into_iter().rev() {
            let range = part.start + finding.range.start..part.start + finding.range.end;
            parts.push(range.end..end);
            end = range.start;
            found.push(Finding { range, kind: finding.kind });
        }
        if end < part.end {
            parts.push(part.start..end);
        }
        next = parts.pop();
    }
}
