//! Reads what can be read of a damaged file.
//!
//! A table is read from both ends. What is left between them is probed in its middle, again and again, because there may be
//! readable pages between two damaged ones.

use std::collections::VecDeque;
use std::path::Path;

use hob_domain::DataKey;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::sqlite::{OpenError, connect_leniently, open_error};

/// How many gaps of a table are looked into. Each takes a few milliseconds.
const MAX_GAPS: usize = 400;
/// How many characters of a key are considered for the middle of a gap.
const MAX_KEY_BYTES: usize = 40;

/// A table: the columns to read, and those of its key, which it is stored by.
pub(super) struct TableShape {
    pub(super) name: String,
    pub(super) columns: Vec<String>,
    pub(super) key: Vec<String>,
}

/// What was read of a table.
pub(super) struct Reading {
    pub(super) rows: u64,
    /// Whether a part of it could not be read.
    pub(super) damaged: bool,
}

type Row = Vec<Value>;

/// A damaged file.
pub(super) struct DamagedFile {
    connection: Connection,
}

/// A range of keys that was not read yet. The lower bound is included if it is only a guess, the upper one never is.
#[derive(Clone)]
struct Gap {
    low: Option<Row>,
    low_is_guess: bool,
    high: Option<Row>,
}

enum Direction {
    Up,
    Down,
}

impl DamagedFile {
    /// Opens the file. Fails if not even its list of tables can be read.
    pub(super) fn open(path: &Path, key: &DataKey) -> Result<DamagedFile, OpenError> {
        let open = || {
            let connection = connect_leniently(path, key)?;
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
            Ok(DamagedFile { connection })
        };
        open().map_err(|error| open_error(path, error))
    }

    /// Runs a query. Others work after a failed one.
    pub(super) fn attempt<T>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        query(&self.connection)
    }

    /// Returns the names of a table's columns.
    pub(super) fn columns(&self, table: &str) -> rusqlite::Result<Vec<String>> {
        self.attempt(|connection| {
            let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
            statement.query_map([table], |row| row.get(0))?.collect()
        })
    }

    /// Returns how many rows a table had, counted by an index of it, if one can be read.
    pub(super) fn count_by_index(&self, table: &str) -> Option<u64> {
        let indexes: Vec<String> = self
            .attempt(|connection| {
                let sql =
                    "SELECT name FROM pragma_index_list(?1) WHERE partial = 0 AND origin != 'pk'";
                connection.prepare(sql)?.query_map([table], |row| row.get(0))?.collect()
            })
            .ok()?;
        // Without a name SQLite chooses one of those that it has made itself, if there is one.
        let named = indexes.iter().filter(|index| !index.starts_with("sqlite_"));
        let choices = named.map(|index| format!("INDEXED BY \"{index}\"")).chain([String::new()]);
        let choices: Vec<String> = choices.collect();
        choices.into_iter().find_map(|choice| {
            let sql = format!("SELECT count(*) FROM \"{table}\" {choice}");
            self.attempt(|connection| connection.query_row(&sql, [], |row| row.get::<_, i64>(0)))
                .ok()
                .map(i64::cast_unsigned)
        })
    }

    /// Passes every row that can be read to `take`, in no particular order. A row begins with its key.
    pub(super) fn read(
        &self,
        table: &TableShape,
        mut take: impl FnMut(Row) -> Result<(), OpenError>,
    ) -> Result<Reading, OpenError> {
        let mut reading = Reading { rows: 0, damaged: false };
        let mut gaps = VecDeque::from([Gap { low: None, low_is_guess: false, high: None }]);
        let mut looked_into = 0;
        while let Some(mut gap) = gaps.pop_front() {
            if self.read_from(table, &mut gap, &Direction::Up, &mut reading, &mut take)?
                || self.read_from(table, &mut gap, &Direction::Down, &mut reading, &mut take)?
            {
                continue;
            }
            reading.damaged = true;
            looked_into += 1;
            if looked_into > MAX_GAPS {
                break;
            }
            if let Some(middle) = middle_of(&gap) {
                gaps.push_back(Gap { high: Some(middle.clone()), ..gap.clone() });
                gaps.push_back(Gap { low: Some(middle), low_is_guess: true, ..gap });
            }
        }
        Ok(reading)
    }

    /// Reads a gap from one of its ends and narrows it. Returns whether its other end was reached.
    ///
    /// One statement reads all of it. A second one would have to seek, and a seek fails if any of the rows that it compares
    /// with has a damaged page, however far that row is from the one that is sought.
    fn read_from(
        &self,
        table: &TableShape,
        gap: &mut Gap,
        direction: &Direction,
        reading: &mut Reading,
        take: &mut impl FnMut(Row) -> Result<(), OpenError>,
    ) -> Result<bool, OpenError> {
        let (sql, values) = select(table, gap, direction);
        let mut taken = Ok(());
        let read = self.attempt(|connection| {
            let mut statement = connection.prepare(&sql)?;
            let columns = statement.column_count();
            let mut rows = statement.query(params_from_iter(&values))?;
            while taken.is_ok()
                && let Some(row) = rows.next()?
            {
                let row: Row =
                    (0..columns).map(|index| row.get(index)).collect::<rusqlite::Result<_>>()?;
                let key = row[..table.key.len()].to_vec();
                match direction {
                    Direction::Up => (gap.low, gap.low_is_guess) = (Some(key), false),
                    Direction::Down => gap.high = Some(key),
                }
                reading.rows += 1;
                taken = take(row);
            }
            Ok(())
        });
        taken.map(|()| read.is_ok())
    }
}

/// Returns the statement that reads a gap from one of its ends, and its parameters.
fn select(table: &TableShape, gap: &Gap, direction: &Direction) -> (String, Vec<Value>) {
    let mut conditions = Vec::new();
    let mut values = Vec::new();
    let low = if gap.low_is_guess { ">=" } else { ">" };
    for (bound, comparison) in [(&gap.low, low), (&gap.high, "<")] {
        let Some(bound) = bound else { continue };
        // A guess may have fewer columns than the key.
        let columns = table.key[..bound.len()].join(", ");
        let places = vec!["?"; bound.len()].join(", ");
        conditions.push(format!("({columns}) {comparison} ({places})"));
        values.extend(bound.iter().cloned());
    }
    let condition = match conditions.is_empty() {
        true => String::new(),
        false => format!("WHERE {}", conditions.join(" AND ")),
    };
    let order = match direction {
        Direction::Up => table.key.join(", "),
        Direction::Down => format!("{} DESC", table.key.join(" DESC, ")),
    };
    let (key, columns) = (table.key.join(", "), table.columns.join("\", \""));
    let name = &table.name;
    let sql = format!("SELECT {key}, \"{columns}\" FROM \"{name}\" {condition} ORDER BY {order}");
    (sql, values)
}

/// Returns a key in the middle of a gap, or `None` if there is none.
fn middle_of(gap: &Gap) -> Option<Row> {
    let (low, high) = (gap.low.as_deref().unwrap_or(&[]), gap.high.as_deref().unwrap_or(&[]));
    let equal = low.iter().zip(high).take_while(|(low, high)| low == high).count();
    let middle = match (low.get(equal), high.get(equal)) {
        (None, None) => return None,
        (Some(Value::Integer(low)), None) => middle_number(*low, i64::MAX)?,
        (None, Some(Value::Integer(high))) => middle_number(0, *high)?,
        (Some(Value::Integer(low)), Some(Value::Integer(high))) => middle_number(*low, *high)?,
        (Some(Value::Text(low)), None) => middle_text(low, "\u{7f}")?,
        (None, Some(Value::Text(high))) => middle_text("", high)?,
        (Some(Value::Text(low)), Some(Value::Text(high))) => middle_text(low, high)?,
        _ => return None,
    };
    Some(low.iter().take(equal).cloned().chain([middle]).collect())
}

fn middle_number(low: i64, high: i64) -> Option<Value> {
    let middle = low + (high.checked_sub(low)?) / 2;
    (middle > low && middle < high).then_some(Value::Integer(middle))
}

/// Returns a text between two others, which are read as fractions in base 128.
fn middle_text(low: &str, high: &str) -> Option<Value> {
    let digit = |text: &str, at: usize| {
        u32::from(text.as_bytes().get(at).map_or(0, |byte| *byte.min(&127)))
    };
    let mut sum: Vec<u32> = (0..MAX_KEY_BYTES).map(|at| digit(low, at) + digit(high, at)).collect();
    // Half of the sum, from the first digit on; the remainder goes to the next one.
    let mut remainder = 0;
    for value in &mut sum {
        let whole = *value + remainder * 128;
        (*value, remainder) = (whole / 2, whole % 2);
    }
    // A digit may be 128 or more after the addition.
    for at in (1..sum.len()).rev() {
        let carry = sum[at] / 128;
        sum[at] %= 128;
        sum[at - 1] += carry;
    }
    let end = sum.iter().rposition(|value| *value != 0)? + 1;
    let bytes: Option<Vec<u8>> = sum[..end].iter().map(|value| u8::try_from(*value).ok()).collect();
    let middle = String::from_utf8(bytes?).ok()?;
    (middle.as_str() > low && middle.as_str() < high).then_some(Value::Text(middle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{BUSY_TIMEOUT, connect};

    #[test]
    fn middle_lies_between_both_keys() {
        for (low, high) in
            [("a", "c"), ("", "b"), ("01ab", "01ac"), ("0", "\u{7f}"), ("abc", "abd")]
        {
            let Some(Value::Text(middle)) = middle_text(low, high) else { panic!("{low} {high}") };
            assert!(low < middle.as_str() && middle.as_str() < high, "{low} {middle:?} {high}");
        }
        assert_eq!(middle_number(3, 9), Some(Value::Integer(6)));
        assert_eq!(middle_number(3, 4), None);
    }

    #[test]
    fn middle_of_keys_with_an_equal_beginning_is_in_the_next_column() {
        let key = |number| Some(vec![Value::Text("s".to_owned()), Value::Integer(number)]);
        let gap = Gap { low: key(1), low_is_guess: false, high: key(9) };
        assert_eq!(middle_of(&gap), key(5));
    }

    /// Rows of a table without row ids continue on pages of their own, also rows that others are found by.
    #[test]
    fn a_damaged_page_takes_no_rows_of_other_pages_along() {
        /// So few that the root is the only page above the pages of the rows: a damaged page above others loses them all.
        const ROWS: u64 = 45;
        const PAGE_BYTES: usize = 4096;
        /// A row keeps at least 450 bytes in the page where it begins.
        const MAX_ROWS_OF_A_PAGE: u64 = 8;
        let folder = tempfile::tempdir().unwrap();
        let (whole, damaged) = (folder.path().join("whole.db"), folder.path().join("damaged.db"));
        let key = DataKey::from_bytes([7; 32]);
        let create = rusqlite::OpenFlags::SQLITE_OPEN_CREATE;
        let connection = connect(&whole, &key, create, BUSY_TIMEOUT).unwrap();
        connection.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(())).unwrap();
        let table = "CREATE TABLE turns (session TEXT, number INTEGER, body TEXT, PRIMARY KEY (session, number))
            WITHOUT ROWID";
        connection.execute_batch(table).unwrap();
        for number in 0..ROWS {
            let body = format!("{number:08}").repeat(190);
            let values = ("s", number.cast_signed(), body);
            connection.execute("INSERT INTO turns VALUES (?1, ?2, ?3)", values).unwrap();
        }
        let root: u32 = connection
            .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'turns'", [], |row| {
                row.get(0)
            })
            .unwrap();
        drop(connection);
        let bytes = std::fs::read(&whole).unwrap();
        let shape = TableShape {
            name: "turns".to_owned(),
            columns: ["session", "number", "body"].map(str::to_owned).to_vec(),
            key: ["session", "number"].map(str::to_owned).to_vec(),
        };
        let mut damages = 0;
        // Pages count from 1. The first one has the list of tables.
        for page in (2..=bytes.len() / PAGE_BYTES).filter(|page| *page != root as usize) {
            let mut bytes = bytes.clone();
            bytes[(page - 1) * PAGE_BYTES + 2000] ^= 0x5a;
            std::fs::write(&damaged, bytes).unwrap();
            let mut numbers = std::collections::BTreeSet::new();
            let file = DamagedFile::open(&damaged, &key).unwrap();
            let reading = file.read(&shape, |row| {
                let Value::Integer(number) = row[1] else { panic!("{:?}", row[1]) };
                assert!(numbers.insert(number), "{number} was read twice");
                let Value::Text(body) = &row[4] else { panic!("{:?}", row[4]) };
                assert_eq!(*body, format!("{number:08}").repeat(190), "page {page}");
                Ok(())
            });
            let reading = reading.unwrap();
            assert_eq!(reading.rows, numbers.len() as u64);
            assert!(reading.damaged || reading.rows == ROWS, "page {page}");
            assert!(reading.rows + MAX_ROWS_OF_A_PAGE >= ROWS, "page {page}: {}", reading.rows);
            damages += usize::from(reading.damaged);
        }
        assert!(damages > 40, "{damages}");
    }
}
