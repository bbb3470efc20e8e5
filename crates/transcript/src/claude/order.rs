//! The order of records along their parent links: in the first batch of a new file the lines are not
//! always in causal order.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::hash::Hash;

/// A queue that releases records after their parents. Of the records that are ready, the one with
/// the smallest key comes first.
#[derive(Debug)]
pub struct ParentOrder<I, K, T> {
    released: HashSet<I>,
    /// Records whose parent is not released yet, by that parent.
    waiting: HashMap<I, Vec<Queued<I, K, T>>>,
    ready: BinaryHeap<Reverse<Queued<I, K, T>>>,
}

#[derive(Debug)]
struct Queued<I, K, T> {
    id: I,
    key: K,
    record: T,
}

impl<I, K: Ord, T> Default for ParentOrder<I, K, T> {
    fn default() -> Self {
        ParentOrder { released: HashSet::new(), waiting: HashMap::new(), ready: BinaryHeap::new() }
    }
}

impl<I: Clone + Eq + Hash, K: Ord, T> ParentOrder<I, K, T> {
    /// Adds a record that waits for nothing.
    pub fn push(&mut self, id: I, key: K, record: T) {
        self.ready.push(Reverse(Queued { id, key, record }));
    }

    /// Adds a record that is ready once its parent is released.
    pub fn push_after(&mut self, parent: I, id: I, key: K, record: T) {
        if self.released.contains(&parent) {
            self.push(id, key, record);
        } else {
            self.waiting.entry(parent).or_default().push(Queued { id, key, record });
        }
    }

    /// Releases the next record. A record that was added twice comes once.
    pub fn pop(&mut self) -> Option<T> {
        while let Some(Reverse(Queued { id, record, .. })) = self.ready.pop() {
            if self.released.insert(id.clone()) {
                let children = self.waiting.remove(&id).unwrap_or_default();
                self.ready.extend(children.into_iter().map(Reverse));
                return Some(record);
            }
        }
        None
    }

    pub fn is_released(&self, id: &I) -> bool {
        self.released.contains(id)
    }
}

impl<I, K: Ord, T> Ord for Queued<I, K, T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

impl<I, K: Ord, T> PartialOrd for Queued<I, K, T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<I, K: Ord, T> PartialEq for Queued<I, K, T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<I, K: Ord, T> Eq for Queued<I, K, T> {}

/// Returns the positions of a whole batch of records in causal order; `parents` has the position of
/// each record's parent.
///
/// Of the records that are ready, the earliest in the file comes first. A cycle of parents does not
/// hold anything back.
pub fn causal_order(parents: &[Option<usize>]) -> Vec<usize> {
    let is_after_its_parent =
        |(index, parent): (usize, &Option<usize>)| parent.is_none_or(|parent| parent < index);
    if parents.iter().enumerate().all(is_after_its_parent) {
        return (0..parents.len()).collect();
    }
    let mut order = ParentOrder::default();
    for (index, parent) in parents.iter().enumerate() {
        match parent {
            Some(parent) => order.push_after(*parent, index, index, index),
            None => order.push(index, index, index),
        }
    }
    let mut sequence = Vec::with_capacity(parents.len());
    let mut earliest = 0;
    loop {
        while let Some(index) = order.pop() {
            sequence.push(index);
        }
        while earliest < parents.len() && order.is_released(&earliest) {
            earliest += 1;
        }
        if earliest == parents.len() {
            return sequence;
        }
        // What remains depends on a cycle. Releasing the cycle's earliest record makes everything
        // that depends on it ready in turn.
        let first = first_of_cycle(earliest, parents);
        order.push(first, first, first);
    }
}

/// Returns the earliest record of the cycle that the parents of `from` lead to.
fn first_of_cycle(from: usize, parents: &[Option<usize>]) -> usize {
    let mut visited = HashSet::new();
    let mut at = from;
    while visited.insert(at) {
        match parents[at] {
            Some(parent) => at = parent,
            None => return at,
        }
    }
    let mut first = at;
    let mut walk = parents[at];
    while let Some(next) = walk.filter(|next| *next != at) {
        first = first.min(next);
        walk = parents[next];
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causal_order_keeps_the_file_order_where_it_can() {
        assert_eq!(causal_order(&[None, Some(0), Some(1)]), [0, 1, 2]);
        assert_eq!(causal_order(&[Some(2), None, Some(1), Some(1)]), [1, 2, 0, 3]);
        // A cycle of 0 and 1, on which 2 depends, after a record that is ready.
        assert_eq!(causal_order(&[Some(1), Some(0), Some(1), None]), [3, 0, 1, 2]);
    }

    #[test]
    fn parent_order_releases_late_records_at_once() {
        let mut order = ParentOrder::default();
        order.push_after("a", "b", 2, "second");
        assert_eq!(order.pop(), None);
        order.push("a", 1, "first");
        assert_eq!(order.pop(), Some("first"));
        assert_eq!(order.pop(), Some("second"));
        order.push_after("a", "c", 0, "third");
        assert_eq!((order.pop(), order.pop()), (Some("third"), None));
    }
}
