//! Moving house: all of a ledger and of a memory from one database to the other, in either direction.
//!
//! Every part is read in the order of its key, in pages, and written a page at a time; what is there already is left as
//! it is. So a move that was broken off goes on where it was: after the greatest key that arrived. In the end both
//! sides are read once more and their digests compared.

mod cells;
mod memory;
mod tables;

use std::collections::BTreeSet;

use async_trait::async_trait;
use hob_domain::StoreError;
use openssl::sha::Sha256;

use crate::{Ledger, PostgresLedger};
use tables::TABLES;

pub(crate) use cells::{Cell, Cells, Row};
pub use memory::{Analyse, Analysed, memory_to_postgres, memory_to_sqlite};
pub(crate) use memory::{MemoryPart, MovedTurn};
pub(crate) use tables::{Kind, Table};

/// How many rows travel at a time, at most.
const PAGE: usize = 2000;

/// A part of what is moved, as both sides know it.
pub(crate) trait Part: Copy + Send + Sync {
    fn name(self) -> &'static str;

    fn key_of(self, row: &Row) -> Row;

    /// What of a row shows whose it is, where it does.
    fn shows(self, row: &Row) -> Option<String>;

    /// Whether rows of it show whose they are.
    fn tells_whose(self) -> bool;

    /// How many rows travel at a time.
    fn page(self) -> usize {
        PAGE
    }
}

/// What a target holds before a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing, or something that only a look at it tells.
    Open,
    /// What an earlier move has left there, and nothing else.
    Half,
    /// Something that is in use.
    Used,
}

/// One side of a move.
#[async_trait]
pub(crate) trait Side<P: Part>: Send + Sync {
    /// Rows with a greater key, in order of it, at most so many.
    async fn page(&self, part: P, after: Option<Row>, limit: usize)
    -> Result<Vec<Row>, StoreError>;

    /// Stores rows that are not there yet.
    async fn put(&self, part: P, rows: Vec<Row>) -> Result<(), StoreError>;

    /// The greatest key there is.
    async fn last(&self, part: P) -> Result<Option<Row>, StoreError>;

    async fn count(&self, part: P) -> Result<u64, StoreError>;

    async fn found(&self) -> Result<Found, StoreError> {
        Ok(Found::Open)
    }

    /// From now on it is half moved, until [`Side::end`].
    async fn begin(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Removes what an earlier move has left.
    async fn clear(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Everything has arrived.
    async fn settle(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// It is the same as the source.
    async fn end(&self) -> Result<(), StoreError> {
        Ok(())
    }
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

/// How a move says how far it is.
pub type Tell<'a> = &'a (dyn Fn(MoveProgress) + Send + Sync);

/// A move that can be made.
pub struct Move<'a> {
    work: Box<dyn Work + 'a>,
}

impl<'a> Move<'a> {
    fn new<P: Part + 'static>(
        from: impl Side<P> + 'a,
        to: impl Side<P> + 'a,
        parts: &'static [P],
    ) -> Move<'a> {
        Move { work: Box::new(Pair { from: Box::new(from), to: Box::new(to), parts }) }
    }

    /// Whether it can be made at all. Changes nothing.
    pub async fn check(&self) -> Result<(), MoveError> {
        self.work.check().await
    }

    /// Says on the target that it is half moved, where that can be said, unless it is in use.
    pub async fn begin(&self) -> Result<(), MoveError> {
        self.work.begin().await
    }

    /// Makes it, or goes on with it. Nobody else may use either side meanwhile.
    pub async fn run(&self, tell: Tell<'_>) -> Result<Vec<MovedTable>, MoveError> {
        self.work.run(tell).await
    }
}

/// Moves a ledger out of its file.
pub fn ledger_to_postgres(from: &Ledger, to: &PostgresLedger) -> Move<'static> {
    Move::new::<&'static Table>(from.clone(), to.clone(), TABLES)
}

/// Moves a ledger back into a file, which holds nothing but what an earlier move has left there.
pub fn ledger_to_sqlite(from: &PostgresLedger, to: &Ledger) -> Move<'static> {
    Move::new::<&'static Table>(from.clone(), to.clone(), TABLES)
}

#[async_trait]
trait Work: Send + Sync {
    async fn check(&self) -> Result<(), MoveError>;
    async fn begin(&self) -> Result<(), MoveError>;
    async fn run(&self, tell: Tell<'_>) -> Result<Vec<MovedTable>, MoveError>;
}

struct Pair<'a, P: 'static> {
    from: Box<dyn Side<P> + 'a>,
    to: Box<dyn Side<P> + 'a>,
    parts: &'static [P],
}

#[async_trait]
impl<P: Part + 'static> Work for Pair<'_, P> {
    async fn check(&self) -> Result<(), MoveError> {
        match self.to.found().await? {
            Found::Open => self.fits().await,
            // What does not fit is made anew.
            Found::Half => Ok(()),
            Found::Used => self.is_there(&|_| {}).await.map(drop),
        }
    }

    async fn begin(&self) -> Result<(), MoveError> {
        if self.to.found().await? != Found::Used {
            self.to.begin().await?;
        }
        Ok(())
    }

    async fn run(&self, tell: Tell<'_>) -> Result<Vec<MovedTable>, MoveError> {
        let found = self.to.found().await?;
        if found == Found::Used {
            return self.is_there(tell).await;
        }
        match self.once(tell).await {
            // The source is another one than it was then.
            Err(MoveError::Occupied { .. } | MoveError::Differs { .. }) if found == Found::Half => {
                self.to.clear().await?;
                self.once(tell).await
            }
            done => done,
        }
    }
}

impl<P: Part + 'static> Pair<'_, P> {
    async fn once(&self, tell: Tell<'_>) -> Result<Vec<MovedTable>, MoveError> {
        self.fits().await?;
        self.to.begin().await?;
        for part in self.parts {
            self.copy(*part, tell).await?;
        }
        self.to.settle().await?;
        let moved = self.compare(tell).await?;
        self.to.end().await?;
        Ok(moved)
    }

    /// Whether all that the target shows is the source's.
    async fn fits(&self) -> Result<(), MoveError> {
        for part in self.parts.iter().filter(|part| part.tells_whose()) {
            let there = shown(&*self.to, *part).await?;
            if !there.is_empty() && !there.is_subset(&shown(&*self.from, *part).await?) {
                return Err(MoveError::Occupied { table: part.name() });
            }
        }
        Ok(())
    }

    /// A target that is in use is left alone; where it is what the source is, there is nothing to do.
    async fn is_there(&self, tell: Tell<'_>) -> Result<Vec<MovedTable>, MoveError> {
        match self.compare(tell).await {
            Err(MoveError::Differs { table, .. }) => Err(MoveError::Occupied { table }),
            done => done,
        }
    }

    async fn compare(&self, tell: Tell<'_>) -> Result<Vec<MovedTable>, MoveError> {
        let mut moved = Vec::new();
        for part in self.parts {
            let (source, source_rows) = digest(&*self.from, *part, tell).await?;
            let (target, target_rows) = digest(&*self.to, *part, tell).await?;
            if source != target {
                return Err(MoveError::Differs { table: part.name(), source_rows, target_rows });
            }
            moved.push(MovedTable { table: part.name(), rows: source_rows, digest: source });
        }
        Ok(moved)
    }

    async fn copy(&self, part: P, tell: Tell<'_>) -> Result<(), MoveError> {
        let all = self.from.count(part).await?;
        let mut done = self.to.count(part).await?.min(all);
        // Those of a key that is not the last one were all stored before it.
        let mut after = self.to.last(part).await?;
        loop {
            tell(MoveProgress { table: part.name(), done, all, comparing: false });
            let rows = self.from.page(part, after, part.page()).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = Some(part.key_of(last));
            done += rows.len() as u64;
            self.to.put(part, rows).await?;
        }
    }
}

/// What the rows of a part show.
async fn shown<P: Part>(side: &dyn Side<P>, part: P) -> Result<BTreeSet<String>, StoreError> {
    let (mut shown, mut after) = (BTreeSet::new(), None);
    loop {
        let rows = side.page(part, after, part.page()).await?;
        let Some(last) = rows.last() else { return Ok(shown) };
        after = Some(part.key_of(last));
        shown.extend(rows.iter().filter_map(|row| part.shows(row)));
    }
}

/// A digest of all rows in the order of their keys, and how many there are.
async fn digest<P: Part>(
    side: &dyn Side<P>,
    part: P,
    tell: Tell<'_>,
) -> Result<(String, u64), StoreError> {
    let all = side.count(part).await?;
    let (mut hash, mut done, mut after) = (Sha256::new(), 0, None);
    loop {
        tell(MoveProgress { table: part.name(), done, all, comparing: true });
        let rows = side.page(part, after, part.page()).await?;
        let Some(last) = rows.last() else { break };
        after = Some(part.key_of(last));
        done += rows.len() as u64;
        for cell in rows.iter().flatten() {
            cell.hash(&mut hash);
        }
    }
    Ok((hob_domain::secret::hex(&hash.finish()), done))
}
