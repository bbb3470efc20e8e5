//! Files that this build of SQLCipher writes and reads.
#![allow(clippy::disallowed_methods, reason = "tests make files and processes of their own")]
#![allow(clippy::disallowed_types, reason = "this crate builds the database")]

use std::path::Path;

use hob_sqlcipher as _;
use rusqlite::Connection;

const KEY: &str = "x'000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f'";
/// Databases that SQLCipher 4.19 with OpenSSL wrote, one with `KEY`, one with a passphrase.
const OPENSSL_RAW_KEY: &[u8] = include_bytes!("openssl-raw-key.db");
const OPENSSL_PASSPHRASE: &[u8] = include_bytes!("openssl-passphrase.db");

fn open(path: &Path, key: &str) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.pragma_update(None, "key", key).unwrap();
    connection
}

fn first_note(connection: &Connection) -> rusqlite::Result<String> {
    connection.query_row("SELECT text FROM notes", [], |row| row.get(0))
}

#[test]
fn file_is_encrypted_and_opens_only_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let connection = open(&path, KEY);
    connection.execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
    for number in 0..500 {
        connection
            .execute("INSERT INTO notes VALUES (?1)", [format!("a secret, number {number}")])
            .unwrap();
    }
    drop(connection);
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() > 20_000);
    assert!(!bytes.windows(8).any(|window| window == b"a secret" || window == b"SQLite f"));
    assert_eq!(first_note(&open(&path, KEY)).unwrap(), "a secret, number 0");
    let wrong = KEY.replace("1f'", "20'");
    assert!(first_note(&open(&path, &wrong)).is_err());
    assert!(first_note(&Connection::open(&path).unwrap()).is_err());
}

#[test]
fn changed_byte_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let connection = open(&path, KEY);
    connection.execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
    connection.execute("INSERT INTO notes VALUES (?1)", ["x".repeat(3000)]).unwrap();
    drop(connection);
    let whole = std::fs::read(&path).unwrap();
    for at in [20, 2000, 4095, 4096, 6000, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(first_note(&open(&path, KEY)).is_err(), "byte {at}");
    }
    std::fs::write(&path, &whole).unwrap();
    assert!(first_note(&open(&path, KEY)).is_ok());
}

/// Other builds of SQLCipher 4 write the same format, with a raw key and with a passphrase.
#[test]
fn files_of_a_build_with_openssl_open() {
    let folder = tempfile::tempdir().unwrap();
    for (bytes, key) in [(OPENSSL_RAW_KEY, KEY), (OPENSSL_PASSPHRASE, "correct horse")] {
        let path = folder.path().join("other.db");
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(first_note(&open(&path, key)).unwrap(), "written by another build");
        assert!(first_note(&open(&path, "wrong")).is_err());
    }
}

#[test]
fn provider_is_this_crate() {
    let folder = tempfile::tempdir().unwrap();
    let connection = open(&folder.path().join("a.db"), KEY);
    let name: String =
        connection.pragma_query_value(None, "cipher_provider", |row| row.get(0)).unwrap();
    assert_eq!(name, "rustcrypto");
}
