//! When new postings are merged into the posting lists, and how much at a time.
//!
//! The terms of one turn lie in as many blocks all over the index, and the terms of thousands of
//! turns lie mostly in the same ones. So turns wait until there are many, and are merged together.
//! There is no background task: each write merges a part, in proportion to what it stores, so that
//! no write takes long and a merge ends while turns still come.

/// The thresholds of one store.
#[derive(Debug, Clone, Copy)]
pub struct MergePolicy {
    /// A merge begins when this share of all turns waits (one of `share`)…
    pub share: i64,
    /// …but not before this many turns wait…
    pub min_turns: i64,
    /// …and at the latest when this many wait.
    pub max_turns: i64,
    /// A writer that has stored fewer turns than this leaves the merging to others, unless it is
    /// overdue: to begin costs more than everything else such a writer does.
    pub min_stored: usize,
}

/// The state of a store's merge, as a writer finds it.
#[derive(Debug, Clone, Copy)]
pub struct MergeBacklog {
    /// The number of the newest turn.
    pub newest: i64,
    /// The number of turns that wait.
    pub waiting: i64,
    /// Whether a merge has begun and has not ended.
    pub is_merging: bool,
    /// The number of turns that the writer has stored.
    pub stored: usize,
}

impl MergePolicy {
    /// Returns how many turns are merged together when there are this many.
    pub fn merge_size(&self, turns: i64) -> i64 {
        (turns / self.share).clamp(self.min_turns, self.max_turns)
    }

    /// Decides for a process that has a file for itself most of the time. `stored` counts all turns
    /// that it has stored since it started, so that a process which stores one turn and ends never
    /// begins a merge.
    pub fn is_due_for_process(&self, backlog: MergeBacklog) -> bool {
        let enough = self.merge_size(backlog.newest);
        let is_due = backlog.is_merging || backlog.waiting >= enough;
        let is_worth_it = backlog.stored >= self.min_stored || backlog.waiting >= 2 * enough;
        is_due && is_worth_it
    }

    /// Decides for one batch of one of many writers. `stored` counts the turns of the batch. Small
    /// batches leave the merging to larger ones, until twice the least number waits: each of them
    /// adds a block for every term, and a query reads them all.
    pub fn is_due_for_batch(&self, backlog: MergeBacklog) -> bool {
        let is_large = backlog.stored >= self.min_stored;
        let enough = if is_large { self.merge_size(backlog.newest) } else { 2 * self.min_turns };
        backlog.waiting > enough || (backlog.is_merging && is_large)
    }
}

/// Decides whether a new group of sign codes takes in the group before it.
///
/// Groups grow as the digits of a number do: a new one takes in those before it that are at most
/// twice as large, so that however few codes come at a time there are few groups, and each code is
/// written only a few times. All sizes are in bytes; no group grows beyond `full`.
pub fn absorbs_group(new: usize, before: usize, full: usize) -> bool {
    before <= 2 * new && before + new <= full
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: MergePolicy =
        MergePolicy { share: 10, min_turns: 100, max_turns: 1000, min_stored: 16 };

    fn backlog(waiting: i64, is_merging: bool, stored: usize) -> MergeBacklog {
        MergeBacklog { newest: 5000, waiting, is_merging, stored }
    }

    #[test]
    fn merge_size_is_a_share_within_bounds() {
        assert_eq!([50, 5000, 90_000].map(|turns| POLICY.merge_size(turns)), [100, 500, 1000]);
    }

    #[test]
    fn process_merges_when_enough_wait_and_it_stores_much_or_it_is_overdue() {
        let is_due = |waiting, is_merging, stored| {
            POLICY.is_due_for_process(backlog(waiting, is_merging, stored))
        };
        assert!(!is_due(499, false, 16) && is_due(500, false, 16));
        assert!(is_due(1, true, 16) && !is_due(1, true, 15));
        assert!(!is_due(999, false, 1) && is_due(1000, false, 1));
    }

    #[test]
    fn batch_merges_when_more_than_enough_wait() {
        let is_due = |waiting, is_merging, stored| {
            POLICY.is_due_for_batch(backlog(waiting, is_merging, stored))
        };
        assert!(!is_due(500, false, 16) && is_due(501, false, 16));
        assert!(is_due(1, true, 16) && !is_due(1, true, 15));
        assert!(!is_due(200, true, 1) && is_due(201, false, 1));
    }

    #[test]
    fn groups_of_codes_double_until_they_are_full() {
        assert!(absorbs_group(10, 20, 100) && !absorbs_group(10, 21, 100));
        assert!(absorbs_group(40, 60, 100) && !absorbs_group(40, 61, 100));
    }
}
