//! The signs of all vectors, held in memory: which turns point about the same way is then a matter of
//! counting bits, a few nanoseconds a turn.

use std::sync::{PoisonError, RwLock};

use hob_domain::memory::VectorKind;
use hob_index::sign_codes::{
    DotProductTable, MODEL_BYTES, OVERSAMPLING, SignCode, TABLE_BYTES, code_words,
    hamming_distances, nearest_by_dot_product, sign_code,
};
use hob_index::top_k::TopK;
use rusqlite::Connection;

use super::candidates::Range;

pub(super) type TableCodes = Codes<{ TABLE_BYTES / 8 }>;
pub(super) type ModelCodes = Codes<{ MODEL_BYTES / 8 }>;

/// What has been read so far, of one kind of vectors. New ones are read when they are first needed;
/// what is gone from the store is noticed there.
#[derive(Default)]
pub(super) struct Codes<const WORDS: usize> {
    read: RwLock<Read<WORDS>>,
}

struct Read<const WORDS: usize> {
    kind: i64,
    last: i64,
    seqs: Vec<i64>,
    projects: Vec<u32>,
    codes: Vec<SignCode<WORDS>>,
}

impl<const WORDS: usize> Default for Read<WORDS> {
    fn default() -> Read<WORDS> {
        Read { kind: 0, last: 0, seqs: Vec::new(), projects: Vec::new(), codes: Vec::new() }
    }
}

/// Where codes are read from: how far there are any, and those behind a place, each with its place.
pub(super) struct Source {
    kind: i64,
    newest: &'static str,
    behind: &'static str,
}

impl Source {
    pub(super) const TABLE: Source = Source {
        kind: 0,
        newest: "SELECT max(seq) FROM codes",
        behind: "SELECT seq, seq, project, code FROM codes WHERE seq > ?1 AND ?2 = 0 ORDER BY seq",
    };

    /// The codes of a model.
    pub(super) fn of(kind: VectorKind) -> Source {
        Source {
            kind: kind.0,
            newest: "SELECT max(id) FROM model_codes",
            behind: "SELECT id, seq, project, code FROM model_codes
                     WHERE id > ?1 AND kind = ?2 ORDER BY id",
        }
    }
}

impl<const WORDS: usize> Codes<WORDS> {
    /// Lets go of all that was read.
    pub(super) fn forget(&self) {
        *self.read.write().unwrap_or_else(PoisonError::into_inner) = Read::default();
    }

    /// The turns whose vectors are nearest by their signs, nearest first.
    pub(super) fn nearest(
        &self,
        connection: &Connection,
        source: &Source,
        range: &Range,
        vector: &[i8],
        limit: usize,
    ) -> rusqlite::Result<Vec<i64>> {
        let code = sign_code(vector, WORDS * 8).map(|bytes| code_words(&bytes));
        let Some(code) = code else { return Ok(Vec::new()) };
        self.catch_up(connection, source)?;
        let read = self.read.read().unwrap_or_else(PoisonError::into_inner);
        let few = read.near(&code, range, limit * OVERSAMPLING);
        let products = DotProductTable::new(vector, WORDS);
        let scored = few
            .iter()
            .map(|place| (products.dot(&read.codes[*place]), read.seqs[*place]))
            .collect();
        Ok(nearest_by_dot_product(scored, limit))
    }

    fn catch_up(&self, connection: &Connection, source: &Source) -> rusqlite::Result<()> {
        let (kind, last) = {
            let read = self.read.read().unwrap_or_else(PoisonError::into_inner);
            (read.kind, read.last)
        };
        let newest: Option<i64> =
            connection.prepare_cached(source.newest)?.query_row([], |row| row.get(0))?;
        if kind == source.kind && newest.is_none_or(|newest| newest <= last) {
            return Ok(());
        }
        let mut read = self.read.write().unwrap_or_else(PoisonError::into_inner);
        if read.kind != source.kind {
            *read = Read { kind: source.kind, ..Read::default() };
        }
        // Somebody else may have been here in between.
        let mut statement = connection.prepare_cached(source.behind)?;
        let mut rows = statement.query([read.last, source.kind])?;
        while let Some(row) = rows.next()? {
            read.last = row.get(0)?;
            let (seq, project): (i64, i64) = (row.get(1)?, row.get(2)?);
            read.seqs.push(seq);
            read.projects.push(project as u32);
            read.codes.push(code_words(row.get_ref(3)?.as_blob()?));
        }
        // What lies behind the last one is of other kinds.
        read.last = read.last.max(newest.unwrap_or_default());
        Ok(())
    }
}

impl<const WORDS: usize> Read<WORDS> {
    /// Where the nearest stand, by the number of bits that differ.
    fn near(&self, code: &SignCode<WORDS>, range: &Range, most: usize) -> Vec<usize> {
        let mut projects: Vec<u32> = range.projects.iter().map(|project| *project as u32).collect();
        projects.sort_unstable();
        let inside = |place: usize| match projects[..] {
            [one] => self.projects[place] == one,
            _ => projects.binary_search(&self.projects[place]).is_ok(),
        };
        let mut nearest = TopK::new(most);
        hamming_distances(code, &self.codes, |place, distance| {
            if nearest.accepts(distance) && inside(place) && range.has(self.seqs[place]) {
                nearest.offer(distance, place as u32);
            }
        });
        nearest.into_ids().map(|place| place as usize).collect()
    }
}
