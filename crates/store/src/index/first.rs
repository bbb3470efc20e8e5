//! The first so many of many things.

/// The first so far of things that are told apart by `K`, in the order of `D`; those that are alike in it in the order of
/// `K`.
pub(crate) struct First<D, K> {
    most: usize,
    /// Behind this there are enough others.
    last: Option<D>,
    /// At most twice as many as are asked for.
    held: Vec<(D, K)>,
}

impl<D: Ord + Copy, K: Ord + Copy> First<D, K> {
    pub(crate) fn new(most: usize) -> First<D, K> {
        First { most: most.max(1), last: None, held: Vec::new() }
    }

    /// Whether one of this place may be among them.
    pub(crate) fn wants(&self, place: D) -> bool {
        self.last.is_none_or(|last| place <= last)
    }

    pub(crate) fn offer(&mut self, place: D, one: K) {
        if !self.wants(place) {
            return;
        }
        self.held.push((place, one));
        if self.held.len() >= self.most.saturating_mul(2) {
            let (_, (last, _), _) = self.held.select_nth_unstable(self.most - 1);
            self.last = Some(*last);
            self.held.truncate(self.most);
        }
    }

    /// In order.
    pub(crate) fn found(mut self) -> impl Iterator<Item = K> {
        self.held.sort_unstable();
        self.held.truncate(self.most);
        self.held.into_iter().map(|(_, one)| one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_the_first_of_all_whatever_order_they_come_in() {
        let mut all: Vec<(u16, i64)> =
            (0..1000_i64).map(|n| ((n * 37 % 19) as u16, n * 71 % 1000)).collect();
        for most in [1, 2, 7, 100, 999, 1000, usize::MAX] {
            let mut first = First::new(most);
            all.iter().for_each(|(place, one)| first.offer(*place, *one));
            all.sort_unstable();
            let expect: Vec<i64> = all.iter().take(most).map(|(_, one)| *one).collect();
            assert_eq!(first.found().collect::<Vec<i64>>(), expect);
            all.sort_by_key(|(_, one)| one * 7 % 1000);
        }
        assert_eq!(First::<u16, i64>::new(3).found().count(), 0);
    }
}
