//! Stems of words that were stemmed before. Most words of a text are among the few thousand that all texts share, and
//! looking one up takes a tenth of the time of stemming it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Longer words are rare, and are stemmed again.
const MAX_WORD_BYTES: usize = 20;
/// Threads that analyse texts at one time rarely need the same shard.
const SHARDS: usize = 32;
/// A full shard is emptied. All shards together take about 4 MB at most.
const MAX_SHARD_WORDS: usize = 1024;

type Shard = Mutex<HashMap<Box<str>, Box<str>>>;

/// A bounded cache of stems.
pub(super) struct StemCache {
    shards: [Shard; SHARDS],
}

impl Default for StemCache {
    fn default() -> StemCache {
        StemCache { shards: std::array::from_fn(|_| Shard::default()) }
    }
}

impl StemCache {
    /// Returns the stem of a word, which `stem` computes if it is not known.
    pub(super) fn get(&self, word: &str, stem: impl FnOnce(&str) -> String) -> String {
        if word.len() > MAX_WORD_BYTES {
            return stem(word);
        }
        let sum: usize = word.bytes().map(usize::from).sum();
        let shard = &self.shards[sum % SHARDS];
        if let Some(known) = lock(shard).get(word) {
            return known.to_string();
        }
        let stemmed = stem(word);
        let mut words = lock(shard);
        if words.len() >= MAX_SHARD_WORDS {
            words.clear();
        }
        words.insert(word.into(), stemmed.as_str().into());
        stemmed
    }
}

fn lock(shard: &Shard) -> std::sync::MutexGuard<'_, HashMap<Box<str>, Box<str>>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_words_are_not_stemmed_again_and_the_cache_is_bounded() {
        let cache = StemCache::default();
        let upper = |word: &str| word.to_uppercase();
        assert_eq!(cache.get("tests", upper), "TESTS");
        assert_eq!(cache.get("tests", |_| unreachable!("it is known")), "TESTS");
        let long = "x".repeat(MAX_WORD_BYTES + 1);
        assert_eq!(cache.get(&long, upper), long.to_uppercase());
        assert_eq!(cache.get(&long, |_| "other".to_owned()), "other");
        for number in 0..2 * SHARDS * MAX_SHARD_WORDS {
            let word = format!("w{number}");
            assert_eq!(cache.get(&word, upper), word.to_uppercase());
        }
        let words: usize = cache.shards.iter().map(|shard| lock(shard).len()).sum();
        assert!(words > MAX_SHARD_WORDS && words <= SHARDS * MAX_SHARD_WORDS, "{words}");
    }
}
