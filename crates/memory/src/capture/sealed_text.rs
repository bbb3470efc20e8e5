//! Texts whose secrets are masked, and sealed so that the owner can restore them.

use super::seal::SealingKey;
use crate::redact;

/// A masked text, with its secrets sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedText {
    pub text: String,
    pub sealed: Option<Vec<u8>>,
}

/// Masks the secrets of a text and seals them. Secrets that cannot be sealed are masked all the same:
/// better lost than leaked.
pub fn seal_secrets(text: &str, key: &SealingKey) -> SealedText {
    let masked = redact::mask(text);
    if masked.originals.is_empty() {
        return SealedText { text: masked.text, sealed: None };
    }
    let sealed = serde_json::to_vec(&masked.originals).ok().and_then(|clear| key.seal(&clear));
    SealedText { text: masked.text, sealed }
}

/// Restores the original text from a masked one and the opened content of its seal.
pub fn restore_secrets(text: &str, clear: &[u8]) -> Option<String> {
    let originals: Vec<redact::Original> = serde_json::from_slice(clear).ok()?;
    redact::unmask(text, &originals)
}
