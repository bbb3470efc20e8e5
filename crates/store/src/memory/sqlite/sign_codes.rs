//! A cache of the sign codes of all vectors: finding the nearest turns is then a matter of counting
//! bits, a few nanoseconds a turn.

use std::sync::{PoisonError, RwLock};

use hob_domain::memory::VectorKind;
use hob_index::sign_codes::{
    DotProductTable, MODEL_BYTES, OVERSAMPLING, SignCode, TABLE_BYTES, code_words,
    hamming_distances, nearest_by_dot_product, sign_code,
};
use hob_index::top_k::TopK;
use rusqlite::Connection;

use crate::memory::range::SearchRange;

/// The codes of the built-in table's vectors, and those of a model.
#[derive(Default)]
pub(super) struct CodeCaches {
    pub(super) table: CodeCache<{ TABLE_BYTES / 8 }>,
    pub(super) model: CodeCache<{ MODEL_BYTES / 8 }>,
}

impl CodeCaches {
    pub(super) fn clear(&self) {
        self.table.clear();
        self.model.clear();
    }
}

/// The codes of one kind of vectors. New ones are read by the next query. Codes of removed turns
/// stay until the cache is cleared; a candidate without metadata is dropped.
#[derive(Default)]
pub(super) struct CodeCache<const WORDS: usize> {
    cached: RwLock<CachedCodes<WORDS>>,
}

struct CachedCodes<const WORDS: usize> {
    kind: i64,
    /// The last row that was read.
    last: i64,
    seqs: Vec<i64>,
    projects: Vec<u32>,
    codes: Vec<SignCode<WORDS>>,
}

impl<const WORDS: usize> Default for CachedCodes<WORDS> {
    fn default() -> CachedCodes<WORDS> {
        CachedCodes { kind: 0, last: 0, seqs: Vec::new(), projects: Vec::new(), codes: Vec::new() }
    }
}

/// The table that codes are read from.
pub(super) struct CodeSource {
    kind: i64,
    /// Selects the number of the last row.
    newest: &'static str,
    /// Selects the rows after a number, in order: the number, the turn, its project and the code.
    after: &'static str,
}

impl CodeSource {
    /// The codes of the built-in table's vectors.
    pub(super) const TABLE: CodeSource = CodeSource {
        kind: 0,
        newest: "SELECT max(seq) FROM codes",
        after: "SELECT seq, seq, project, code FROM codes WHERE seq > ?1 AND ?2 = 0 ORDER BY seq",
    };

    /// The codes of a model's vectors.
    pub(super) fn of(kind: VectorKind) -> CodeSource {
        CodeSource {
            kind: kind.0,
            newest: "SELECT max(id) FROM model_codes",
            after: "SELECT id, seq, project, code FROM model_codes
                    WHERE id > ?1 AND kind = ?2 ORDER BY id",
        }
    }
}

impl<const WORDS: usize> CodeCache<WORDS> {
    pub(super) fn clear(&self) {
        *self.cached.write().unwrap_or_else(PoisonError::into_inner) = CachedCodes::default();
    }

    /// Returns the turns in range whose vectors are nearest, nearest first.
    pub(super) fn nearest(
        &self,
        connection: &Connection,
        source: &CodeSource,
        range: &SearchRange,
        vector: &[i8],
        limit: usize,
    ) -> rusqlite::Result<Vec<i64>> {
        let code = sign_code(vector, WORDS * 8).map(|bytes| code_words(&bytes));
        let Some(code) = code else { return Ok(Vec::new()) };
        self.catch_up(connection, source)?;
        let cached = self.cached.read().unwrap_or_else(PoisonError::into_inner);
        let places = cached.nearest_by_distance(&code, range, limit * OVERSAMPLING);
        let products = DotProductTable::new(vector, WORDS);
        let scored = places
            .iter()
            .map(|place| (products.dot(&cached.codes[*place]), cached.seqs[*place]))
            .collect();
        Ok(nearest_by_dot_product(scored, limit))
    }

    /// Reads the codes that are new.
    fn catch_up(&self, connection: &Connection, source: &CodeSource) -> rusqlite::Result<()> {
        let (kind, last) = {
            let cached = self.cached.read().unwrap_or_else(PoisonError::into_inner);
            (cached.kind, cached.last)
        };
        let newest: Option<i64> =
            connection.prepare_cached(source.newest)?.query_row([], |row| row.get(0))?;
        if kind == source.kind && newest.is_none_or(|newest| newest <= last) {
            return Ok(());
        }
        let mut cached = self.cached.write().unwrap_or_else(PoisonError::into_inner);
        if cached.kind != source.kind {
            *cached = CachedCodes { kind: source.kind, ..CachedCodes::default() };
        }
        // Another query may have read some of them between the two locks.
        let mut statement = connection.prepare_cached(source.after)?;
        let mut rows = statement.query([cached.last, source.kind])?;
        while let Some(row) = rows.next()? {
            cached.last = row.get(0)?;
            let (seq, project): (i64, i64) = (row.get(1)?, row.get(2)?);
            cached.seqs.push(seq);
            cached.projects.push(project as u32);
            cached.codes.push(code_words(row.get_ref(3)?.as_blob()?));
        }
        // The rows after the last one are of other kinds.
        cached.last = cached.last.max(newest.unwrap_or_default());
        Ok(())
    }
}

impl<const WORDS: usize> CachedCodes<WORDS> {
    /// Returns the places of the codes in range with the smallest Hamming distances.
    fn nearest_by_distance(
        &self,
        code: &SignCode<WORDS>,
        range: &SearchRange,
        limit: usize,
    ) -> Vec<usize> {
        // The order of the projects stays: no memory has four billion of them.
        let projects: Vec<u32> = range.projects.iter().map(|project| *project as u32).collect();
        let has_project = |place: usize| match projects[..] {
            [one] => self.projects[place] == one,
            _ => projects.binary_search(&self.projects[place]).is_ok(),
        };
        let mut nearest = TopK::new(limit);
        hamming_distances(code, &self.codes, |place, distance| {
            if nearest.accepts(distance) && has_project(place) && range.allows(self.seqs[place]) {
                nearest.offer(distance, place as u32);
            }
        });
        nearest.into_ids().map(|place| place as usize).collect()
    }
}
