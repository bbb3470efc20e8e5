//! Encryption of the memory: texts and vectors are encrypted, names and terms are replaced by keyed
//! hashes. All keys are derived from the data key, so that every node that has it reads and writes
//! the same.

use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::KeyInit as _;
use hmac::{Hmac, Mac};
use hob_domain::memory::{RecordId, TurnKey};
use hob_domain::{DataKey, StoreError};
use hob_index::sign_codes::{MODEL_BYTES, TABLE_BYTES, sign_code};
use sha2::Sha256;

use crate::postgres::Encryption;
use crate::postgres::seal::{NONCE_BYTES, opened, random_nonce, sealed};
use crate::values::damaged;

/// The kind of a name. Equal names of two kinds look different.
#[derive(Debug, Clone, Copy)]
pub(super) enum Name {
    Project,
    Session,
    Turn,
}

/// The place of an encrypted body. It is authenticated with the body, so that a body that was
/// copied to another row does not decrypt.
#[derive(Debug, Clone, Copy)]
pub(super) enum Body<'a> {
    Turn(&'a str, i64),
    Vector(&'a str, i64),
    ModelVector(&'a str, i64, i64),
    /// A hidden turn, by the hash of its record id.
    Hidden(&'a str, &'a [u8]),
    Event,
}

impl Body<'_> {
    /// Returns the text that is authenticated with the body.
    fn associated_data(&self) -> String {
        match self {
            // The name of a principal has no line break.
            Body::Turn(speaker, seq) => format!("turn\n{speaker}\n{seq}"),
            Body::Vector(speaker, seq) => format!("vector\n{speaker}\n{seq}"),
            Body::ModelVector(speaker, seq, kind) => format!("model\n{speaker}\n{seq}\n{kind}"),
            Body::Hidden(speaker, turn) => format!("hidden\n{speaker}\n{turn:02x?}"),
            Body::Event => "event".to_owned(),
        }
    }
}

pub(super) struct Cipher {
    /// `None` if bodies are not encrypted.
    bodies: Option<XChaCha20Poly1305>,
    names: Hmac<Sha256>,
    keys: Hmac<Sha256>,
    kept: Hmac<Sha256>,
    terms: Hmac<Sha256>,
    check: [u8; 16],
    table: Shuffle,
    model: Shuffle,
}

impl Cipher {
    pub(super) fn new(key: &DataKey, encryption: Encryption) -> Cipher {
        let derived = |label: &str| digest(&keyed(key.expose()), &[label.as_bytes()]);
        let order = |label: &str, bytes: usize| match encryption {
            Encryption::On => Shuffle::new(&keyed(&derived(label)), bytes * 8),
            Encryption::Off => Shuffle::none(bytes * 8),
        };
        let bodies = match encryption {
            Encryption::On => Some(XChaCha20Poly1305::new(&derived("hob memory bodies").into())),
            Encryption::Off => None,
        };
        Cipher {
            bodies,
            names: keyed(&derived("hob memory names")),
            keys: keyed(&derived("hob memory keys")),
            kept: keyed(&derived("hob memory kept digests")),
            terms: keyed(&derived("hob memory terms")),
            check: short(derived("hob memory check")),
            table: order("hob memory table vectors", TABLE_BYTES),
            model: order("hob memory model vectors", MODEL_BYTES),
        }
    }

    /// Returns a hash by which the data key is recognised.
    pub(super) fn check(&self) -> &[u8; 16] {
        &self.check
    }

    /// Encrypts a name. The nonce is derived from the name, so that equal names are equal and can
    /// be looked up.
    pub(super) fn encrypt_name(&self, of: Name, text: &str) -> Vec<u8> {
        let Some(cipher) = &self.bodies else { return text.as_bytes().to_vec() };
        let kind = format!("{of:?}");
        let digest = digest(&self.names, &[kind.as_bytes(), b"\n", text.as_bytes()]);
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&digest[..NONCE_BYTES]);
        sealed(cipher, nonce, text.as_bytes(), kind.as_bytes())
    }

    /// Hashes a name, so that it can be looked up however long it is.
    pub(super) fn hash_name(&self, of: Name, text: &str) -> Vec<u8> {
        let kind = format!("{of:?}");
        short(digest(&self.keys, &[kind.as_bytes(), b"\n", text.as_bytes()])).to_vec()
    }

    pub(super) fn encrypt_id(&self, id: &RecordId) -> Vec<u8> {
        self.encrypt_name(Name::Turn, id.as_str())
    }

    /// Decrypts a name.
    pub(super) fn decrypt_name(&self, of: Name, stored: &[u8]) -> Result<String, StoreError> {
        let bytes = match &self.bodies {
            Some(cipher) => opened(cipher, stored, format!("{of:?}").as_bytes()),
            None => Some(stored.to_vec()),
        };
        bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(|| damaged("a name"))
    }

    pub(super) fn seal(&self, of: Body<'_>, plain: &[u8]) -> Vec<u8> {
        let Some(cipher) = &self.bodies else { return plain.to_vec() };
        sealed(cipher, random_nonce(), plain, of.associated_data().as_bytes())
    }

    pub(super) fn open(&self, of: Body<'_>, stored: &[u8]) -> Result<Vec<u8>, StoreError> {
        let bytes = match &self.bodies {
            Some(cipher) => opened(cipher, stored, of.associated_data().as_bytes()),
            None => Some(stored.to_vec()),
        };
        bytes.ok_or_else(|| damaged("a body of the memory"))
    }

    /// Hashes the digest of a turn's name: enough to recognise it.
    pub(super) fn hash_key(&self, key: &TurnKey) -> Vec<u8> {
        short(digest(&self.keys, &[key.bytes()])).to_vec()
    }

    /// Encrypts a digest with a pad that is derived from its hash and the data key. Equal digests
    /// are equal, as their hashes are, and nothing else can be learnt. Digests are encrypted even
    /// if bodies are not, since a plain digest can be guessed at.
    pub(super) fn encrypt_key(&self, key: &TurnKey) -> Vec<u8> {
        self.xor_pad(&self.hash_key(key), key.bytes()).to_vec()
    }

    /// Decrypts a digest, and checks it against its hash.
    pub(super) fn decrypt_key(&self, code: &[u8], kept: &[u8]) -> Result<TurnKey, StoreError> {
        let bytes = kept.try_into().map(|kept| self.xor_pad(code, kept)).ok();
        let key = bytes.map(TurnKey::from_bytes).filter(|key| self.hash_key(key) == code);
        key.ok_or_else(|| damaged("a name of a turn"))
    }

    fn xor_pad(&self, code: &[u8], bytes: &[u8; 32]) -> [u8; 32] {
        let pad = digest(&self.kept, &[code]);
        std::array::from_fn(|place| bytes[place] ^ pad[place])
    }

    /// Hashes a term. Two of a million terms have the same hash in one of ten million memories.
    pub(super) fn term(&self, term: &str) -> i64 {
        let digest = digest(&self.terms, &[term.as_bytes()]);
        i64::from_be_bytes(digest[..8].try_into().unwrap_or_default())
    }

    /// Returns the sign code of a vector as it is stored, or `None` if the vector is zero.
    pub(super) fn table_code(&self, vector: &[i8]) -> Option<Bits> {
        sign_code(vector, TABLE_BYTES).map(|code| self.table.stored(&code))
    }

    pub(super) fn model_code(&self, vector: &[i8]) -> Option<Bits> {
        sign_code(vector, MODEL_BYTES).map(|code| self.model.stored(&code))
    }

    /// Restores a sign code.
    pub(super) fn table_signs(&self, stored: &Bits) -> Vec<u8> {
        self.table.taken(stored)
    }

    pub(super) fn model_signs(&self, stored: &Bits) -> Vec<u8> {
        self.model.taken(stored)
    }

    pub(super) fn seal_vector(&self, of: Body<'_>, vector: &[i8]) -> Vec<u8> {
        let bytes: Vec<u8> = vector.iter().map(|value| value.cast_unsigned()).collect();
        self.seal(of, &bytes)
    }

    pub(super) fn open_vector(&self, of: Body<'_>, stored: &[u8]) -> Result<Vec<i8>, StoreError> {
        Ok(self.open(of, stored)?.into_iter().map(u8::cast_signed).collect())
    }
}

/// A secret permutation of dimensions with secret flips. It keeps the Hamming distances of sign
/// codes.
struct Shuffle {
    order: Vec<usize>,
    flips: Vec<bool>,
}

impl Shuffle {
    fn none(bits: usize) -> Shuffle {
        Shuffle { order: (0..bits).collect(), flips: vec![false; bits] }
    }

    fn new(key: &Hmac<Sha256>, bits: usize) -> Shuffle {
        let mut shuffle = Shuffle::none(bits);
        for place in 0..bits {
            let number = digest(key, &[&(place as u64).to_be_bytes()]);
            let chance = u64::from_be_bytes(number[..8].try_into().unwrap_or_default());
            let other = place + (chance % (bits - place) as u64) as usize;
            shuffle.order.swap(place, other);
            shuffle.flips[place] = number[8] & 1 == 1;
        }
        shuffle
    }

    fn stored(&self, code: &[u8]) -> Bits {
        let mut bits = vec![0_u8; self.order.len() / 8];
        for (place, from) in self.order.iter().enumerate() {
            let bit = (code[from / 8] >> (from % 8) & 1 == 1) != self.flips[place];
            bits[place / 8] |= u8::from(bit) << (7 - place % 8);
        }
        Bits(bits)
    }

    fn taken(&self, bits: &Bits) -> Vec<u8> {
        let mut code = vec![0_u8; self.order.len() / 8];
        for (place, from) in self.order.iter().enumerate() {
            let stored = bits.0.get(place / 8).copied().unwrap_or_default();
            let bit = (stored >> (7 - place % 8) & 1 == 1) != self.flips[place];
            code[from / 8] |= u8::from(bit) << (from % 8);
        }
        code
    }
}

/// PostgreSQL's `bit`: whole bytes, the highest bit first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bits(Vec<u8>);

impl Bits {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes of words, as [`hob_index::sign_codes::code_words`] has read them.
    pub(super) fn of(words: &[u64]) -> Bits {
        Bits(words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }
}

mod on_the_wire {
    use std::error::Error;

    use bytes::BytesMut;
    use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

    use super::Bits;

    impl ToSql for Bits {
        fn to_sql(
            &self,
            _: &Type,
            out: &mut BytesMut,
        ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
            out.extend_from_slice(&(self.0.len() as i32 * 8).to_be_bytes());
            out.extend_from_slice(&self.0);
            Ok(IsNull::No)
        }

        accepts!(BIT, VARBIT);
        to_sql_checked!();
    }

    impl<'a> FromSql<'a> for Bits {
        fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Bits, Box<dyn Error + Sync + Send>> {
            Ok(Bits(raw.get(4..).unwrap_or_default().to_vec()))
        }

        accepts!(BIT, VARBIT);
    }
}

fn keyed(key: &[u8; 32]) -> Hmac<Sha256> {
    // A key is filled up with zeros to the length of a block, as the algorithm does with a shorter
    // one.
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    Hmac::<Sha256>::new(&block.into())
}

fn digest(key: &Hmac<Sha256>, parts: &[&[u8]]) -> [u8; 32] {
    let mut code = key.clone();
    parts.iter().for_each(|part| code.update(part));
    code.finalize().into_bytes().into()
}

fn short(digest: [u8; 32]) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&digest[..16]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use hob_index::sign_codes::code_words;

    fn cipher(byte: u8, is_encrypted: bool) -> Cipher {
        Cipher::new(&DataKey::from_bytes([byte; 32]), is_encrypted.into())
    }

    #[test]
    fn what_was_sealed_opens_where_it_belongs_only() {
        let (one, other, plain) = (cipher(1, true), cipher(2, true), cipher(1, false));
        let body = one.seal(Body::Turn("a", 7), b"the port\0");
        assert_eq!(one.open(Body::Turn("a", 7), &body).unwrap(), b"the port\0");
        for of in [Body::Turn("b", 7), Body::Turn("a", 8), Body::Vector("a", 7), Body::Event] {
            assert!(one.open(of, &body).is_err(), "{of:?}");
        }
        assert!(other.open(Body::Turn("a", 7), &body).is_err());
        assert!(one.open(Body::Turn("a", 7), b"").is_err());
        assert_ne!(one.seal(Body::Event, b"x"), one.seal(Body::Event, b"x"));
        assert_eq!(plain.seal(Body::Event, b"x"), b"x");
    }

    #[test]
    fn equal_names_are_equal_and_tell_nothing() {
        let one = cipher(1, true);
        let name = one.encrypt_name(Name::Project, "/work/shop");
        assert_eq!(name, one.encrypt_name(Name::Project, "/work/shop"));
        assert_ne!(name, one.encrypt_name(Name::Session, "/work/shop"));
        assert_ne!(name, cipher(2, true).encrypt_name(Name::Project, "/work/shop"));
        assert_eq!(one.decrypt_name(Name::Project, &name).unwrap(), "/work/shop");
        assert!(one.decrypt_name(Name::Session, &name).is_err());
        assert!(!name.windows(4).any(|part| part == b"shop"));
        assert_ne!(one.term("port"), cipher(2, true).term("port"));
        assert_eq!(one.term("port"), cipher(1, false).term("port"));
    }

    #[test]
    fn digests_are_had_again_by_the_key_alone() {
        let (one, plain) = (cipher(1, true), cipher(1, false));
        let key = TurnKey::of(&["the port"]);
        let (code, kept) = (one.hash_key(&key), one.encrypt_key(&key));
        assert_eq!(one.decrypt_key(&code, &kept).unwrap(), key);
        assert_eq!(plain.encrypt_key(&key), kept, "it is hidden in any case");
        assert_ne!(kept, key.bytes());
        assert!(cipher(2, true).decrypt_key(&code, &kept).is_err());
        assert!(one.decrypt_key(&one.hash_key(&TurnKey::of(&["x"])), &kept).is_err());
        assert!(one.decrypt_key(&code, &kept[1..]).is_err());
    }

    #[test]
    fn codes_are_as_far_apart_as_they_were() {
        let one = cipher(1, true);
        let vector = |seed: i32| -> Vec<i8> {
            (0..256).map(|place| ((place * 37 + seed * 91) % 200 - 100) as i8).collect()
        };
        let (a, b) = (vector(1), vector(2));
        let (stored_a, stored_b) = (one.table_code(&a).unwrap(), one.table_code(&b).unwrap());
        let plain = |vector: &[i8]| sign_code(vector, TABLE_BYTES).unwrap();
        let apart = |a: &[u8], b: &[u8]| -> u32 {
            a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
        };
        assert_eq!(apart(&stored_a.0, &stored_b.0), apart(&plain(&a), &plain(&b)));
        assert_ne!(stored_a.0, plain(&a));
        assert_eq!(one.table_signs(&stored_a), plain(&a));
        assert_eq!(code_words::<4>(&one.table_signs(&stored_b)), code_words::<4>(&plain(&b)));
        assert_eq!(one.table_code(&[0; 256]), None);
    }
}
