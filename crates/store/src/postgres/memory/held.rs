//! The signs of vectors in the memory of a node: which turns point about the same way is then a matter of counting bits, a
//! few nanoseconds a turn. What is held says nothing by itself: every question asks the database which rows there are in
//! its snapshot, and only a row that is held as it is there is not read again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_postgres::Error;

use super::cipher::Bits;
use super::codes::{ENTRY, number};
use super::rows::ask;
use crate::index::{TABLE_BYTES, words};
use crate::postgres::connections::{Client, Values};

const WORDS: usize = TABLE_BYTES / 8;
/// So many codes are compared in one go, so many rows read in one.
const MANY: usize = 512;
const ROWS: usize = 64;
/// So many codes are held at most, in bytes; those of a scope with more are read every time.
const MOST_HELD: usize = 512 << 20;

type Code = [u64; WORDS];
/// A project, and the first turn of a row of its codes.
type Place = (i64, i64);
type Rows = HashMap<Place, Arc<Codes>>;

/// Codes of a project's turns, in order.
pub(super) struct Codes {
    stamp: i64,
    seqs: Vec<i64>,
    codes: Vec<Code>,
}

impl Codes {
    fn unpacked(stamp: i64, packed: &[u8]) -> Codes {
        let entries = || packed.chunks_exact(ENTRY);
        Codes {
            stamp,
            seqs: entries().map(number).collect(),
            codes: entries().map(|entry| words(&entry[8..])).collect(),
        }
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
            let code = |row: &tokio_postgres::Row| words(row.get::<_, Bits>(1).bytes());
            all.push(Arc::new(Codes {
                stamp: 0,
                seqs: waiting.iter().map(|row| row.get(0)).collect(),
                codes: waiting.iter().map(code).collect(),
            }));
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
    let code: Code = words(code.bytes());
    let mut nearest = Nearest::new(most);
    for (number, codes) in all.iter().enumerate() {
        match allowed {
            None => {
                // Counted for many at once, which takes half the time of one by one.
                let mut differs = [0_u16; MANY];
                for (part, some) in codes.codes.chunks(MANY).enumerate() {
                    for (differ, other) in differs.iter_mut().zip(some) {
                        *differ = distance(&code, other);
                    }
                    for (place, differ) in (part * MANY..).zip(&differs[..some.len()]) {
                        nearest.offer(*differ, number, place);
                    }
                }
            }
            Some(allowed) => {
                let (Some(first), Some(last)) = (codes.seqs.first(), codes.seqs.last()) else {
                    continue;
                };
                let from = allowed.partition_point(|seq| seq < first);
                for seq in allowed[from..].iter().take_while(|seq| *seq <= last) {
                    if let Ok(place) = codes.seqs.binary_search(seq) {
                        nearest.offer(distance(&code, &codes.codes[place]), number, place);
                    }
                }
            }
        }
    }
    nearest.found(all)
}

/// The nearest so far, by in how many signs they differ.
struct Nearest {
    at: Vec<Vec<(u32, u32)>>,
    most: usize,
    /// Farther than this there are enough nearer ones.
    farthest: usize,
    held: usize,
}

impl Nearest {
    fn new(most: usize) -> Nearest {
        let bits = WORDS * 64;
        Nearest { at: vec![Vec::new(); bits + 1], most, farthest: bits, held: 0 }
    }

    fn offer(&mut self, differs: u16, number: usize, place: usize) {
        let differs = usize::from(differs);
        if differs > self.farthest {
            return;
        }
        self.at[differs].push((number as u32, place as u32));
        self.held += 1;
        while self.farthest > 0 && self.held - self.at[self.farthest].len() >= self.most {
            self.held -= self.at[self.farthest].len();
            self.at[self.farthest] = Vec::new();
            self.farthest -= 1;
        }
    }

    fn found(self, all: &[Arc<Codes>]) -> Vec<Near> {
        let mut found = Vec::new();
        for same in self.at {
            let mut same: Vec<(i64, &Code)> = same
                .into_iter()
                .map(|(number, place)| {
                    let codes = &all[number as usize];
                    (codes.seqs[place as usize], &codes.codes[place as usize])
                })
                .collect();
            same.sort_unstable_by_key(|(seq, _)| *seq);
            same.truncate(self.most - found.len());
            found.extend(same.into_iter().map(|(seq, code)| Near { seq, code: Bits::of(code) }));
        }
        found
    }
}

/// In how many bits two codes differ.
fn distance(code: &Code, other: &Code) -> u16 {
    let mut bits = 0;
    for word in 0..WORDS {
        bits += (code[word] ^ other[word]).count_ones();
    }
    bits as u16
}
