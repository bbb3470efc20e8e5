//! Reads what can be read of a damaged file.
//!
//! A page whose authentication fails makes the whole connection unusable, so every failure needs a new one. A table is read
//! from both ends. What is left between them is probed in its middle, again and again, because there may be readable pages
//! between two damaged ones.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use hob_domain::DataKey;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::sqlite::{OpenError, connect_leniently, open_error};

/// How many rows are read at a time.
const PAGE_ROWS: usize = 100;
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
    path: PathBuf,
    key: DataKey,
    /// `None` after a failure.
    connection: Option<Connection>,
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
        let mut file = DamagedFile { path: path.to_owned(), key: key.clone(), connection: None };
        file.attempt(|connection| {
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
        })
        .map_err(|error| open_error(path, error))?;
        Ok(file)
    }

    /// Runs a query. After a failure the next one gets a new connection.
    pub(super) fn attempt<T>(
        &mut self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect_leniently(&self.path, &self.key)?,
        };
        let result = query(&connection);
        if result.is_ok() {
            self.connection = Some(connection);
        }
        result
    }

    /// Returns the names of a table's columns.
    pub(super) fn columns(&mut self, table: &str) -> rusqlite::Result<Vec<String>> {
        self.attempt(|connection| {
            let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
            statement.query_map([table], |row| row.get(0))?.collect()
        })
    }

    /// Returns how many rows a table had, counted by an index of it, if one can be read.
    pub(super) fn count_by_index(&mut self, table: &str) -> Option<u64> {
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
        &mut self,
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
    fn read_from(
        &mut self,
        table: &TableShape,
        gap: &mut Gap,
        direction: &Direction,
        reading: &mut Reading,
        take: &mut impl FnMut(Row) -> Result<(), OpenError>,
    ) -> Result<bool, OpenError> {
        // One row at a time after a failure: those before the damaged page are still readable.
        let mut limit = PAGE_ROWS;
        loop {
            let (sql, values) = select(table, gap, direction, limit);
            let page = self.attempt(|connection| {
                let mut statement = connection.prepare_cached(&sql)?;
                let columns = statement.column_count();
                let rows = statement.query_map(params_from_iter(&values), |row| {
                    (0..columns).map(|index| row.get::<_, Value>(index)).collect::<Result<Row, _>>()
                })?;
                rows.collect::<rusqlite::Result<Vec<Row>>>()
            });
            let page = match page {
                Ok(page) => page,
                Err(_) if limit > 1 => {
                    limit = if limit == PAGE_ROWS { 8 } else { 1 };
                    continue;
                }
                Err(_) => return Ok(false),
            };
            let is_last = page.len() < limit;
            for row in page {
                let key = row[..table.key.len()].to_vec();
                match direction {
                    Direction::Up => (gap.low, gap.low_is_guess) = (Some(key), false),
                    Direction::Down => gap.high = Some(key),
                }
                take(row)?;
                reading.rows += 1;
            }
            if is_last {
                return Ok(true);
            }
        }
    }
}

/// Returns the statement that reads a gap from one of its ends, and its parameters.
fn select(
    table: &TableShape,
    gap: &Gap,
    direction: &Direction,
    limit: usize,
) -> (String, Vec<Value>) {
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
    let sql = format!(
        "SELECT {key}, \"{columns}\" FROM \"{name}\" {condition} ORDER BY {order} LIMIT {limit}"
    );
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
}
