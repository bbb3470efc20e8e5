//! Reads `threads.db` of the editor Zed: one row per thread. Later versions have added columns; the first one has those
//! that are needed.

use std::io::Read;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension};
use ruzstd::decoding::StreamingDecoder;

use super::foreign::{ForeignError, MAX_VALUE_BYTES, has_column, open_foreign};

/// How many threads are read at most.
const MAX_THREADS: i64 = 100_000;
/// Longer data of a thread are left out. A few bytes can be decompressed to any number of them.
const MAX_THREAD_BYTES: u64 = 32 << 20;

/// Zed's database, opened to read it.
pub struct ZedDatabase {
    connection: Connection,
}

/// One thread of Zed. Columns that a version does not have are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZedThreadRow {
    pub id: String,
    /// The folders that were open, sorted, each on its own line.
    pub folders: String,
    /// For each of the folders, when it was opened.
    pub order: String,
}

impl ZedDatabase {
    /// Opens the database. Nothing is written to it. Blocks.
    pub fn open(path: &Path) -> Result<ZedDatabase, ForeignError> {
        let connection = open_foreign(path, "Zed", &["threads"])?;
        Ok(ZedDatabase { connection })
    }

    /// Returns the threads. Those of sub-agents are left out.
    pub fn threads(&self) -> Result<Vec<ZedThreadRow>, ForeignError> {
        let column = |name: &str| match has_column(&self.connection, "threads", name) {
            true => format!("coalesce(CAST({name} AS TEXT), '')"),
            false => "''".to_owned(),
        };
        let sql = format!(
            "SELECT id, {}, {} FROM threads WHERE typeof(id) = 'text' AND {} = '' ORDER BY id LIMIT ?1",
            column("folder_paths"),
            column("folder_paths_order"),
            column("parent_id"),
        );
        let mut statement = self.connection.prepare(&sql)?;
        let rows = statement.query_map([MAX_THREADS], |row| {
            Ok(ZedThreadRow { id: row.get(0)?, folders: row.get(1)?, order: row.get(2)? })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Returns the data of a thread, which are JSON, unless they are too long or cannot be decompressed.
    pub fn data(&self, thread: &str) -> Result<Option<Vec<u8>>, ForeignError> {
        let sql = "SELECT data_type, data FROM threads WHERE id = ?1 AND typeof(data_type) = 'text' \
                   AND typeof(data) IN ('text', 'blob') AND length(data) <= ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let row = statement.query_row((thread, MAX_VALUE_BYTES), |row| {
            let data = row.get_ref(1)?.as_bytes().map(<[u8]>::to_vec).unwrap_or_default();
            Ok((row.get::<_, String>(0)?, data))
        });
        Ok(row.optional()?.and_then(|(data_type, data)| match data_type.as_str() {
            "json" => Some(data),
            "zstd" => decompressed(&data),
            _ => None,
        }))
    }
}

/// Decompresses one frame of Zstandard. Returns `None` if it is damaged, or too long.
fn decompressed(data: &[u8]) -> Option<Vec<u8>> {
    // The decoder holds a window of the text in addition to it.
    let decoder = StreamingDecoder::new_with_max_window_size(data, MAX_THREAD_BYTES).ok()?;
    let mut text = Vec::new();
    decoder.take(MAX_THREAD_BYTES + 1).read_to_end(&mut text).ok()?;
    (text.len() as u64 <= MAX_THREAD_BYTES).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::super::foreign::tests::create;
    use super::*;

    /// The table of the first version.
    const FIRST: &str = "CREATE TABLE threads (id TEXT PRIMARY KEY, summary TEXT NOT NULL, \
         updated_at TEXT NOT NULL, data_type TEXT NOT NULL, data BLOB NOT NULL);
        INSERT INTO threads VALUES ('t1', 'Herons', '2025-07-01T10:00:00Z', 'json', '{\"a\":1}');";

    /// `{"a":1}`, as `zstd -3 --no-check` compresses what it reads from its standard input.
    const COMPRESSED: &str = "28b52ffd00583900007b2261223a317d";

    /// Returns 64 MiB of spaces in two kilobytes: 512 blocks that repeat one byte.
    fn bomb() -> String {
        let (repeated, last) = ("02001020", "03001020");
        format!("28b52ffd0058{}{last}", repeated.repeat(511))
    }

    #[test]
    fn threads_of_every_schema_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("threads.db");
        let writer = create(&path, FIRST);
        let first =
            ZedThreadRow { id: "t1".to_owned(), folders: String::new(), order: String::new() };
        let database = ZedDatabase::open(&path).unwrap();
        assert_eq!(database.threads().unwrap(), std::slice::from_ref(&first));
        assert_eq!(database.data("t1").unwrap().as_deref(), Some(&b"{\"a\":1}"[..]));
        assert_eq!(database.data("t2").unwrap(), None);
        let sql = format!(
            "ALTER TABLE threads ADD COLUMN parent_id TEXT;
            ALTER TABLE threads ADD COLUMN folder_paths TEXT;
            ALTER TABLE threads ADD COLUMN folder_paths_order TEXT;
            ALTER TABLE threads ADD COLUMN created_at TEXT;
            INSERT INTO threads VALUES \
             ('t2', 'Egrets', '', 'zstd', x'{COMPRESSED}', NULL, '/w/a' || char(10) || '/w/b', '1,0', ''), \
             ('t3', 'of a sub-agent', '', 'zstd', x'{COMPRESSED}', 't2', NULL, NULL, '');"
        );
        writer.execute_batch(&sql).unwrap();
        let database = ZedDatabase::open(&path).unwrap();
        let second = ZedThreadRow {
            id: "t2".to_owned(),
            folders: "/w/a\n/w/b".to_owned(),
            order: "1,0".to_owned(),
        };
        assert_eq!(database.threads().unwrap(), [first, second], "without the sub-agent's");
        assert_eq!(database.data("t2").unwrap().as_deref(), Some(&b"{\"a\":1}"[..]));
    }

    #[test]
    fn data_that_are_too_long_or_damaged_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("threads.db");
        let (bomb, damaged) = (bomb(), &COMPRESSED[..COMPRESSED.len() - 4]);
        let sql = format!(
            "{FIRST} INSERT INTO threads VALUES ('bomb', '', '', 'zstd', x'{bomb}'), \
             ('damaged', '', '', 'zstd', x'{damaged}'), ('words', '', '', 'zstd', 'just words'), \
             ('empty', '', '', 'zstd', x''), ('new', '', '', 'brotli', x'{COMPRESSED}'), \
             ('long', '', '', 'json', zeroblob(9000000));"
        );
        create(&path, &sql);
        let database = ZedDatabase::open(&path).unwrap();
        for thread in ["bomb", "damaged", "words", "empty", "new", "long"] {
            assert_eq!(database.data(thread).unwrap(), None, "{thread}");
        }
    }
}
