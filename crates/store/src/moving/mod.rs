//! Moving house: all of a ledger from one database to the other, in either direction.
//!
//! Every table is read in the order of its key, in pages, and written a page at a time; what is there already is left as
//! it is. So a move that was broken off goes on where it was: after the greatest key that arrived. In the end both
//! sides are read once more and their digests compared.

mod postgres;
mod sqlite;
mod tables;

use std::collections::BTreeSet;

use async_trait::async_trait;
use hob_domain::StoreError;
use openssl::sha::Sha256;

use crate::{Ledger, PostgresLedger};
use tables::{TABLES, Table};

/// How many rows travel at a time, at most.
const PAGE: usize = 2000;

/// A value on its way.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    None,
    Number(i64),
    Real(f64),
    Text(String),
}

pub(crate) type Row = Vec<Cell>;

/// One side of a move.
#[async_trait]
pub(crate) trait Side: Send + Sync {
    /// Rows with a greater key, in order of it, at most so many.
    async fn page(
        &self,
        table: &'static Table,
        after: Option<Row>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError>;

    /// Stores rows that are not there yet.
    async fn put(&self, table: &'static Table, rows: Vec<Row>) -> Result<(), StoreError>;

    /// The greatest key there is.
    async fn last(&self, table: &'static Table) -> Result<Option<Row>, StoreError>;

    async fn count(&self, table: &'static Table) -> Result<u64, StoreError>;

    /// Everything has arrived.
    async fn settle(&self) -> Result<(), StoreError>;
}

/// How far a move is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoveProgress {
    pub table: &'static str,
    pub done: u64,
    pub all: u64,
    /// Whether it is read again to be compared.
    pub comparing: bool,
}

/// What was moved of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedTable {
    pub table: &'static str,
    pub rows: u64,
    /// SHA-256 of all rows, the same on both sides.
    pub digest: String,
}

/// Why nothing more was moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// There is something that did not come from here.
    #[error(
        "the target holds {table} that the source does not have; nothing was moved. Use an empty database"
    )]
    Occupied { table: &'static str },
    #[error(
        "{table} differ after the move ({source_rows} rows became {target_rows}): the target must not be used"
    )]
    Differs { table: &'static str, source_rows: u64, target_rows: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Moves a ledger out of its file.
pub async fn move_to_postgres(
    from: &Ledger,
    to: &PostgresLedger,
    tell: &(dyn Fn(MoveProgress) + Send + Sync),
) -> Result<Vec<MovedTable>, MoveError> {
    move_all(from, to, tell).await
}

/// Moves a ledger back into a file.
pub async fn move_to_sqlite(
    from: &PostgresLedger,
    to: &Ledger,
    tell: &(dyn Fn(MoveProgress) + Send + Sync),
) -> Result<Vec<MovedTable>, MoveError> {
    move_all(from, to, tell).await
}

async fn move_all(
    from: &dyn Side,
    to: &dyn Side,
    tell: &(dyn Fn(MoveProgress) + Send + Sync),
) -> Result<Vec<MovedTable>, MoveError> {
    for table in TABLES.iter().filter(|table| table.tells_whose) {
        if !keys(to, table).await?.is_subset(&keys(from, table).await?) {
            return Err(MoveError::Occupied { table: table.name });
        }
    }
    for table in TABLES {
        copy(from, to, table, tell).await?;
    }
    to.settle().await?;
    let mut moved = Vec::new();
    for table in TABLES {
        let (source, source_rows) = digest(from, table, tell).await?;
        let (target, target_rows) = digest(to, table, tell).await?;
        if source != target {
            return Err(MoveError::Differs { table: table.name, source_rows, target_rows });
        }
        moved.push(MovedTable { table: table.name, rows: source_rows, digest: source });
    }
    Ok(moved)
}

/// The keys of a table that is small.
async fn keys(side: &dyn Side, table: &'static Table) -> Result<BTreeSet<String>, StoreError> {
    let (mut keys, mut after) = (BTreeSet::new(), None);
    loop {
        let rows = side.page(table, after, PAGE).await?;
        let Some(last) = rows.last() else { return Ok(keys) };
        after = Some(table.key_of(last));
        keys.extend(rows.iter().map(|row| format!("{:?}", table.key_of(row))));
    }
}

async fn copy(
    from: &dyn Side,
    to: &dyn Side,
    table: &'static Table,
    tell: &(dyn Fn(MoveProgress) + Send + Sync),
) -> Result<(), MoveError> {
    let all = from.count(table).await?;
    let mut done = to.count(table).await?.min(all);
    // Those of a key that is not the last one were all stored before it.
    let mut after = to.last(table).await?;
    loop {
        tell(MoveProgress { table: table.name, done, all, comparing: false });
        let rows = from.page(table, after, PAGE).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = Some(table.key_of(last));
        done += rows.len() as u64;
        to.put(table, rows).await?;
    }
}

/// A digest of all rows in the order of their keys, and how many there are.
async fn digest(
    side: &dyn Side,
    table: &'static Table,
    tell: &(dyn Fn(MoveProgress) + Send + Sync),
) -> Result<(String, u64), StoreError> {
    let all = side.count(table).await?;
    let (mut hash, mut done, mut after) = (Sha256::new(), 0, None);
    loop {
        tell(MoveProgress { table: table.name, done, all, comparing: true });
        let rows = side.page(table, after, PAGE).await?;
        let Some(last) = rows.last() else { break };
        after = Some(table.key_of(last));
        done += rows.len() as u64;
        for cell in rows.iter().flatten() {
            cell.hash(&mut hash);
        }
    }
    Ok((hob_domain::secret::hex(&hash.finish()), done))
}

impl Cell {
    /// Its kind, its length where that varies, and its bytes: no two rows look the same.
    fn hash(&self, hash: &mut Sha256) {
        match self {
            Cell::None => hash.update(b"-"),
            Cell::Number(number) => {
                hash.update(b"n");
                hash.update(&number.to_le_bytes());
            }
            Cell::Real(number) => {
                hash.update(b"r");
                hash.update(&number.to_bits().to_le_bytes());
            }
            Cell::Text(text) => {
                hash.update(b"t");
                hash.update(&(text.len() as u64).to_le_bytes());
                hash.update(text.as_bytes());
            }
        }
    }
}
