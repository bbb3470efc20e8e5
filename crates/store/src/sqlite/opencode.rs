//! Reads the database of another program: OpenCode's `opencode.db`, which is SQLite without
//! encryption. The file is not trusted: it may be damaged, or made to harm a reader.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

/// How long to wait for OpenCode when it writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer values are left out.
const MAX_VALUE_BYTES: i64 = 8 << 20;

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

/// Why a database of OpenCode cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpencodeError {
    /// It is not a database that Hob knows.
    #[error("not an OpenCode database in a format that Hob can read: {0}")]
    Unknown(String),
    #[error("cannot read the database: {0}")]
    Failed(#[from] rusqlite::Error),
}

impl OpencodeDatabase {
    /// Opens the database. Nothing is written to it. Blocks.
    pub fn open(path: &Path) -> Result<OpencodeDatabase, OpencodeError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        // Links on the way to the folder are the owner's. The file itself may not be one.
        let (parent, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
        let parent =
            parent.canonicalize().map_err(|error| OpencodeError::Unknown(error.to_string()))?;
        let connection = Connection::open_with_flags(parent.join(name), flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        // A view of this name could run any statement.
        for table in ["session", "message", "part"] {
            let sql = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?1 \
                       AND sql NOT LIKE '%VIRTUAL%' AND sql NOT LIKE '%GENERATED%'";
            let tables: i64 = connection
                .query_row(sql, [table], |row| row.get(0))
                .map_err(|error| OpencodeError::Unknown(error.to_string()))?;
            if tables != 1 {
                return Err(OpencodeError::Unknown(format!("it has no table `{table}`")));
            }
        }
        Ok(OpencodeDatabase { connection })
    }

    /// Returns the sessions, the oldest first. Sessions of sub-agents are left out.
    pub fn sessions(&self) -> Result<Vec<OpencodeSessionRow>, OpencodeError> {
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
    pub fn parts(&self, session: &str) -> Result<Vec<OpencodePartRow>, OpencodeError> {
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
    use super::*;

    /// The tables of OpenCode 1.18.33, with the columns that are read.
    const SCHEMA: &str = "CREATE TABLE session (id text PRIMARY KEY, parent_id text, directory text NOT NULL, \
         time_created integer NOT NULL);
        CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL, \
         data text NOT NULL);
        CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL, \
         data text NOT NULL);";

    fn create(path: &Path, sql: &str) -> Connection {
        let connection = Connection::open(path).unwrap();
        connection.execute_batch(sql).unwrap();
        connection
    }

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

    #[test]
    fn other_files_are_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let check = |name: &str, sql: &str| {
            let path = folder.path().join(name);
            create(&path, sql);
            let found = OpencodeDatabase::open(&path);
            assert!(matches!(found, Err(OpencodeError::Unknown(_))), "{name}");
        };
        check("other", "CREATE TABLE other (id);");
        // An endless query in place of a table.
        check(
            "view",
            "CREATE TABLE session (id); CREATE TABLE part (id); CREATE VIEW message AS \
             WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n;",
        );
        let words = folder.path().join("words");
        std::fs::write(
            &words,
            "just words, but enough of them for the header of a database file".repeat(9),
        )
        .unwrap();
        assert!(matches!(OpencodeDatabase::open(&words), Err(OpencodeError::Unknown(_))));
        assert!(OpencodeDatabase::open(&folder.path().join("missing")).is_err());
        create(&folder.path().join("real"), SCHEMA);
        std::os::unix::fs::symlink(folder.path().join("real"), folder.path().join("link")).unwrap();
        assert!(OpencodeDatabase::open(&folder.path().join("real")).is_ok());
        assert!(OpencodeDatabase::open(&folder.path().join("link")).is_err());
    }
}
