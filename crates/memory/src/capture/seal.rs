//! Sealing: anyone who knows the home's public key can encrypt data that only the owner of the home's
//! data key can read. Hooks seal; they never have a secret key.

use crypto_box::aead::OsRng;
use crypto_box::{PublicKey, SecretKey};
use hob_domain::DataKey;
use hob_domain::secret::{hex, unhex};
use sha2::{Digest, Sha256};

/// The length of the key id in front of a sealed box.
const KEY_ID_BYTES: usize = 8;

/// The public key of a home: seals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealingKey(PublicKey);

/// The secret key of a home: opens what was sealed. It is derived from the data key.
#[derive(Clone)]
pub struct OpeningKey(SecretKey);

impl OpeningKey {
    pub fn of(data_key: &DataKey) -> OpeningKey {
        let mut hash = Sha256::new();
        hash.update(b"hob sealing key 1");
        hash.update(data_key.expose());
        let bytes: [u8; 32] = hash.finalize().into();
        OpeningKey(SecretKey::from(bytes))
    }

    pub fn sealing_key(&self) -> SealingKey {
        SealingKey(self.0.public_key())
    }

    /// Opens sealed data. Returns `None` if it was sealed to another key, or is damaged.
    pub fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (id, sealed) = sealed.split_at_checked(KEY_ID_BYTES)?;
        if id != self.sealing_key().id() {
            return None;
        }
        self.0.unseal(sealed).ok()
    }
}

/// The keys of a home: the current one, and during a rotation also the other. Sealing uses the first.
#[derive(Clone)]
pub struct OpeningKeys(Vec<OpeningKey>);

impl OpeningKeys {
    /// Adds another key that may be needed to open.
    pub fn and(mut self, other: OpeningKey) -> OpeningKeys {
        self.0.push(other);
        self
    }

    /// Opens data that was sealed to any of the keys.
    pub fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        self.0.iter().find_map(|key| key.open(sealed))
    }

    pub fn sealing_key(&self) -> SealingKey {
        self.0[0].sealing_key()
    }
}

impl From<OpeningKey> for OpeningKeys {
    fn from(key: OpeningKey) -> OpeningKeys {
        OpeningKeys(vec![key])
    }
}

impl SealingKey {
    pub fn seal(&self, clear: &[u8]) -> Option<Vec<u8>> {
        let mut sealed = self.id().to_vec();
        sealed.extend(self.0.seal(&mut OsRng, clear).ok()?);
        Some(sealed)
    }

    pub fn to_hex(&self) -> String {
        hex(self.0.as_bytes())
    }

    pub fn from_hex(text: &str) -> Option<SealingKey> {
        let bytes: [u8; 32] = unhex(text.trim())?.try_into().ok()?;
        Some(SealingKey(PublicKey::from(bytes)))
    }

    fn id(&self) -> [u8; KEY_ID_BYTES] {
        let digest: [u8; 32] = Sha256::digest(self.0.as_bytes()).into();
        let mut id = [0; KEY_ID_BYTES];
        id.copy_from_slice(&digest[..KEY_ID_BYTES]);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_matching_key_opens() {
        let key = |byte| OpeningKey::of(&DataKey::from_bytes([byte; 32]));
        let (right, wrong) = (key(1), key(2));
        let public = SealingKey::from_hex(&right.sealing_key().to_hex()).unwrap();
        let sealed = public.seal(b"the words").unwrap();
        assert_eq!(right.open(&sealed).as_deref(), Some(&b"the words"[..]));
        assert_eq!(wrong.open(&sealed), None);
        assert_eq!(right.open(b"short"), None);
        assert!(!sealed.windows(5).any(|window| window == b"words"));
    }
}
