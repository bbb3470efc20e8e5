//! A bounded cache of vectors. Turns of a session are asked for together, and good ones are asked
//! for again, so vectors are read and cached in blocks of turns.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use hob_domain::memory::Candidate;
use rusqlite::Connection;

use super::metadata::TurnMetadata;
use super::postings::{newest, revision};

/// A block is this many consecutive numbers of turns.
const BLOCK_TURNS: i64 = 16;
/// The size of the younger generation, in bytes, at which it becomes the older one.
const MAX_GENERATION_BYTES: usize = 40 << 20;
/// The memory that a vector takes in addition to its values, and that a block takes.
const VECTOR_OVERHEAD_BYTES: usize = 56;
const BLOCK_OVERHEAD_BYTES: usize = 100;

/// The vectors of a block that belong to one project, in the order of their turns.
struct VectorBlock(Vec<(i64, Arc<[i8]>)>);

impl VectorBlock {
    fn vector(&self, seq: i64) -> Option<&Arc<[i8]>> {
        let place = self.0.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
        Some(&self.0[place].1)
    }

    /// About how many bytes of memory the block takes.
    fn bytes(&self) -> usize {
        let vectors = self.0.iter().map(|(_, vector)| vector.len() + VECTOR_OVERHEAD_BYTES);
        vectors.sum::<usize>() + BLOCK_OVERHEAD_BYTES
    }
}

#[derive(Default)]
pub(super) struct VectorCache {
    blocks: Mutex<Generations>,
}

/// Blocks by project and number. A block that is asked for moves to the younger generation; the
/// older one is dropped as a whole.
#[derive(Default)]
struct Generations {
    young: HashMap<(u32, i64), Arc<VectorBlock>>,
    old: HashMap<(u32, i64), Arc<VectorBlock>>,
    bytes: usize,
}

impl VectorCache {
    /// Drops the blocks of changed turns.
    pub(super) fn remove(&self, changed: &HashSet<i64>) {
        let changed: HashSet<i64> = changed.iter().map(|seq| seq / BLOCK_TURNS).collect();
        let mut kept = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        kept.young.retain(|(_, number), _| !changed.contains(number));
        kept.old.retain(|(_, number), _| !changed.contains(number));
    }

    /// Gives candidates the vectors of these turns. Both are in order. `known` is the last change
    /// that [`VectorCache::remove`] was called for.
    pub(super) fn fill<'t>(
        &self,
        connection: &Connection,
        known: i64,
        turns: impl Iterator<Item = &'t TurnMetadata>,
        candidates: &mut [Candidate],
    ) -> rusqlite::Result<()> {
        // A block must not be cached if it is older than that, or if it may get more turns.
        let complete = if revision(connection)? == known { newest(connection)? } else { 0 };
        let mut last: Option<((u32, i64), Arc<VectorBlock>)> = None;
        for (turn, candidate) in turns.zip(candidates) {
            let key = (turn.project, turn.seq / BLOCK_TURNS);
            let block = match last.take() {
                Some((same, block)) if same == key => block,
                _ => self.block(connection, key, complete)?,
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
        complete: i64,
    ) -> rusqlite::Result<Arc<VectorBlock>> {
        if let Some(block) = self.blocks.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
            return Ok(block);
        }
        let first = key.1 * BLOCK_TURNS;
        let end = first + BLOCK_TURNS - 1;
        let mut statement = connection.prepare_cached(
            "SELECT seq, vector FROM vectors WHERE project = ?1 AND seq BETWEEN ?2 AND ?3",
        )?;
        let mut rows = statement.query([i64::from(key.0), first, end])?;
        let mut block = VectorBlock(Vec::with_capacity(BLOCK_TURNS as usize));
        while let Some(row) = rows.next()? {
            let bytes = row.get_ref(1)?.as_blob()?;
            block.0.push((row.get(0)?, bytes.iter().map(|byte| byte.cast_signed()).collect()));
        }
        block.0.shrink_to_fit();
        let block = Arc::new(block);
        if end <= complete {
            let mut kept = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
            kept.put(key, block.clone());
        }
        Ok(block)
    }
}

impl Generations {
    fn get(&mut self, key: (u32, i64)) -> Option<Arc<VectorBlock>> {
        if let Some(block) = self.young.get(&key) {
            return Some(block.clone());
        }
        let block = self.old.remove(&key)?;
        self.put(key, block.clone());
        Some(block)
    }

    fn put(&mut self, key: (u32, i64), block: Arc<VectorBlock>) {
        let bytes = block.bytes();
        if self.bytes + bytes > MAX_GENERATION_BYTES {
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
    fn blocks_that_are_asked_for_stay_and_others_are_dropped() {
        let mut kept = Generations::default();
        let block = |seq: i64| Arc::new(VectorBlock(vec![(seq, vec![0; 1 << 20].into())]));
        for number in 0..400 {
            kept.put((1, number), block(number));
            assert!(kept.get((1, 0)).is_some(), "{number}");
        }
        assert!(kept.get((1, 399)).is_some() && kept.get((1, 200)).is_none());
        assert!(kept.get((2, 399)).is_none());
        assert!(kept.young.len() + kept.old.len() <= 2 * (MAX_GENERATION_BYTES >> 20));
    }
}
