//! The signs of all vectors, held in memory: which turns point about the same way is then a matter of
//! counting bits, a few nanoseconds a turn.

use std::sync::{PoisonError, RwLock};

use rusqlite::{Connection, params};

use super::propose::Range;

/// Bits in a code; a longer vector is told by its beginning.
const BITS: usize = 256;
const WORDS: usize = BITS / 64;
/// So many times more than asked for are looked at closely.
const CLOSER: usize = 8;

type Code = [u64; WORDS];

/// What has been read so far. New turns are read when they are first needed; what is gone from the
/// store is noticed there.
#[derive(Default)]
pub(super) struct Codes {
    read: RwLock<Read>,
}

#[derive(Default)]
struct Read {
    last: i64,
    seqs: Vec<i64>,
    projects: Vec<u32>,
    codes: Vec<Code>,
}

impl Codes {
    /// Lets go of all that was read.
    pub(super) fn forget(&self) {
        *self.read.write().unwrap_or_else(PoisonError::into_inner) = Read::default();
    }

    /// The turns whose vectors are nearest by their signs, nearest first.
    pub(super) fn nearest(
        &self,
        connection: &Connection,
        range: &Range,
        vector: &[i8],
        limit: usize,
    ) -> rusqlite::Result<Vec<i64>> {
        let Some(code) = code(vector).map(|bytes| words(&bytes)) else { return Ok(Vec::new()) };
        self.catch_up(connection)?;
        let read = self.read.read().unwrap_or_else(PoisonError::into_inner);
        let few = read.near(&code, range, limit * CLOSER);
        let mut closer: Vec<(i32, i64)> = few
            .iter()
            .map(|place| (agreement(vector, &read.codes[*place]), read.seqs[*place]))
            .collect();
        closer.sort_unstable_by(|a, b| b.cmp(a));
        Ok(closer.into_iter().take(limit).map(|(_, seq)| seq).collect())
    }

    fn catch_up(&self, connection: &Connection) -> rusqlite::Result<()> {
        let last = self.read.read().unwrap_or_else(PoisonError::into_inner).last;
        let newest: Option<i64> = connection
            .prepare_cached("SELECT max(seq) FROM codes")?
            .query_row([], |row| row.get(0))?;
        if newest.is_none_or(|newest| newest <= last) {
            return Ok(());
        }
        let mut read = self.read.write().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have been here in between.
        let mut statement =
            connection.prepare_cached("SELECT seq, project, code FROM codes WHERE seq > ?1")?;
        let mut rows = statement.query(params![read.last])?;
        while let Some(row) = rows.next()? {
            let project: i64 = row.get(1)?;
            read.last = row.get(0)?;
            let last = read.last;
            read.seqs.push(last);
            read.projects.push(project as u32);
            read.codes.push(words(row.get_ref(2)?.as_blob()?));
        }
        Ok(())
    }
}

impl Read {
    /// Where the nearest stand, by the number of bits that differ.
    fn near(&self, code: &Code, range: &Range, most: usize) -> Vec<usize> {
        let mut projects: Vec<u32> = range.projects.iter().map(|project| *project as u32).collect();
        projects.sort_unstable();
        let inside = |place: usize| match projects[..] {
            [one] => self.projects[place] == one,
            _ => projects.binary_search(&self.projects[place]).is_ok(),
        };
        let mut at: Vec<Vec<u32>> = vec![Vec::new(); BITS + 1];
        // Farther than this there are enough nearer ones.
        let (mut farthest, mut held) = (BITS, 0);
        for (place, other) in self.codes.iter().enumerate() {
            let differ: u32 = code.iter().zip(other).map(|(a, b)| (a ^ b).count_ones()).sum();
            let differ = differ as usize;
            if differ > farthest || !inside(place) || !range.has(self.seqs[place]) {
                continue;
            }
            at[differ].push(place as u32);
            held += 1;
            while farthest > 0 && held - at[farthest].len() >= most {
                held -= at[farthest].len();
                at[farthest] = Vec::new();
                farthest -= 1;
            }
        }
        at.into_iter().flatten().take(most).map(|place| place as usize).collect()
    }
}

/// How far a vector goes along with the signs of another.
fn agreement(vector: &[i8], code: &Code) -> i32 {
    let one = |(place, value): (usize, &i8)| {
        let same = code[place / 64] >> (place % 64) & 1 == 1;
        if same { i32::from(*value) } else { -i32::from(*value) }
    };
    vector.iter().take(BITS).enumerate().map(one).sum()
}

/// The signs of a vector. `None` of one that points nowhere.
pub(super) fn code(vector: &[i8]) -> Option<Vec<u8>> {
    if vector.iter().all(|value| *value == 0) {
        return None;
    }
    let mut bytes = vec![0_u8; BITS / 8];
    for (place, value) in vector.iter().take(BITS).enumerate() {
        bytes[place / 8] |= u8::from(*value > 0) << (place % 8);
    }
    Some(bytes)
}

fn words(bytes: &[u8]) -> Code {
    let mut code = [0; WORDS];
    for (word, bytes) in code.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    code
}
