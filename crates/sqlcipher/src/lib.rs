//! SQLCipher, compiled from source, with its cryptography from the RustCrypto crates instead of OpenSSL.
//!
//! SQLCipher encrypts each page with AES-256 in CBC mode, authenticates it with HMAC-SHA512, and derives keys with
//! PBKDF2. It asks a *provider* for these functions. This crate is the provider. The file format is SQLCipher's own:
//! other builds of SQLCipher 4 open the files with the same key.
//!
//! The crate has no Rust interface. `rusqlite` uses the library through its C interface, and links it because
//! `hob-store` names this crate (`use hob_sqlcipher as _`).

mod provider;
