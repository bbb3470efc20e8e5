//! Reads `store.db` of Cursor's command line: one chat, as values that are known by their digests.

use std::path::Path;

use rusqlite::Connection;

use super::foreign::{ForeignError, MAX_VALUE_BYTES, first_value, open_foreign};

/// A chat's database, opened to read it.
pub struct CursorChatDatabase {
    connection: Connection,
}

impl CursorChatDatabase {
    /// Opens the database. Nothing is written to it. Blocks.
    pub fn open(path: &Path) -> Result<CursorChatDatabase, ForeignError> {
        let connection = open_foreign(path, "Cursor", &["meta", "blobs"])?;
        Ok(CursorChatDatabase { connection })
    }

    /// Returns the description of the chat, as hexadecimal JSON.
    pub fn description(&self) -> Result<Option<Vec<u8>>, ForeignError> {
        let sql = "SELECT value FROM meta WHERE key = '0' \
                   AND typeof(value) IN ('text', 'blob') AND length(value) <= ?1";
        first_value(&self.connection, sql, [MAX_VALUE_BYTES])
    }

    /// Returns a value by its id, unless it is missing or too long.
    pub fn blob(&self, id: &str) -> Result<Option<Vec<u8>>, ForeignError> {
        let sql = "SELECT data FROM blobs WHERE id = ?1 \
                   AND typeof(data) IN ('text', 'blob') AND length(data) <= ?2";
        first_value(&self.connection, sql, (id, MAX_VALUE_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::super::foreign::tests::create;
    use super::*;

    #[test]
    fn values_are_found_by_their_ids() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        create(
            &path,
            "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT);
            CREATE TABLE blobs (id TEXT PRIMARY KEY, data BLOB);
            INSERT INTO meta VALUES ('0', '7b7d');
            INSERT INTO blobs VALUES ('a', x'0aff'), ('b', '{}'), ('c', NULL);",
        );
        let database = CursorChatDatabase::open(&path).unwrap();
        assert_eq!(database.description().unwrap().as_deref(), Some(&b"7b7d"[..]));
        assert_eq!(database.blob("a").unwrap().as_deref(), Some(&b"\x0a\xff"[..]));
        assert_eq!(database.blob("b").unwrap().as_deref(), Some(&b"{}"[..]));
        assert_eq!(database.blob("c").unwrap(), None);
        assert_eq!(database.blob("d").unwrap(), None);
    }
}
