//! Bounded top-k selection.

/// Keeps the `k` smallest `(key, id)` pairs seen so far; ties break by `id`.
///
/// The pairs are not kept sorted. They are cut down to `k` whenever twice as many have gathered, so
/// that an offer costs constant time on average.
pub struct TopK<D, K> {
    k: usize,
    /// No pair with a greater key can be among the first `k`.
    bound: Option<D>,
    /// At most `2 * k` pairs.
    pairs: Vec<(D, K)>,
}

impl<D: Ord + Copy, K: Ord + Copy> TopK<D, K> {
    /// Selects `k` pairs, but at least one.
    pub fn new(k: usize) -> TopK<D, K> {
        TopK { k: k.max(1), bound: None, pairs: Vec::new() }
    }

    /// Returns whether a pair with this key may still be selected.
    pub fn accepts(&self, key: D) -> bool {
        self.bound.is_none_or(|bound| key <= bound)
    }

    pub fn offer(&mut self, key: D, id: K) {
        if !self.accepts(key) {
            return;
        }
        self.pairs.push((key, id));
        if self.pairs.len() >= self.k.saturating_mul(2) {
            let (_, (bound, _), _) = self.pairs.select_nth_unstable(self.k - 1);
            self.bound = Some(*bound);
            self.pairs.truncate(self.k);
        }
    }

    /// Returns the selected ids in the order of their pairs.
    pub fn into_ids(mut self) -> impl Iterator<Item = K> {
        self.pairs.sort_unstable();
        self.pairs.truncate(self.k);
        self.pairs.into_iter().map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_k_does_not_depend_on_the_order_of_offers() {
        let mut all: Vec<(u16, i64)> =
            (0..1000_i64).map(|n| ((n * 37 % 19) as u16, n * 71 % 1000)).collect();
        for k in [1, 2, 7, 100, 999, 1000, usize::MAX] {
            let mut top = TopK::new(k);
            all.iter().for_each(|(key, id)| top.offer(*key, *id));
            all.sort_unstable();
            let expect: Vec<i64> = all.iter().take(k).map(|(_, id)| *id).collect();
            assert_eq!(top.into_ids().collect::<Vec<i64>>(), expect);
            all.sort_by_key(|(_, id)| id * 7 % 1000);
        }
        assert_eq!(TopK::<u16, i64>::new(3).into_ids().count(), 0);
    }
}
