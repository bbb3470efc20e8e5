//! The signs of vectors in the memory of a node: which turns point about the same way is then a matter of counting bits, a
//! few nanoseconds a turn. What is held says nothing by itself: every question asks the database which rows there are in
//! its snapshot, and only a row that is held as it is there is not read again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hob_index::sign_codes::{SignCode, TABLE_BYTES, code_words, hamming_distances};
use hob_index::top_k::TopK;
use tokio_postgres::Error;

use super::cipher::Bits;
use super::rows::ask;
use super::sign_codes::{ENTRY, number};
use crate::postgres::connections::{Client, Values};

const WORDS: usize = TABLE_BYTES / 8;
/// So many rows are read in one go.
const ROWS: usize = 64;
/// So many codes are held at most, in bytes; those of a scope with more are read every time.
const MOST_HELD: usize = 512 << 20;

type Code = SignCode<WORDS>;
/// A project, and the first turn of a row of its codes.
type Place = (i64, i64);
type Rows = HashMap<Place, Arc<Codes>>;

/// Codes of a project's turns, in order.
#[derive(Default)]
pub(super) struct Codes {
    stamp: i64,
    seqs: Vec<i64>,
    codes: Vec<Code>,
}

impl Codes {
    fn unpacked(stamp: i64, packed: &[u8]) -> Codes {
        let mut codes = Codes { stamp, ..Codes::default() };
        for entry in packed.chunks_exact(ENTRY) {
            codes.add(number(entry), code_words(&entry[8..]));
        }
        codes
    }

    fn add(&mut self, seq: i64, code: Code) {
        self.seqs.push(seq);
        self.codes.push(code);
    }

    fn size(&self) -> usize {
        self.seqs.len() * ENTRY
    }
}

/// What a node has read so far.
#[derive(Default)]
pub(super) struct Held {
    rows: Mutex<Rows>,
}

/// One that is near: which turn it is, and its code.
pub(super) struct Near {
    pub(super) seq: i64,
    pub(super) code: Bits,
}

impl Held {
    /// All codes of some projects.
    pub(super) async fn read(
        &self,
        client: &Client,
        projects: &Vec<i64>,
    ) -> Result<Vec<Arc<Codes>>, Error> {
        let sql = "SELECT project, first, stamp FROM hob.memory_codes WHERE project = ANY($1)";
        // Those that are not packed yet. A range is known to be short, whatever the planner knows of the rest.
        let waiting = "SELECT seq, code FROM hob.memory_vectors
             WHERE seq BETWEEN (SELECT coded + 1 FROM hob.memory_merge WHERE id = 1)
                 AND (SELECT last_seq FROM hob.memory_state WHERE id = 1)
             AND project = ANY($1) AND code IS NOT NULL ORDER BY seq";
        let values: Values<'_> = &[projects];
        let (listed, waiting) =
            tokio::try_join!(ask(client, sql, values), ask(client, waiting, values))?;
        let listed: HashMap<Place, i64> =
            listed.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect();
        let (mut found, missing) = self.known(&listed);
        for part in missing.chunks(ROWS) {
            let (projects, firsts): (Vec<i64>, Vec<i64>) = part.iter().copied().unzip();
            let sql = "SELECT c.project, c.first, c.stamp, c.codes
                 FROM unnest($1::bigint[], $2::bigint[]) u (project, first)
                 JOIN hob.memory_codes c ON c.project = u.project AND c.first = u.first";
            for row in ask(client, sql, &[&projects, &firsts]).await? {
                let codes = Arc::new(Codes::unpacked(row.get(2), row.get(3)));
                found.insert((row.get(0), row.get(1)), codes);
            }
        }
        if !missing.is_empty() {
            self.keep(projects, &found);
        }
        let mut all: Vec<Arc<Codes>> = found.into_values().collect();
        if !waiting.is_empty() {
            let mut codes = Codes::default();
            for row in &waiting {
                codes.add(row.get(0), code_words(row.get::<_, Bits>(1).bytes()));
            }
            all.push(Arc::new(codes));
        }
        Ok(all)
    }

    /// Which of the listed rows are held as they are, and which are not.
    fn known(&self, listed: &HashMap<Place, i64>) -> (Rows, Vec<Place>) {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut found, mut missing) = (Rows::new(), Vec::new());
        for (place, stamp) in listed {
            match rows.get(place).filter(|codes| codes.stamp == *stamp) {
                Some(codes) => drop(found.insert(*place, Arc::clone(codes))),
                None => missing.push(*place),
            }
        }
        (found, missing)
    }

    /// Holds what was found of these projects, and nothing else of them.
    fn keep(&self, projects: &[i64], found: &Rows) {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.retain(|(project, _), _| !projects.contains(project));
        let size = |codes: &Arc<Codes>| codes.size();
        let new: usize = found.values().map(size).sum();
        if rows.values().map(size).sum::<usize>() + new > MOST_HELD {
            rows.clear();
        }
        if new <= MOST_HELD {
            rows.extend(found.iter().map(|(place, codes)| (*place, Arc::clone(codes))));
        }
    }
}

/// The nearest, nearest first and of equals the oldest; of these turns only, where some are given in order.
pub(super) fn nearest(
    all: &[Arc<Codes>],
    code: &Bits,
    allowed: Option<&[i64]>,
    most: usize,
) -> Vec<Near> {
    let code: Code = code_words(code.bytes());
    let mut nearest = TopK::new(most);
    for (number, codes) in all.iter().enumerate() {
        let mut offer = |place: usize, differs: u16| {
            if nearest.accepts(differs) {
                nearest.offer(differs, (codes.seqs[place], number, place));
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
                        hamming_distances(&code, one, |_, differs| offer(place, differs));
                    }
                }
            }
        }
    }
    let near = |(seq, number, place): (i64, usize, usize)| {
        let code: &Code = &all[number].codes[place];
        Near { seq, code: Bits::of(code) }
    };
    nearest.into_ids().map(near).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first_and_of_equals_the_oldest() {
        let mut one = Codes::default();
        let mut other = Codes::default();
        for seq in 0..100 {
            let code = [(1_u64 << (seq % 10)) - 1, 0, 0, 0];
            if seq % 3 == 0 { one.add(seq, code) } else { other.add(seq, code) }
        }
        let all = [Arc::new(other), Arc::new(one)];
        let seqs = |near: Vec<Near>| near.iter().map(|near| near.seq).collect::<Vec<i64>>();
        let zero = Bits::of(&[0; WORDS]);
        let found = seqs(nearest(&all, &zero, None, 12));
        assert_eq!(found, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 1, 11]);
        assert_eq!(seqs(nearest(&all, &zero, Some(&[3, 5, 21, 200]), 2)), [21, 3]);
        assert_eq!(nearest(&all, &zero, None, usize::MAX).len(), 100);
    }
}
