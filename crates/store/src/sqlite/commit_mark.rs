//! The number of the last commit, in a small file next to the database.
//!
//! The database counts its commits in its header. A file that was replaced by an older copy, or has lost a part of its
//! write-ahead log, is behind the number that was noted outside of it.

#![allow(clippy::disallowed_methods, reason = "SQLite opens the database next to it by its path")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

/// Numbers go from 0 to this one and then begin again.
const MAX_NUMBER: u32 = i32::MAX.cast_unsigned();

/// The file with the number. It is created with the first number.
pub(crate) struct CommitMark {
    path: PathBuf,
    file: Option<File>,
}

impl CommitMark {
    pub(crate) fn of(database: &Path) -> CommitMark {
        CommitMark { path: path_of(database), file: None }
    }

    /// Notes the number of a commit that is durable. The text always has the same length, so that it is replaced at once.
    pub(crate) fn write(&mut self, number: u32) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(false).mode(0o600);
                options.open(&self.path)?
            }
        };
        self.file.insert(file).write_all_at(format!("{number:010}\n").as_bytes(), 0)
    }
}

/// Returns the number of the last commit that was noted, if any was.
pub fn noted_commit(database: &Path) -> Option<u32> {
    fs::read_to_string(path_of(database)).ok()?.trim().parse().ok()
}

/// Forgets the number: the database is replaced.
pub fn forget_commits(database: &Path) -> io::Result<()> {
    match fs::remove_file(path_of(database)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns whether a database with the commit `found` is behind the commit `noted`.
pub fn is_behind(found: u32, noted: u32) -> bool {
    let ahead = noted.wrapping_sub(found) & MAX_NUMBER;
    (1..=MAX_NUMBER / 2).contains(&ahead)
}

/// Writes the number that follows `last` into a database's header, in the current transaction. Returns it.
pub(super) fn count_commit(connection: &Connection, last: u32) -> rusqlite::Result<u32> {
    let next = (last + 1) & MAX_NUMBER;
    // The header has this number for the use of applications, so no table is needed for it.
    connection.pragma_update(None, "application_id", next)?;
    Ok(next)
}

pub(super) fn read_number(connection: &Connection) -> rusqlite::Result<u32> {
    let number: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    Ok(number.max(0).cast_unsigned())
}

fn path_of(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-mark");
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_also_after_they_began_again() {
        assert!(is_behind(1, 2) && is_behind(MAX_NUMBER, 0) && is_behind(MAX_NUMBER - 5, 10));
        assert!(!is_behind(2, 2) && !is_behind(3, 2) && !is_behind(0, MAX_NUMBER));
    }

    #[test]
    fn number_is_kept_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("x.db");
        assert_eq!(noted_commit(&database), None);
        for number in [1_000_000, 7] {
            CommitMark::of(&database).write(number).unwrap();
            assert_eq!(noted_commit(&database), Some(number));
        }
        forget_commits(&database).unwrap();
        forget_commits(&database).unwrap();
        assert_eq!(noted_commit(&database), None);
    }
}
