//! The data key: random, stored in a file of its own, and wrapped by a passphrase if one is set.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use argon2::{Algorithm, Argon2, Params, Version};
use chacha20poly1305::aead::{Aead, KeyInit};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hob_domain::secret::{hex, unhex};
use hob_domain::{DataKey, Token};
use hob_files::{owned, write_new, write_over};
use hob_memory::{OpeningKey, SealingKey};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::home::Home;

/// The key file. It has a version, so that a later Hob can read the file of an earlier one.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum KeyFile {
    /// The key in clear; only the mode of the file protects it.
    Raw { version: u32, key: String },
    /// The key, encrypted with XChaCha20-Poly1305 under a key that Argon2id derives from the
    /// passphrase.
    Wrapped { version: u32, memory_kib: u32, passes: u32, salt: String, nonce: String, key: String },
}

/// Reads the home's data key, and creates it if there is none. With a passphrase, a key in clear is
/// wrapped from then on. A wrapped key needs its passphrase.
pub fn data_key(home: &Home, passphrase: Option<&str>) -> anyhow::Result<DataKey> {
    // A new key would not open what is there. The databases are looked at first: a process that starts at the same time
    // creates them after the key.
    let has_data = |path: &PathBuf| fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0);
    let data = [home.ledger(), home.memory()].into_iter().find(has_data);
    if let Some(path) = data.filter(|_| !home.key().exists()) {
        bail!(
            "{} is missing, and {} is encrypted with it: copy the key back, or restore a backup with `hob restore FILE`",
            home.key().display(),
            path.display()
        );
    }
    read_or_make(&home.key(), passphrase)
}

/// Returns whether a passphrase protects the home's key.
pub fn is_wrapped(home: &Home) -> bool {
    let text = owned::read_to_string(home.key()).unwrap_or_default();
    matches!(serde_json::from_str(&text), Ok(KeyFile::Wrapped { .. }))
}

/// Returns the key to which secrets are sealed. Needs no passphrase once the home has its public
/// key.
pub fn sealing_key(home: &Home, passphrase: Option<&str>) -> anyhow::Result<SealingKey> {
    let public = owned::read_to_string(home.public_key()).ok();
    if let Some(key) = public.as_deref().and_then(SealingKey::from_hex) {
        return Ok(key);
    }
    let key = data_key(home, passphrase)?;
    publish_first(home, &key)?;
    Ok(OpeningKey::of(&key).sealing_key())
}

/// Writes the public half of the key if there is none. An existing file stays as it is, because
/// another process may be rotating the key.
pub fn publish_first(home: &Home, key: &DataKey) -> anyhow::Result<()> {
    let path = home.public_key();
    if !path.exists() {
        write_new(&path, public_half(key).as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn public_half(key: &DataKey) -> String {
    format!("{}\n", OpeningKey::of(key).sealing_key().to_hex())
}

/// Writes the public half of the key for hooks. The key must be known to open the store, because
/// secrets that are sealed to another key are lost. The caller must hold the serve lock.
pub fn publish(home: &Home, key: &DataKey) -> anyhow::Result<()> {
    let text = public_half(key);
    let path = home.public_key();
    if owned::read_to_string(&path).is_ok_and(|known| known == text) {
        return Ok(());
    }
    write_over(&path, text.as_bytes(), 0o600)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Reads the new key of a rotation, and creates it if there is none.
pub fn next_key(home: &Home, passphrase: Option<&str>) -> anyhow::Result<DataKey> {
    read_or_make(&home.next_key(), passphrase)
}

fn read_or_make(path: &Path, passphrase: Option<&str>) -> anyhow::Result<DataKey> {
    if !path.exists() {
        let key = new_data_key()?;
        // Another process may create the key at the same time; the first one counts for both.
        write_new(path, &encode(&key, passphrase)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let text =
        owned::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = Zeroizing::new(text);
    let file: KeyFile = serde_json::from_str(&text).map_err(|_| {
        anyhow::anyhow!(
            "{} is damaged: it is not a key file; restore it from a backup",
            path.display()
        )
    })?;
    match (file, passphrase) {
        (KeyFile::Raw { version: 1, key }, None) => parse_key(&Zeroizing::new(key), path),
        (KeyFile::Raw { version: 1, key }, Some(_)) => {
            let key = parse_key(&Zeroizing::new(key), path)?;
            write_over(path, &encode(&key, passphrase)?, 0o600).with_context(|| {
                format!("cannot encrypt {} with the passphrase", path.display())
            })?;
            Ok(key)
        }
        (KeyFile::Wrapped { version: 1, .. }, None) => {
            bail!("a passphrase protects the key in {}: set HOB_PASSPHRASE", path.display())
        }
        (
            KeyFile::Wrapped { version: 1, memory_kib, passes, salt, nonce, key },
            Some(passphrase),
        ) => {
            let field = |text: &str| {
                unhex(text).with_context(|| {
                    format!("{} is damaged; restore it from a backup", path.display())
                })
            };
            let nonce: [u8; 24] = field(&nonce)?.try_into().map_err(|_| {
                anyhow::anyhow!("{} is damaged; restore it from a backup", path.display())
            })?;
            let cipher = cipher(passphrase, &field(&salt)?, memory_kib, passes)?;
            let opened = cipher.decrypt(&XNonce::from(nonce), field(&key)?.as_slice());
            let opened = opened.map_err(|_| {
                anyhow::anyhow!(
                    "HOB_PASSPHRASE is not the right passphrase for the key in {}",
                    path.display()
                )
            })?;
            let opened = Zeroizing::new(opened);
            let bytes = <[u8; 32]>::try_from(opened.as_slice()).map_err(|_| {
                anyhow::anyhow!("{} is damaged; restore it from a backup", path.display())
            })?;
            Ok(DataKey::from_bytes(bytes))
        }
        (KeyFile::Raw { version, .. } | KeyFile::Wrapped { version, .. }, _) => {
            bail!(
                "{} was written by a newer hob (version {version}); update this hob",
                path.display()
            )
        }
    }
}

/// Returns the admin's token: the configured one, else the one in the home, which is created if
/// there is none.
pub fn admin_token(home: &Home, configured: Option<&str>) -> anyhow::Result<Token> {
    if let Some(token) = configured {
        return Ok(Token::presented(token));
    }
    let path = home.admin_token();
    if !path.exists() {
        let token = new_token()?;
        write_new(&path, format!("{}\n", token.expose()).as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let text =
        owned::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = text.trim();
    if text.is_empty() {
        bail!("{} is empty; delete it, and the next start creates a new token", path.display());
    }
    Ok(Token::presented(text))
}

/// Returns a new random key.
pub fn new_data_key() -> anyhow::Result<DataKey> {
    Ok(DataKey::from_bytes(random()?))
}

/// Returns a new random token.
pub fn new_token() -> anyhow::Result<Token> {
    Ok(Token::from_random(random()?))
}

fn encode(key: &DataKey, passphrase: Option<&str>) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let file = match passphrase {
        None => KeyFile::Raw { version: 1, key: key.to_hex().to_string() },
        Some(passphrase) => {
            let (salt, nonce) = (random::<16>()?, random::<24>()?);
            let (memory_kib, passes) = (19 * 1024, 2);
            let sealed = cipher(passphrase, &salt, memory_kib, passes)?
                .encrypt(&XNonce::from(nonce), key.expose().as_slice())
                .map_err(|_| anyhow::anyhow!("cannot encrypt the key with the passphrase"))?;
            KeyFile::Wrapped {
                version: 1,
                memory_kib,
                passes,
                salt: hex(&salt),
                nonce: hex(&nonce),
                key: hex(&sealed),
            }
        }
    };
    let mut text = Zeroizing::new(Vec::with_capacity(512));
    serde_json::to_writer(&mut *text, &file)?;
    text.push(b'\n');
    if let KeyFile::Raw { mut key, .. } = file {
        key.zeroize();
    }
    Ok(text)
}

fn cipher(
    passphrase: &str,
    salt: &[u8],
    memory_kib: u32,
    passes: u32,
) -> anyhow::Result<XChaCha20Poly1305> {
    let wrong = |error| {
        anyhow::anyhow!(
            "the parameters of the key file are not valid ({error}); restore it from a backup"
        )
    };
    let params = Params::new(memory_kib, passes, 1, Some(32)).map_err(wrong)?;
    let mut wrapping = Zeroizing::new([0; 32]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(passphrase.as_bytes(), salt, &mut *wrapping)
        .map_err(wrong)?;
    Ok(XChaCha20Poly1305::new((&*wrapping).into()))
}

fn parse_key(text: &str, path: &Path) -> anyhow::Result<DataKey> {
    let bytes = unhex(text).map(Zeroizing::new);
    let bytes = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes.as_slice()).ok());
    bytes.map(DataKey::from_bytes).with_context(|| {
        format!("{} is damaged: the key is not 32 bytes; restore it from a backup", path.display())
    })
}

fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow::anyhow!("cannot get random bytes: {error}"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::new(folder.path().join("home"));
        home.prepare().unwrap();
        (folder, home)
    }

    #[test]
    fn data_key_is_created_once() {
        let (_folder, home) = home();
        let key = data_key(&home, None).unwrap();
        assert_eq!(data_key(&home, None).unwrap(), key);
    }

    #[test]
    fn passphrase_wraps_the_key_for_good() {
        let (_folder, home) = home();
        let key = data_key(&home, None).unwrap();
        let clear = hex(key.expose());
        assert!(fs::read_to_string(home.key()).unwrap().contains(&clear));
        assert_eq!(data_key(&home, Some("open sesame")).unwrap(), key);
        assert!(!fs::read_to_string(home.key()).unwrap().contains(&clear));
        assert_eq!(data_key(&home, Some("open sesame")).unwrap(), key);
        let error = data_key(&home, Some("wrong")).unwrap_err().to_string();
        assert!(error.contains("is not the right passphrase"), "{error}");
        let error = data_key(&home, None).unwrap_err().to_string();
        assert!(error.contains("HOB_PASSPHRASE"), "{error}");
    }

    #[test]
    fn damaged_key_is_an_error_and_stays() {
        let (_folder, home) = home();
        fs::write(home.key(), "nonsense").unwrap();
        assert!(data_key(&home, None).unwrap_err().to_string().contains("damaged"));
        assert_eq!(fs::read(home.key()).unwrap(), b"nonsense");
    }

    #[test]
    fn admin_token_is_created_once_or_configured() {
        let (_folder, home) = home();
        let token = admin_token(&home, None).unwrap();
        assert_eq!(admin_token(&home, None).unwrap(), token);
        assert_eq!(admin_token(&home, Some("mine")).unwrap().expose(), "mine");
    }
}
