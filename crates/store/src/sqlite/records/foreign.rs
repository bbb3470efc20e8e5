//! Opens the database of another program: SQLite without encryption. The file is not trusted: it may be damaged, or made
//! to harm a reader.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Params};

/// How long to wait for the program when it writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer values are left out.
pub const MAX_VALUE_BYTES: i64 = 8 << 20;

/// Why the database of another program cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ForeignError {
    /// It is not a database that Hob knows.
    #[error("not a database of {program} in a format that Hob can read: {reason}")]
    Unknown { program: &'static str, reason: String },
    #[error("cannot read the database: {0}")]
    Failed(#[from] rusqlite::Error),
}

/// Opens a database that has these tables. Nothing is written to it. Blocks.
pub fn open_foreign(
    path: &Path,
    program: &'static str,
    tables: &[&str],
) -> Result<Connection, ForeignError> {
    let unknown = |reason: String| ForeignError::Unknown { program, reason };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    // Links on the way to the folder are the owner's. The file itself may not be one.
    let (parent, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
    let parent = parent.canonicalize().map_err(|error| unknown(error.to_string()))?;
    let connection = Connection::open_with_flags(parent.join(name), flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    // A view of this name could run any statement.
    for table in tables {
        let sql = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?1 \
                   AND sql NOT LIKE '%VIRTUAL%' AND sql NOT LIKE '%GENERATED%'";
        let found: i64 = connection
            .query_row(sql, [table], |row| row.get(0))
            .map_err(|error| unknown(error.to_string()))?;
        if found != 1 {
            return Err(unknown(format!("it has no table `{table}`")));
        }
    }
    Ok(connection)
}

/// Returns whether a table has a column. Both names are Hob's own.
pub fn has_column(connection: &Connection, table: &str, column: &str) -> bool {
    connection.prepare(&format!("SELECT {column} FROM {table}")).is_ok()
}

/// Returns the first value of the first row as bytes, whether it is a text or a blob.
pub fn first_value(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
) -> Result<Option<Vec<u8>>, ForeignError> {
    let mut statement = connection.prepare_cached(sql)?;
    let value = statement.query_row(parameters, |row| {
        Ok(row.get_ref(0)?.as_bytes().map(<[u8]>::to_vec).unwrap_or_default())
    });
    Ok(value.optional()?)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Creates a database as another program would.
    pub fn create(path: &Path, sql: &str) -> Connection {
        let connection = Connection::open(path).unwrap();
        connection.execute_batch(sql).unwrap();
        connection
    }

    #[test]
    fn other_files_are_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| open_foreign(&folder.path().join(name), "Heron", &["nest", "egg"]);
        let check = |name: &str, sql: &str| {
            create(&folder.path().join(name), sql);
            let found = open(name);
            assert!(matches!(found, Err(ForeignError::Unknown { .. })), "{name}");
        };
        check("other", "CREATE TABLE other (id);");
        // An endless query in place of a table.
        check(
            "view",
            "CREATE TABLE nest (id); CREATE VIEW egg AS \
             WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n;",
        );
        let words = "just words, but enough of them for the header of a database file".repeat(9);
        std::fs::write(folder.path().join("words"), words).unwrap();
        assert!(matches!(open("words"), Err(ForeignError::Unknown { .. })));
        assert!(open("missing").is_err());
        create(&folder.path().join("real"), "CREATE TABLE nest (id); CREATE TABLE egg (id);");
        std::os::unix::fs::symlink(folder.path().join("real"), folder.path().join("link")).unwrap();
        assert!(open("real").is_ok());
        assert!(open("link").is_err());
    }
}
