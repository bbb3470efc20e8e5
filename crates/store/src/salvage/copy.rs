//! Salvages a ledger or a memory into a new file.

use std::path::Path;

use hob_domain::DataKey;
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, OpenFlags, params_from_iter};

use super::reader::{DamagedFile, TableShape};
use crate::memory::sqlite::SalvagedTurns;
use crate::migrate::Analyse;
use crate::sqlite::{BUSY_TIMEOUT, OpenError, connect, migrations, open_error};

/// How many rows are written in one transaction.
const MAX_TRANSACTION_ROWS: usize = 500;

/// What was salvaged of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SalvagedTable {
    pub table: String,
    pub taken: u64,
    /// The number of rows that could not be taken; `None` if it is not known.
    pub lost: Option<u64>,
}

/// The tables of a ledger, those that others refer to first. Heartbeats of nodes are left out.
const LEDGER_TABLES: [&str; 8] =
    ["apps", "sessions", "turns", "events", "usage", "documents", "outbox", "audit"];
/// The tables of a memory before and after its turns. The index is built again. Model vectors are computed again by the
/// server, and transcripts can be imported again.
const MEMORY_TABLES: [&str; 2] = ["projects", "sessions"];
const MEMORY_TABLES_AFTER: [&str; 3] = ["forgotten", "forgotten_sessions", "events"];

/// Copies what can be read of a damaged ledger into a new file. Nothing else may use either file. Blocks.
pub fn salvage_ledger(
    from: &Path,
    to: &Path,
    key: &DataKey,
) -> Result<Vec<SalvagedTable>, OpenError> {
    let source = DamagedFile::open(from, key)?;
    let mut target = create(to, key, &migrations::LEDGER)?;
    let salvaged = LEDGER_TABLES
        .iter()
        .map(|table| copy(&source, &mut target, to, table))
        .collect::<Result<_, _>>()?;
    finish(target, to)?;
    Ok(salvaged)
}

/// Copies what can be read of a damaged memory into a new file, and indexes its turns again. Turns whose session or project
/// is lost get a new one. Nothing else may use either file. Blocks.
pub fn salvage_memory(
    from: &Path,
    to: &Path,
    key: &DataKey,
    analyse: &Analyse,
) -> Result<Vec<SalvagedTable>, OpenError> {
    let source = DamagedFile::open(from, key)?;
    let mut target = create(to, key, &migrations::MEMORY)?;
    let mut salvaged = Vec::new();
    for table in MEMORY_TABLES {
        salvaged.push(copy(&source, &mut target, to, table)?);
    }
    let failed = |error| open_error(to, error);
    // Every turn that arrives is counted.
    target.execute("UPDATE sessions SET turns = 0", []).map_err(failed)?;
    let shape = shape(&source, &target, "turns").map_err(|error| open_error(from, error))?;
    let mut turns = SalvagedTurns::new(analyse.clone());
    let reading = source.read(&shape, |row| {
        turns.add(row[shape.key.len()..].to_vec());
        match turns.waiting() < MAX_TRANSACTION_ROWS {
            true => Ok(()),
            false => turns.write(&mut target).map_err(failed),
        }
    })?;
    turns.write(&mut target).map_err(failed)?;
    salvaged.push(counted(&source, "turns", turns.written(), reading.rows, reading.damaged));
    for table in MEMORY_TABLES_AFTER {
        salvaged.push(copy(&source, &mut target, to, table)?);
    }
    keep_numbers(&source, &target).map_err(failed)?;
    finish(target, to)?;
    Ok(salvaged)
}

fn create(
    path: &Path,
    key: &DataKey,
    schema: &migrations::Schema,
) -> Result<Connection, OpenError> {
    let mut target = connect(path, key, OpenFlags::SQLITE_OPEN_CREATE, BUSY_TIMEOUT)
        .map_err(|error| open_error(path, error))?;
    migrations::run(&mut target, path, schema)?;
    Ok(target)
}

/// Closes a new file, without a write-ahead log next to it.
fn finish(target: Connection, path: &Path) -> Result<(), OpenError> {
    target
        .pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(()))
        .and_then(|()| target.close().map_err(|(_, error)| error))
        .map_err(|error| open_error(path, error))
}

/// Returns the columns that both files have, and the key.
fn shape(source: &DamagedFile, target: &Connection, table: &str) -> rusqlite::Result<TableShape> {
    let has = source.columns(table)?;
    let names = |condition: &str| -> rusqlite::Result<Vec<String>> {
        let sql = format!("SELECT name FROM pragma_table_info(?1) {condition}");
        target.prepare(&sql)?.query_map([table], |row| row.get(0))?.collect()
    };
    let columns = names("")?.into_iter().filter(|name| has.contains(name)).collect();
    let is_without_rowid: bool = target.query_row(
        "SELECT wr FROM pragma_table_list(?1) WHERE schema = 'main'",
        [table],
        |row| row.get(0),
    )?;
    let key = match is_without_rowid {
        true => names("WHERE pk > 0 ORDER BY pk")?,
        false => vec!["rowid".to_owned()],
    };
    Ok(TableShape { name: table.to_owned(), columns, key })
}

/// Copies the rows of a table as they are.
fn copy(
    source: &DamagedFile,
    target: &mut Connection,
    to: &Path,
    table: &str,
) -> Result<SalvagedTable, OpenError> {
    let failed = |error| open_error(to, error);
    let shape = shape(source, target, table).map_err(failed)?;
    let places = vec!["?"; shape.columns.len()].join(", ");
    let columns = shape.columns.join("\", \"");
    let insert = format!("INSERT OR IGNORE INTO \"{table}\" (\"{columns}\") VALUES ({places})");
    let (mut written, mut waiting) = (0, Vec::new());
    let reading = source.read(&shape, |row| {
        waiting.push(row[shape.key.len()..].to_vec());
        if waiting.len() >= MAX_TRANSACTION_ROWS {
            written += write(target, &insert, &mut waiting).map_err(failed)?;
        }
        Ok(())
    })?;
    written += write(target, &insert, &mut waiting).map_err(failed)?;
    Ok(counted(source, table, written, reading.rows, reading.damaged))
}

/// Writes rows and returns how many were taken. A row whose session is lost is not.
fn write(
    target: &mut Connection,
    insert: &str,
    rows: &mut Vec<Vec<Value>>,
) -> rusqlite::Result<u64> {
    let transaction = target.transaction()?;
    let mut written = 0;
    let mut statement = transaction.prepare_cached(insert)?;
    for row in rows.drain(..) {
        match statement.execute(params_from_iter(row)) {
            Ok(changed) => written += changed as u64,
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {}
            Err(error) => return Err(error),
        }
    }
    drop(statement);
    transaction.commit()?;
    Ok(written)
}

fn counted(
    source: &DamagedFile,
    table: &str,
    taken: u64,
    read: u64,
    damaged: bool,
) -> SalvagedTable {
    let had = match damaged {
        true => source.count_by_index(table).map(|had| had.max(read)),
        false => Some(read),
    };
    let lost = had.map(|had| had.saturating_sub(taken));
    SalvagedTable { table: table.to_owned(), taken, lost }
}

/// Keeps numbers of turns, sessions and projects from being given again, if the damaged file still knows them.
fn keep_numbers(source: &DamagedFile, target: &Connection) -> rusqlite::Result<()> {
    let numbers: Vec<(String, i64)> = source
        .attempt(|connection| {
            let sql = "SELECT name, seq FROM sqlite_sequence WHERE name IN ('turns', 'sessions', 'projects')";
            let mut statement = connection.prepare(sql)?;
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
        .unwrap_or_default();
    for (name, last) in numbers {
        target.execute(
            "UPDATE sqlite_sequence SET seq = max(seq, ?2) WHERE name = ?1",
            (name, last),
        )?;
    }
    Ok(())
}
