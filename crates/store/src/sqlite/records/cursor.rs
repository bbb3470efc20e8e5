//! Reads `state.vscdb` of the editor Cursor: one table of keys and values.

use std::path::Path;

use rusqlite::Connection;

use super::foreign::{ForeignError, MAX_VALUE_BYTES, first_value, open_foreign};

/// How many conversations are read at most.
const MAX_CONVERSATIONS: i64 = 100_000;

/// Cursor's database, opened to read it. Values are JSON as Cursor wrote it.
pub struct CursorDatabase {
    connection: Connection,
}

impl CursorDatabase {
    /// Opens the database. Nothing is written to it. Blocks.
    pub fn open(path: &Path) -> Result<CursorDatabase, ForeignError> {
        let connection = open_foreign(path, "Cursor", &["cursorDiskKV"])?;
        Ok(CursorDatabase { connection })
    }

    /// Returns the ids of all conversations.
    pub fn conversations(&self) -> Result<Vec<String>, ForeignError> {
        // The character after the colon ends the range of keys.
        let sql = "SELECT substr(key, length('composerData:') + 1) FROM cursorDiskKV \
                   WHERE key >= 'composerData:' AND key < 'composerData;' \
                   AND typeof(key) = 'text' ORDER BY key LIMIT ?1";
        let mut statement = self.connection.prepare(sql)?;
        let ids = statement.query_map([MAX_CONVERSATIONS], |row| row.get::<_, String>(0))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }

    /// Returns the value of a conversation, unless it is too long.
    pub fn conversation(&self, id: &str) -> Result<Option<Vec<u8>>, ForeignError> {
        self.value(&format!("composerData:{id}"))
    }

    /// Returns the value of a conversation's message, unless it is missing or too long.
    pub fn message(
        &self,
        conversation: &str,
        message: &str,
    ) -> Result<Option<Vec<u8>>, ForeignError> {
        self.value(&format!("bubbleId:{conversation}:{message}"))
    }

    fn value(&self, key: &str) -> Result<Option<Vec<u8>>, ForeignError> {
        let sql = "SELECT value FROM cursorDiskKV WHERE key = ?1 \
                   AND typeof(value) IN ('text', 'blob') AND length(value) <= ?2";
        first_value(&self.connection, sql, (key, MAX_VALUE_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::super::foreign::tests::create;
    use super::*;

    #[test]
    fn values_are_found_by_their_keys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.vscdb");
        create(
            &path,
            "CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);
            INSERT INTO cursorDiskKV VALUES ('composerData:c2', '{\"b\":2}'), \
              ('composerData:c1', CAST('{\"a\":1}' AS BLOB)), ('composerData:c3', NULL), \
              ('composerDatabase', 'x'), ('bubbleId:c1:m', '{\"type\":1}'), ('bubbleId:c2:m', 7), \
              ('bubbleId:c1:long', zeroblob(9000000));",
        );
        let database = CursorDatabase::open(&path).unwrap();
        assert_eq!(database.conversations().unwrap(), ["c1", "c2", "c3"]);
        assert_eq!(database.conversation("c1").unwrap().as_deref(), Some(&b"{\"a\":1}"[..]));
        assert_eq!(database.conversation("c2").unwrap().as_deref(), Some(&b"{\"b\":2}"[..]));
        assert_eq!(database.conversation("c3").unwrap(), None);
        assert_eq!(database.message("c1", "m").unwrap().as_deref(), Some(&b"{\"type\":1}"[..]));
        for (conversation, message) in [("c2", "m"), ("c1", "long"), ("c1", "missing")] {
            assert_eq!(database.message(conversation, message).unwrap(), None, "{message}");
        }
    }
}
