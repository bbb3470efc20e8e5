//! Encryption of the texts in the ledger.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::KeyInit as _;
use hob_domain::{DataKey, StoreError};
use sha2::{Digest, Sha256};

use super::seal::{OVERHEAD_BYTES, opened, random_nonce, sealed};
use super::text::{put, take};
use crate::values::damaged;

/// The beginning of an encrypted text. No escaped text begins like this.
const MARK: &str = "\u{1a}e";

/// The encryption of texts, names and vectors in the database. Terms and keys are hashed in any
/// case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    On,
    Off,
}

impl From<bool> for Encryption {
    fn from(is_on: bool) -> Encryption {
        if is_on { Encryption::On } else { Encryption::Off }
    }
}

/// The kind of an encrypted text. It is authenticated with the text, so that a text that was copied
/// into another column does not decrypt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextKind {
    /// What a session was created with.
    Setup,
    Prompt,
    /// The paths of a turn's files.
    Files,
    Answer,
    TurnError,
    Event,
    /// A turn on its way to the memory.
    Outbox,
    /// A command for another node, or its outcome.
    Command,
    Document,
    Upload,
}

/// Escapes and encrypts the texts that apps and agents wrote. The key is derived from the data key, so
/// that all nodes of a cluster read the same.
#[derive(Clone)]
pub(crate) struct TextCipher {
    /// `None` if texts are only escaped.
    cipher: Option<XChaCha20Poly1305>,
}

impl TextCipher {
    pub(crate) fn new(key: &DataKey, encryption: Encryption) -> TextCipher {
        let cipher = match encryption {
            Encryption::On => {
                let mut hash = Sha256::new();
                hash.update(b"hob ledger texts 1");
                hash.update(key.expose());
                let derived: [u8; 32] = hash.finalize().into();
                Some(XChaCha20Poly1305::new(&derived.into()))
            }
            Encryption::Off => None,
        };
        TextCipher { cipher }
    }

    pub(crate) fn seal(&self, kind: TextKind, text: &str) -> String {
        match self.seal_bytes(kind, text.as_bytes()) {
            Some(sealed) => format!("{MARK}{}", STANDARD_NO_PAD.encode(sealed)),
            None => put(text).into_owned(),
        }
    }

    /// Restores a text. Texts that were stored before texts were encrypted are read as they are.
    pub(crate) fn open(&self, kind: TextKind, stored: String) -> Result<String, StoreError> {
        let Some(encoded) = stored.strip_prefix(MARK) else { return Ok(take(stored)) };
        let bytes = STANDARD_NO_PAD.decode(encoded).ok();
        let bytes = bytes.and_then(|sealed| self.open_bytes(kind, &sealed));
        bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(|| damaged("a text"))
    }

    /// Returns whether a stored text is encrypted.
    pub(crate) fn is_sealed(stored: &str) -> bool {
        stored.starts_with(MARK)
    }

    /// Encrypts bytes; `None` if encryption is off.
    pub(crate) fn seal_bytes(&self, kind: TextKind, plain: &[u8]) -> Option<Vec<u8>> {
        let cipher = self.cipher.as_ref()?;
        Some(sealed(cipher, random_nonce(), plain, format!("{kind:?}").as_bytes()))
    }

    /// Decrypts bytes; `None` if they are damaged, or of another key or kind.
    pub(crate) fn open_bytes(&self, kind: TextKind, stored: &[u8]) -> Option<Vec<u8>> {
        opened(self.cipher.as_ref()?, stored, format!("{kind:?}").as_bytes())
    }

    /// Returns an SQL expression for the number of bytes that a column's text had before it was
    /// encrypted.
    pub(crate) fn plain_length(column: &str) -> String {
        format!(
            "CASE WHEN left({column}, 2) = E'\\x1ae'
             THEN (octet_length({column}) - 2) * 3 / 4 - {OVERHEAD_BYTES} ELSE octet_length({column}) END"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_text_opens_with_its_key_and_kind_alone() {
        let key = |byte| TextCipher::new(&DataKey::from_bytes([byte; 32]), Encryption::On);
        for text in ["", "words", "\0 and \u{1a}e", "\u{1a}1", "日本語"] {
            let stored = key(1).seal(TextKind::Prompt, text);
            assert!(TextCipher::is_sealed(&stored) && !stored.contains("words"), "{stored:?}");
            assert_ne!(stored, key(1).seal(TextKind::Prompt, text), "the nonce is random");
            assert_eq!(key(1).open(TextKind::Prompt, stored.clone()).unwrap(), text);
            assert!(key(2).open(TextKind::Prompt, stored.clone()).is_err());
            assert!(key(1).open(TextKind::Event, stored.clone()).is_err());
            let bytes = (stored.len() - MARK.len()) * 3 / 4 - OVERHEAD_BYTES;
            assert_eq!(bytes, text.len());
        }
    }

    #[test]
    fn text_that_was_not_sealed_is_read() {
        let off = TextCipher::new(&DataKey::from_bytes([1; 32]), Encryption::Off);
        let on = TextCipher::new(&DataKey::from_bytes([1; 32]), Encryption::On);
        for text in ["plain", "\u{1a}e looks sealed", "\0"] {
            let stored = off.seal(TextKind::Prompt, text);
            assert!(!TextCipher::is_sealed(&stored), "{stored:?}");
            assert_eq!(on.open(TextKind::Prompt, stored).unwrap(), text);
        }
        assert!(off.open(TextKind::Prompt, on.seal(TextKind::Prompt, "x")).is_err());
    }
}
