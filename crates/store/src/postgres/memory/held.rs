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

/// Codes of a project's turns, in order: the first word of each, then the second of each and so on, so that several are
/// compared in one go.
#[derive(Default)]
pub(super) struct Codes {
    stamp: i64,
    seqs: Vec<i64>,
    words: [Vec<u64>; WORDS],
}

impl Codes {
    fn unpacked(stamp: i64, packed: &[u8]) -> Codes {
        let mut codes = Codes { stamp, ..Codes::default() };
        for entry in packed.chunks_exact(ENTRY) {
            codes.add(number(entry), words(&entry[8..]));
        }
        codes
    }

    fn add(&mut self, seq: i64, code: Code) {
        self.seqs.push(seq);
        self.words.iter_mut().zip(code).for_each(|(words, word)| words.push(word));
    }

    fn code(&self, place: usize) -> Code {
        self.words.each_ref().map(|words| words[place])
    }

    /// In how many bits each of a part of them differs.
    fn differ(&self, code: &Code, part: std::ops::Range<usize>, differs: &mut [u64]) {
        let [first, second, third, fourth] =
            self.words.each_ref().map(|words| &words[part.clone()]);
        let pairs = first.iter().zip(second).zip(third.iter().zip(fourth));
        for (differ, ((first, second), (third, fourth))) in differs.iter_mut().zip(pairs) {
            let one = fours(first ^ code[0]) + fours(second ^ code[1]);
            let other = fours(third ^ code[2]) + fours(fourth ^ code[3]);
            *differ = sum(eights(one) + eights(other));
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
            let mut codes = Codes::default();
            for row in &waiting {
                codes.add(row.get(0), words(row.get::<_, Bits>(1).bytes()));
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
    let code: Code = words(code.bytes());
    let mut nearest = Nearest::new(most);
    for (number, codes) in all.iter().enumerate() {
        match allowed {
            None => {
                // Counted for many at once, which takes a fourth of the time of one by one.
                let mut differs = [0_u64; MANY];
                for from in (0..codes.seqs.len()).step_by(MANY) {
                    let to = codes.seqs.len().min(from + MANY);
                    codes.differ(&code, from..to, &mut differs);
                    for (place, differ) in (from..to).zip(&differs) {
                        nearest.offer(*differ as usize, number, place);
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
                        nearest.offer(distance(&code, &codes.code(place)), number, place);
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

    fn offer(&mut self, differs: usize, number: usize, place: usize) {
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
            let mut same: Vec<(i64, Code)> = same
                .into_iter()
                .map(|(number, place)| {
                    let codes = &all[number as usize];
                    (codes.seqs[place as usize], codes.code(place as usize))
                })
                .collect();
            same.sort_unstable_by_key(|(seq, _)| *seq);
            same.truncate(self.most - found.len());
            found.extend(same.into_iter().map(|(seq, code)| Near { seq, code: Bits::of(&code) }));
        }
        found
    }
}

/// In how many bits two codes differ.
fn distance(code: &Code, other: &Code) -> usize {
    code.iter().zip(other).map(|(one, other)| (one ^ other).count_ones() as usize).sum()
}

/// How many bits are set in each four of a word.
fn fours(word: u64) -> u64 {
    let pairs = word - (word >> 1 & 0x5555_5555_5555_5555);
    (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333)
}

/// Each two fours as one eight.
fn eights(fours: u64) -> u64 {
    (fours & 0x0F0F_0F0F_0F0F_0F0F) + (fours >> 4 & 0x0F0F_0F0F_0F0F_0F0F)
}

/// The sum of eights. There is no multiplication in it, since processors of the oldest kind have none for several at once.
fn sum(eights: u64) -> u64 {
    let twos = (eights & 0x00FF_00FF_00FF_00FF) + (eights >> 8 & 0x00FF_00FF_00FF_00FF);
    let fours = twos + (twos >> 32);
    (fours + (fours >> 16)) & 0x1FF
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_counted_as_one_is() {
        let mut codes = Codes::default();
        let mut word = 0x9E37_79B9_7F4A_7C15_u64;
        for seq in 0..1000 {
            let mut next = || {
                word ^= word << 13;
                word ^= word >> 7;
                word ^= word << 17;
                word
            };
            codes.add(seq, [next(), next(), next(), next()]);
        }
        codes.add(1000, [0; WORDS]);
        codes.add(1001, [u64::MAX; WORDS]);
        for code in [[0; WORDS], [u64::MAX; WORDS], codes.code(7)] {
            let mut differs = [0; 1002];
            codes.differ(&code, 0..1002, &mut differs);
            for (place, differ) in differs.iter().enumerate() {
                assert_eq!(*differ as usize, distance(&code, &codes.code(place)), "{place}");
            }
        }
    }

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
