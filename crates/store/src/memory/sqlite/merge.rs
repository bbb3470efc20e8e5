//! Merging recent turns into the posting lists, many turns at once and term by term.
//!
//! The terms of one turn lie on as many pages of the file, each of which is encrypted again when it
//! changes. The terms of thousands of turns lie mostly on the same pages. So turns wait until there
//! are enough of them. Then every transaction that stores turns also merges some of the waiting
//! terms, in the order of the terms, so that none takes long. How far the merge has come is part of
//! the store (see [`MergeState`]).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use hob_index::merge_policy::{MergeBacklog, MergePolicy};
use hob_index::postings::Posting;
use hob_index::terms;
use rusqlite::{Connection, Transaction};

use super::posting_list::PostingList;
use super::postings::{MergeState, has_missed, newest, revision};

/// In this crate's own tests a merge is always due.
const POLICY: MergePolicy = MergePolicy {
    share: 10,
    min_turns: if cfg!(test) { 12 } else { 2048 },
    max_turns: 16_384,
    min_stored: if cfg!(test) { 2 } else { 100 },
};
/// A merge of n turns ends when n / `PACE` more have come.
const PACE: usize = 2;
/// A step merges at least this many posting lists.
const MIN_STEP_LISTS: usize = if cfg!(test) { 2 } else { 100 };

/// The merge in progress, as this process knows it.
#[derive(Default)]
pub(super) struct Merging {
    /// The last turn that is known to be committed.
    committed: AtomicI64,
    /// Only the writer thread locks it.
    progress: Mutex<MergeProgress>,
}

#[derive(Default)]
struct MergeProgress {
    /// The number of turns that this process has stored.
    stored: usize,
    waiting: Option<WaitingPostings>,
}

/// The postings of the turns that are being merged, kept from step to step.
struct WaitingPostings {
    next: i64,
    /// The token of the step that used them last. If the store has another token, that step was
    /// rolled back, or another process has merged since.
    token: i64,
    /// The last change of the index that they include.
    revision: i64,
    lists: Vec<WaitingList>,
}

/// Postings that wait for their list. They are in the order of terms and projects.
struct WaitingList {
    term: Box<str>,
    project: i64,
    postings: Vec<Posting>,
}

impl Merging {
    /// Notes that the transaction of a step was committed, and with it the turns up to this one.
    pub(super) fn is_committed(&self, newest: i64) {
        self.committed.fetch_max(newest, Ordering::Relaxed);
    }

    /// Merges a part, in proportion to the turns that were inserted. Returns the newest turn.
    pub(super) fn step(
        &self,
        transaction: &Transaction<'_>,
        inserted: usize,
    ) -> rusqlite::Result<i64> {
        let committed = self.committed.load(Ordering::Relaxed);
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.step(transaction, inserted, committed)
    }
}

impl MergeProgress {
    fn step(
        &mut self,
        transaction: &Transaction<'_>,
        inserted: usize,
        committed: i64,
    ) -> rusqlite::Result<i64> {
        self.stored += inserted;
        let mut state = MergeState::read(transaction)?;
        let newest = newest(transaction)?;
        let backlog = MergeBacklog {
            newest,
            waiting: committed - state.merged,
            is_merging: state.next > state.merged,
            stored: self.stored,
        };
        if inserted == 0 || !POLICY.is_due_for_process(backlog) {
            return Ok(newest);
        }
        if !backlog.is_merging {
            // A turn that is not committed may be rolled back, and its number given to another.
            state.next = committed.min(state.merged + POLICY.max_turns);
            state.done.clear();
        }
        let waiting = self.waiting(transaction, &state)?;
        let share = waiting.lists.len() * PACE * inserted / POLICY.merge_size(newest) as usize;
        let least = share.max(MIN_STEP_LISTS);
        let begin = waiting.lists.partition_point(|list| *list.term <= *state.done);
        let mut rest = waiting.lists[begin..].iter().enumerate().peekable();
        while let Some((merged, list)) = rest.next() {
            PostingList::new(transaction, &list.term, list.project).append(&list.postings)?;
            // A term is merged for all projects or for none.
            let is_last_of_term = rest.peek().is_none_or(|(_, next)| next.term != list.term);
            if is_last_of_term && merged >= least {
                state.done = list.term.to_string();
                break;
            }
        }
        let has_ended = rest.peek().is_none();
        state.token = RandomState::new().hash_one(newest).cast_signed();
        waiting.token = state.token;
        if has_ended {
            state.merged = state.next;
            state.done.clear();
            self.waiting = None;
        }
        state.write(transaction)?;
        Ok(newest)
    }

    /// Returns the postings of the merge in progress, which are read again if they are not up to
    /// date.
    fn waiting(
        &mut self,
        transaction: &Transaction<'_>,
        state: &MergeState,
    ) -> rusqlite::Result<&mut WaitingPostings> {
        let revision = revision(transaction)?;
        let is_valid =
            |kept: &WaitingPostings| kept.next == state.next && kept.token == state.token;
        let waiting = match self.waiting.take().filter(is_valid) {
            Some(mut kept) if !has_changed(transaction, kept.revision, state)? => {
                kept.revision = revision;
                kept
            }
            _ => WaitingPostings {
                next: state.next,
                token: state.token,
                revision,
                lists: read_waiting(transaction, state.merged, state.next)?,
            },
        };
        Ok(self.waiting.insert(waiting))
    }
}

/// Returns whether one of the turns that are being merged may have changed after this change.
fn has_changed(connection: &Connection, since: i64, state: &MergeState) -> rusqlite::Result<bool> {
    if has_missed(connection, since)? {
        return Ok(true);
    }
    connection
        .prepare_cached(
            "SELECT 1 FROM index_changes
             WHERE revision > ?1 AND (seq < 0 OR seq > ?2 AND seq <= ?3) LIMIT 1",
        )?
        .exists([since, state.merged, state.next])
}

/// Reads the terms of all turns after one and up to another, and sorts them into posting lists.
fn read_waiting(
    connection: &Connection,
    after: i64,
    to: i64,
) -> rusqlite::Result<Vec<WaitingList>> {
    let mut projects: HashMap<i64, HashMap<Box<str>, Vec<Posting>>> = HashMap::new();
    let mut statement = connection.prepare_cached(
        "SELECT i.seq, i.project, i.session, t.terms FROM indexed i JOIN terms t ON t.seq = i.seq
         WHERE i.seq > ?1 AND i.seq <= ?2 ORDER BY i.seq",
    )?;
    let mut rows = statement.query([after, to])?;
    while let Some(row) = rows.next()? {
        let (seq, project, session) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let frequencies = terms::frequencies(row.get_ref(3)?.as_str()?);
        let length = terms::length(&frequencies);
        let lists = projects.entry(project).or_default();
        for (term, frequency) in frequencies {
            let posting = Posting::new(seq, session, frequency, length);
            match lists.get_mut(term) {
                Some(postings) => postings.push(posting),
                None => drop(lists.insert(term.into(), vec![posting])),
            }
        }
    }
    let mut all = Vec::with_capacity(projects.values().map(HashMap::len).sum());
    for (project, lists) in projects {
        all.extend(lists.into_iter().map(|(term, postings)| WaitingList {
            term,
            project,
            postings,
        }));
    }
    all.sort_unstable_by(|a, b| (&a.term, a.project).cmp(&(&b.term, b.project)));
    Ok(all)
}
