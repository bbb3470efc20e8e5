//! Vectors that were read before, so many that they take a bounded place: turns of one session come
//! together, and good ones come again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use hob_domain::memory::Candidate;
use rusqlite::Connection;

use super::cache::Standing;
use super::postings::{newest, revision};

/// Turns whose numbers fall into the same so many are read together.
const TOGETHER: i64 = 16;
/// Bytes that the younger half may have before it becomes the older one.
const HALF: usize = 40 << 20;

/// The vectors of one project among turns that are read together, in the order of the turns.
struct Block(Vec<(i64, Arc<[i8]>)>);

impl Block {
    fn vector(&self, seq: i64) -> Option<&Arc<[i8]>> {
        let place = self.0.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
        Some(&self.0[place].1)
    }

    /// With what each takes beside its numbers.
    fn bytes(&self) -> usize {
        self.0.iter().map(|(_, vector)| vector.len() + 56).sum::<usize>() + 100
    }
}

#[derive(Default)]
pub(super) struct Vectors {
    kept: Mutex<Kept>,
}

/// By project and number. What is asked for moves to the younger half; the older one goes as a whole.
#[derive(Default)]
struct Kept {
    young: HashMap<(u32, i64), Arc<Block>>,
    old: HashMap<(u32, i64), Arc<Block>>,
    bytes: usize,
}

impl Vectors {
    /// Lets go of those that are not what they were.
    pub(super) fn forget(&self, changed: &HashSet<i64>) {
        let changed: HashSet<i64> = changed.iter().map(|seq| seq / TOGETHER).collect();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.young.retain(|(_, number), _| !changed.contains(number));
        kept.old.retain(|(_, number), _| !changed.contains(number));
    }

    /// Gives candidates their vectors. They are in order, and so are the turns they stand for. `known` is the last change
    /// that was told to [`Vectors::forget`].
    pub(super) fn fill<'t>(
        &self,
        connection: &Connection,
        known: i64,
        turns: impl Iterator<Item = &'t Standing>,
        candidates: &mut [Candidate],
    ) -> rusqlite::Result<()> {
        // What is read in an older state than that must not be kept, nor what may get more turns.
        let whole = if revision(connection)? == known { newest(connection)? } else { 0 };
        let mut last: Option<((u32, i64), Arc<Block>)> = None;
        for (turn, candidate) in turns.zip(candidates) {
            let key = (turn.project, turn.seq / TOGETHER);
            let block = match last.take() {
                Some((same, block)) if same == key => block,
                _ => self.block(connection, key, whole)?,
            };
            candidate.vector = block.vector(turn.seq).cloned().unwrap_or_default();
            last = Some((key, block));
        }
        Ok(())
    }

    fn block(
        &self,
        connection: &Connection,
        key: (u32, i64),
        whole: i64,
    ) -> rusqlite::Result<Arc<Block>> {
        if let Some(block) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
            return Ok(block);
        }
        let first = key.1 * TOGETHER;
        let end = first + TOGETHER - 1;
        let mut statement = connection.prepare_cached(
            "SELECT seq, vector FROM vectors WHERE project = ?1 AND seq BETWEEN ?2 AND ?3",
        )?;
        let mut rows = statement.query([i64::from(key.0), first, end])?;
        let mut block = Block(Vec::with_capacity(TOGETHER as usize));
        while let Some(row) = rows.next()? {
            let bytes = row.get_ref(1)?.as_blob()?;
            block.0.push((row.get(0)?, bytes.iter().map(|byte| byte.cast_signed()).collect()));
        }
        block.0.shrink_to_fit();
        let block = Arc::new(block);
        if end <= whole {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.put(key, block.clone());
        }
        Ok(block)
    }
}

impl Kept {
    fn get(&mut self, key: (u32, i64)) -> Option<Arc<Block>> {
        if let Some(block) = self.young.get(&key) {
            return Some(block.clone());
        }
        let block = self.old.remove(&key)?;
        self.put(key, block.clone());
        Some(block)
    }

    fn put(&mut self, key: (u32, i64), block: Arc<Block>) {
        let bytes = block.bytes();
        if self.bytes + bytes > HALF {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.young.insert(key, block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let mut kept = Kept::default();
        let block = |seq: i64| Arc::new(Block(vec![(seq, vec![0; 1 << 20].into())]));
        for number in 0..400 {
            kept.put((1, number), block(number));
            assert!(kept.get((1, 0)).is_some(), "{number}");
        }
        assert!(kept.get((1, 399)).is_some() && kept.get((1, 200)).is_none());
        assert!(kept.get((2, 399)).is_none());
        assert!(kept.young.len() + kept.old.len() <= 2 * (HALF >> 20));
    }
}
