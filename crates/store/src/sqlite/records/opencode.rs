//! Reads OpenCode's `opencode.db`.

use std::path::Path;

use rusqlite::Connection;

use super::foreign::{ForeignError, MAX_VALUE_BYTES, open_foreign};

/// OpenCode's database, opened to read it.
pub struct OpencodeDatabase {
    connection: Connection,
}

/// One session of OpenCode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpencodeSessionRow {
    pub id: String,
    pub directory: String,
}

/// One part of a message. Its columns are JSON as OpenCode wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpencodePartRow {
    pub message: String,
    pub message_data: String,
    pub part_data: String,
}

impl OpencodeDatabase {
    /// Opens the database. Nothing is written to it. Blocks.
    pub fn open(path: &Path) -> Result<OpencodeDatabase, ForeignError> {
        let connection = open_foreign(path, "OpenCode", &["session", "message", "part"])?;
        Ok(OpencodeDatabase { connection })
    }

    /// Returns the sessions, the oldest first. Sessions of sub-agents are left out.
    pub fn sessions(&self) -> Result<Vec<OpencodeSessionRow>, ForeignError> {
        let sql = "SELECT id, directory FROM session WHERE parent_id IS NULL \
                   AND typeof(id) = 'text' AND typeof(directory) = 'text' \
                   ORDER BY time_created, id";
        let mut statement = self.connection.prepare(sql)?;
        let rows = statement.query_map([], |row| {
            Ok(OpencodeSessionRow { id: row.get(0)?, directory: row.get(1)? })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Returns the parts of a session's messages, in order. Long values, which are outputs of tools,
    /// are left out.
    pub fn parts(&self, session: &str) -> Result<Vec<OpencodePartRow>, ForeignError> {
        let sql = "SELECT m.id, m.data, p.data FROM message m JOIN part p ON p.message_id = m.id \
                   WHERE m.session_id = ?1 AND typeof(m.id) = 'text' \
                   AND typeof(m.data) = 'text' AND length(m.data) <= ?2 \
                   AND typeof(p.data) = 'text' AND length(p.data) <= ?2 \
                   AND instr(p.data, '\"text\"') > 0 \
                   ORDER BY m.time_created, m.id, p.id";
        let mut statement = self.connection.prepare(sql)?;
        let rows = statement.query_map((session, MAX_VALUE_BYTES), |row| {
            Ok(OpencodePartRow {
                message: row.get(0)?,
                message_data: row.get(1)?,
                part_data: row.get(2)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::foreign::tests::create;
    use super::*;

    /// The tables of OpenCode 1.18.33, with the columns that are read.
    const SCHEMA: &str = "CREATE TABLE session (id text PRIMARY KEY, parent_id text, directory text NOT NULL, \
         time_created integer NOT NULL);
        CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL, \
         data text NOT NULL);
        CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL, \
         data text NOT NULL);";

    #[test]
    fn sessions_and_texts_are_read_while_opencode_writes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("opencode.db");
        let writer = create(&path, "PRAGMA journal_mode = wal;");
        writer.execute_batch(SCHEMA).unwrap();
        writer
            .execute_batch(
                "INSERT INTO session VALUES ('ses_2', NULL, '/w', 2), ('ses_1', NULL, '/v', 1), \
                  ('ses_3', 'ses_1', '/w', 3);
                INSERT INTO message VALUES ('m2', 'ses_1', 2, '{\"role\":\"assistant\"}'), \
                  ('m1', 'ses_1', 1, '{\"role\":\"user\"}');
                INSERT INTO part VALUES ('p3', 'm2', 'ses_1', '{\"type\":\"text\",\"text\":\"b\"}'), \
                  ('p2', 'm2', 'ses_1', '{\"type\":\"step-start\"}'), \
                  ('p1', 'm1', 'ses_1', '{\"type\":\"text\",\"text\":\"a\"}'), \
                  ('p4', 'm2', 'ses_1', x'00');",
            )
            .unwrap();
        let database = OpencodeDatabase::open(&path).unwrap();
        let sessions = database.sessions().unwrap();
        let names: Vec<(&str, &str)> =
            sessions.iter().map(|row| (row.id.as_str(), row.directory.as_str())).collect();
        assert_eq!(names, [("ses_1", "/v"), ("ses_2", "/w")], "without the sub-agent's");
        let parts = database.parts("ses_1").unwrap();
        let texts: Vec<&str> = parts.iter().map(|row| row.part_data.as_str()).collect();
        let expect = ["{\"type\":\"text\",\"text\":\"a\"}", "{\"type\":\"text\",\"text\":\"b\"}"];
        assert_eq!(texts, expect);
        assert_eq!(
            (parts[1].message.as_str(), parts[1].message_data.as_str()),
            ("m2", "{\"role\":\"assistant\"}")
        );
        assert_eq!(database.parts("ses_2").unwrap(), []);
    }
}
