//! Authenticated encryption of single values: a nonce, then what XChaCha20-Poly1305 makes of the value.

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

pub(crate) const NONCE_BYTES: usize = 24;
/// How much longer a sealed value is than the value.
pub(crate) const OVERHEAD_BYTES: usize = NONCE_BYTES + 16;

pub(crate) fn random_nonce() -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).expect("the system has random bytes");
    nonce
}

/// Encrypts a value. `of` is authenticated with it, and needed to open it.
pub(crate) fn sealed(
    cipher: &XChaCha20Poly1305,
    nonce: [u8; NONCE_BYTES],
    plain: &[u8],
    of: &[u8],
) -> Vec<u8> {
    let mut stored = nonce.to_vec();
    let payload = Payload { msg: plain, aad: of };
    stored.extend(cipher.encrypt(&XNonce::from(nonce), payload).expect("no text is too long"));
    stored
}

/// Decrypts a value; `None` if it is damaged, or of another key or kind.
pub(crate) fn opened(cipher: &XChaCha20Poly1305, stored: &[u8], of: &[u8]) -> Option<Vec<u8>> {
    let (nonce, rest) = stored.split_first_chunk::<NONCE_BYTES>()?;
    cipher.decrypt(&XNonce::from(*nonce), Payload { msg: rest, aad: of }).ok()
}
