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

/// A long text continues on pages that are in no tree, which SQLite itself cannot check.
#[test]
fn changed_byte_in_a_long_text_fails_its_row_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let connection = open(&path, KEY);
    connection.execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
    let text = |number: i64| format!("{number:08}").repeat(1500);
    for number in 0..8 {
        connection.execute("INSERT INTO notes VALUES (?1)", [text(number)]).unwrap();
    }
    drop(connection);
    let whole = std::fs::read(&path).unwrap();
    // The list of tables, the tree of the notes, and three pages of each note.
    assert!(whole.len() / 4096 > 20, "{}", whole.len());
    for page in 2..whole.len() / 4096 {
        let mut bytes = whole.clone();
        bytes[page * 4096 + 100] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let connection = open(&path, KEY);
        let read = |number: i64| -> rusqlite::Result<String> {
            let sql = "SELECT text FROM notes WHERE rowid = ?1";
            connection.query_row(sql, [number + 1], |row| row.get(0))
        };
        let failed: Vec<i64> = (0..8)
            .filter(|number| match read(*number) {
                Ok(read) => {
                    assert_eq!(read, text(*number), "page {page}");
                    false
                }
                Err(error) => {
                    let code = error.sqlite_error_code();
                    assert_eq!(code, Some(rusqlite::ErrorCode::DatabaseCorrupt), "page {page}");
                    true
                }
            })
            .collect();
        assert!(!failed.is_empty(), "page {page}");
        // A page of the tree has the beginnings of several notes.
        if failed.len() == 1 {
            let write = "UPDATE notes SET text = 'short' WHERE rowid = ?1";
            connection.execute(write, [(failed[0] + 1) % 8 + 1]).unwrap();
        }
    }
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
