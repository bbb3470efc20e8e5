//! A cache of sign codes: finding the nearest turns is then a matter of counting bits, a few
//! nanoseconds a turn.
//!
//! The cache is never trusted by itself. Every query asks the database which rows of codes its
//! snapshot has, and with which stamp; a cached row with another stamp is read again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hob_index::sign_codes::{SignCode, TABLE_BYTES, code_words, hamming_distances};
use hob_index::top_k::TopK;
use tokio_postgres::Error;

use super::cipher::Bits;
use super::rows::ask;
use super::sign_codes::{ENTRY_BYTES, entry_seq};
use crate::postgres::connections::{Client, Values};

const WORDS: usize = TABLE_BYTES / 8;
/// One query reads this many rows.
const ROWS_PER_QUERY: usize = 64;
/// The size of the cache, in bytes. The codes of a scope that has more are read for every query.
const MAX_CACHED_BYTES: usize = 512 << 20;

type TableCode = SignCode<WORDS>;
/// A project, and the first turn of a row of its codes.
type RowKey = (i64, i64);
type CodeRows = HashMap<RowKey, Arc<CodeRow>>;

/// A row of codes of one project, in the order of their turns.
#[derive(Default)]
pub(super) struct CodeRow {
    stamp: i64,
    seqs: Vec<i64>,
    codes: Vec<TableCode>,
}

impl CodeRow {
    fn decode(stamp: i64, bytes: &[u8]) -> CodeRow {
        let mut row = CodeRow { stamp, ..CodeRow::default() };
        for entry in bytes.chunks_exact(ENTRY_BYTES) {
            row.add(entry_seq(entry), code_words(&entry[8..]));
        }
        row
    }

    fn add(&mut self, seq: i64, code: TableCode) {
        self.seqs.push(seq);
        self.codes.push(code);
    }

    fn bytes(&self) -> usize {
        self.seqs.len() * ENTRY_BYTES
    }
}

/// The rows that this process has read.
#[derive(Default)]
pub(super) struct CodeCache {
    rows: Mutex<CodeRows>,
}

/// A near turn and its code.
pub(super) struct NearTurn {
    pub(super) seq: i64,
    pub(super) code: Bits,
}

impl CodeCache {
    /// Returns all codes of these projects.
    pub(super) async fn read(
        &self,
        client: &Client,
        projects: &Vec<i64>,
    ) -> Result<Vec<Arc<CodeRow>>, Error> {
        let sql = "SELECT project, first, stamp FROM hob.memory_codes WHERE project = ANY($1)";
        // The codes that are not packed yet. A range of numbers tells the planner that they are
        // few.
        let waiting = "SELECT seq, code FROM hob.memory_vectors
             WHERE seq BETWEEN (SELECT coded + 1 FROM hob.memory_merge WHERE id = 1)
                 AND (SELECT last_seq FROM hob.memory_state WHERE id = 1)
             AND project = ANY($1) AND code IS NOT NULL ORDER BY seq";
        let values: Values<'_> = &[projects];
        let (listed, waiting) =
            tokio::try_join!(ask(client, sql, values), ask(client, waiting, values))?;
        let listed: HashMap<RowKey, i64> =
            listed.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect();
        let (mut found, missing) = self.cached(&listed);
        for part in missing.chunks(ROWS_PER_QUERY) {
            let (projects, firsts): (Vec<i64>, Vec<i64>) = part.iter().copied().unzip();
            let sql = "SELECT c.project, c.first, c.stamp, c.codes
                 FROM unnest($1::bigint[], $2::bigint[]) u (project, first)
                 JOIN hob.memory_codes c ON c.project = u.project AND c.first = u.first";
            for row in ask(client, sql, &[&projects, &firsts]).await? {
                let codes = Arc::new(CodeRow::decode(row.get(2), row.get(3)));
                found.insert((row.get(0), row.get(1)), codes);
            }
        }
        if !missing.is_empty() {
            self.store(projects, &found);
        }
        let mut all: Vec<Arc<CodeRow>> = found.into_values().collect();
        if !waiting.is_empty() {
            let mut codes = CodeRow::default();
            for row in &waiting {
                codes.add(row.get(0), code_words(row.get::<_, Bits>(1).bytes()));
            }
            all.push(Arc::new(codes));
        }
        Ok(all)
    }

    /// Returns the listed rows that are cached with the same stamp, and the keys of the others.
    fn cached(&self, listed: &HashMap<RowKey, i64>) -> (CodeRows, Vec<RowKey>) {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut found, mut missing) = (CodeRows::new(), Vec::new());
        for (key, stamp) in listed {
            match rows.get(key).filter(|codes| codes.stamp == *stamp) {
                Some(codes) => drop(found.insert(*key, Arc::clone(codes))),
                None => missing.push(*key),
            }
        }
        (found, missing)
    }

    /// Replaces the cached rows of these projects.
    fn store(&self, projects: &[i64], found: &CodeRows) {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.retain(|(project, _), _| !projects.contains(project));
        let bytes = |codes: &Arc<CodeRow>| codes.bytes();
        let new: usize = found.values().map(bytes).sum();
        if rows.values().map(bytes).sum::<usize>() + new > MAX_CACHED_BYTES {
            rows.clear();
        }
        if new <= MAX_CACHED_BYTES {
            rows.extend(found.iter().map(|(key, codes)| (*key, Arc::clone(codes))));
        }
    }
}

/// Returns the turns with the smallest Hamming distances, nearest first and of equals the oldest.
/// With a list of turns, which is in order, only those are considered.
pub(super) fn nearest(
    all: &[Arc<CodeRow>],
    code: &Bits,
    allowed: Option<&[i64]>,
    limit: usize,
) -> Vec<NearTurn> {
    let code: TableCode = code_words(code.bytes());
    let mut nearest = TopK::new(limit);
    for (number, codes) in all.iter().enumerate() {
        let mut offer = |place: usize, distance: u16| {
            if nearest.accepts(distance) {
                nearest.offer(distance, (codes.seqs[place], number, place));
            }
        };
        match allowed {
            None => {
                hamming_distances(&code, &codes.codes, offer);
            }
            Some(allowed) => {
                let (Some(first), Some(last)) = (codes.seqs.first(), codes.seqs.last()) else {
                    continue;
                };
                let from = allowed.partition_point(|seq| seq < first);
                for seq in allowed[from..].iter().take_while(|seq| *seq <= last) {
                    if let Ok(place) = codes.seqs.binary_search(seq) {
                        let one = &codes.codes[place..=place];
                        hamming_distances(&code, one, |_, distance| offer(place, distance));
                    }
                }
            }
        }
    }
    let near = |(seq, number, place): (i64, usize, usize)| NearTurn {
        seq,
        code: Bits::of(&all[number].codes[place]),
    };
    nearest.into_ids().map(near).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_turns_come_first_and_of_equals_the_oldest() {
        let mut one = CodeRow::default();
        let mut other = CodeRow::default();
        for seq in 0..100 {
            let code = [(1_u64 << (seq % 10)) - 1, 0, 0, 0];
            if seq % 3 == 0 { one.add(seq, code) } else { other.add(seq, code) }
        }
        let all = [Arc::new(other), Arc::new(one)];
        let seqs = |near: Vec<NearTurn>| near.iter().map(|near| near.seq).collect::<Vec<i64>>();
        let zero = Bits::of(&[0; WORDS]);
        let found = seqs(nearest(&all, &zero, None, 12));
        assert_eq!(found, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 1, 11]);
        assert_eq!(seqs(nearest(&all, &zero, Some(&[3, 5, 21, 200]), 2)), [21, 3]);
        assert_eq!(nearest(&all, &zero, None, usize::MAX).len(), 100);
    }
}
