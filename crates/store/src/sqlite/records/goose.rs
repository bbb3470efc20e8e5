//! Reads goose's `sessions.db`. Later versions have added columns; the first one has those that are needed.

use std::path::Path;

use rusqlite::Connection;

use super::foreign::{ForeignError, MAX_VALUE_BYTES, has_column, open_foreign};

/// goose's database, opened to read it.
pub struct GooseDatabase {
    connection: Connection,
}

/// One session of goose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GooseSessionRow {
    pub id: String,
    pub folder: String,
    /// When it was created, as a text.
    pub created: String,
}

/// One message of a session. `content` and `metadata` are JSON as goose wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GooseMessageRow {
    pub role: String,
    pub content: String,
    /// The seconds since 1970.
    pub created: Option<i64>,
    /// Empty if the version has none.
    pub metadata: String,
}

impl GooseDatabase {
    /// Opens the database. Nothing is written to it. Blocks.
    pub fn open(path: &Path) -> Result<GooseDatabase, ForeignError> {
        let connection = open_foreign(path, "goose", &["sessions", "messages"])?;
        Ok(GooseDatabase { connection })
    }

    /// Returns the sessions, the oldest first. Sessions of sub-agents, and those that goose hides, are left out.
    pub fn sessions(&self) -> Result<Vec<GooseSessionRow>, ForeignError> {
        let filter = match has_column(&self.connection, "sessions", "session_type") {
            true => "AND session_type NOT IN ('sub_agent', 'hidden')",
            false => "",
        };
        let sql = format!(
            "SELECT id, working_dir, CAST(coalesce(created_at, '') AS TEXT) FROM sessions \
             WHERE typeof(id) = 'text' AND typeof(working_dir) = 'text' {filter} ORDER BY rowid"
        );
        let mut statement = self.connection.prepare(&sql)?;
        let rows = statement.query_map([], |row| {
            Ok(GooseSessionRow { id: row.get(0)?, folder: row.get(1)?, created: row.get(2)? })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Returns the messages of a session that have texts, in order. Long ones, which are results of tools, are left out.
    pub fn messages(&self, session: &str) -> Result<Vec<GooseMessageRow>, ForeignError> {
        let metadata = match has_column(&self.connection, "messages", "metadata_json") {
            true => "CASE WHEN length(metadata_json) <= ?2 THEN CAST(metadata_json AS TEXT) END",
            false => "NULL",
        };
        let sql = format!(
            "SELECT role, content_json, CAST(created_timestamp AS INTEGER), coalesce({metadata}, '') \
             FROM messages WHERE session_id = ?1 AND typeof(role) = 'text' \
             AND typeof(content_json) = 'text' AND length(content_json) <= ?2 \
             AND instr(content_json, '\"text\"') > 0 ORDER BY id"
        );
        let mut statement = self.connection.prepare(&sql)?;
        let rows = statement.query_map((session, MAX_VALUE_BYTES), |row| {
            Ok(GooseMessageRow {
                role: row.get(0)?,
                content: row.get(1)?,
                created: row.get(2)?,
                metadata: row.get(3)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::foreign::tests::create;
    use super::*;

    /// The tables of the first schema, with the columns that are read.
    const FIRST: &str = "CREATE TABLE sessions (id TEXT PRIMARY KEY, working_dir TEXT NOT NULL, \
         created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);
        CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, \
         role TEXT NOT NULL, content_json TEXT NOT NULL, created_timestamp INTEGER NOT NULL);
        INSERT INTO sessions VALUES ('20251118_1', '/w', '2025-11-18 10:31:12');
        INSERT INTO messages (session_id, role, content_json, created_timestamp) VALUES \
         ('20251118_1', 'user', '[{\"type\":\"text\",\"text\":\"a\"}]', 1), \
         ('20251118_1', 'user', '[{\"type\":\"toolResponse\"}]', 2), \
         ('other', 'user', '[{\"type\":\"text\",\"text\":\"b\"}]', 3);";

    #[test]
    fn sessions_of_every_schema_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        let writer = create(&path, FIRST);
        let (id, at) = ("20251118_1".to_owned(), "2025-11-18 10:31:12".to_owned());
        let session = GooseSessionRow { id, folder: "/w".to_owned(), created: at };
        let message = GooseMessageRow {
            role: "user".to_owned(),
            content: "[{\"type\":\"text\",\"text\":\"a\"}]".to_owned(),
            created: Some(1),
            metadata: String::new(),
        };
        let database = GooseDatabase::open(&path).unwrap();
        assert_eq!(database.sessions().unwrap(), std::slice::from_ref(&session));
        assert_eq!(database.messages("20251118_1").unwrap(), std::slice::from_ref(&message));
        writer
            .execute_batch(
                "ALTER TABLE sessions ADD COLUMN session_type TEXT NOT NULL DEFAULT 'user';
                ALTER TABLE messages ADD COLUMN metadata_json TEXT;
                INSERT INTO sessions VALUES ('20251118_2', '/w', '2025-11-18 11:00:00', 'sub_agent');
                UPDATE messages SET metadata_json = '{\"userVisible\":true}' WHERE id = 1;",
            )
            .unwrap();
        let database = GooseDatabase::open(&path).unwrap();
        assert_eq!(database.sessions().unwrap(), [session], "without the sub-agent's");
        let metadata = "{\"userVisible\":true}".to_owned();
        assert_eq!(
            database.messages("20251118_1").unwrap(),
            [GooseMessageRow { metadata, ..message }]
        );
    }
}
