//! Merging the newest turns into the postings, many at once and term by term.
//!
//! The terms of one turn lie on as many pages, each of which is enciphered anew when it changes; of
//! thousands of turns most lie on the same ones. So turns wait until there are enough of them. Then
//! every transaction that stores turns merges some of their terms as well, in the order of the terms, so that none takes
//! long; where it has got to is part of the store (see [`State`]).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use hob_index::merge_policy::{MergeBacklog, MergePolicy};
use hob_index::postings::Posting;
use hob_index::terms;
use rusqlite::{Connection, Transaction};

use super::postings::{State, append, has_missed, newest, revision};

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

/// The terms of the turns that are being merged, held for as long as it goes on.
#[derive(Default)]
pub(super) struct Merging {
    /// The last turn that is known to be committed.
    committed: AtomicI64,
    /// Only the thread that writes looks at it.
    steps: Mutex<Steps>,
}

#[derive(Default)]
struct Steps {
    /// How many turns this process has stored.
    stored: usize,
    work: Option<Work>,
}

struct Work {
    next: i64,
    /// That of the step it was last used in. Where the store has another, that step was undone, or somebody
    /// else has merged since.
    token: i64,
    /// The last change of the index that is in it.
    revision: i64,
    postings: Waiting,
}

/// Terms, projects and their postings, in this order.
type Waiting = Vec<(Box<str>, i64, Vec<Posting>)>;

impl Merging {
    /// What a step was part of is committed, and so are the turns up to this one.
    pub(super) fn is_committed(&self, newest: i64) {
        self.committed.fetch_max(newest, Ordering::Relaxed);
    }

    /// Merges as much as so many new turns are worth. Returns the newest turn.
    pub(super) fn step(
        &self,
        transaction: &Transaction<'_>,
        inserted: usize,
    ) -> rusqlite::Result<i64> {
        let committed = self.committed.load(Ordering::Relaxed);
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        steps.step(transaction, inserted, committed)
    }
}

impl Steps {
    fn step(
        &mut self,
        transaction: &Transaction<'_>,
        inserted: usize,
        committed: i64,
    ) -> rusqlite::Result<i64> {
        self.stored += inserted;
        let mut state = State::read(transaction)?;
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
            // What is not surely committed may be another turn tomorrow.
            state.next = committed.min(state.merged + POLICY.max_turns);
            state.done.clear();
        }
        let work = self.work(transaction, &state)?;
        let share = work.postings.len() * PACE * inserted / POLICY.merge_size(newest) as usize;
        let least = share.max(MIN_STEP_LISTS);
        let begin = work.postings.partition_point(|(term, ..)| **term <= *state.done);
        let mut left = work.postings[begin..].iter().enumerate().peekable();
        while let Some((merged, (term, project, postings))) = left.next() {
            append(transaction, term, *project, postings)?;
            // A term is merged for all projects or for none.
            let last = left.peek().is_none_or(|(_, (next, ..))| next != term);
            if last && merged >= least {
                state.done = term.to_string();
                break;
            }
        }
        let ended = left.peek().is_none();
        state.token = RandomState::new().hash_one(newest).cast_signed();
        work.token = state.token;
        if ended {
            state.merged = state.next;
            state.done.clear();
            self.work = None;
        }
        state.write(transaction)?;
        Ok(newest)
    }

    fn work(
        &mut self,
        transaction: &Transaction<'_>,
        state: &State,
    ) -> rusqlite::Result<&mut Work> {
        let revision = revision(transaction)?;
        let valid = |held: &Work| held.next == state.next && held.token == state.token;
        let held = self.work.take().filter(valid);
        let work = match held {
            Some(mut held) if !changed(transaction, held.revision, state)? => {
                held.revision = revision;
                held
            }
            _ => Work {
                next: state.next,
                token: state.token,
                revision,
                postings: waiting(transaction, state.merged, state.next)?,
            },
        };
        Ok(self.work.insert(work))
    }
}

/// Whether one of the turns that are being merged has changed since then, or that can't be told any more.
fn changed(connection: &Connection, since: i64, state: &State) -> rusqlite::Result<bool> {
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

/// The postings of all turns behind one and up to another.
fn waiting(connection: &Connection, behind: i64, to: i64) -> rusqlite::Result<Waiting> {
    let mut projects: HashMap<i64, HashMap<Box<str>, Vec<Posting>>> = HashMap::new();
    let mut statement = connection.prepare_cached(
        "SELECT i.seq, i.project, i.session, t.terms FROM indexed i JOIN terms t ON t.seq = i.seq
         WHERE i.seq > ?1 AND i.seq <= ?2 ORDER BY i.seq",
    )?;
    let mut rows = statement.query([behind, to])?;
    while let Some(row) = rows.next()? {
        let (seq, project, session) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let counts = terms::frequencies(row.get_ref(3)?.as_str()?);
        let length = terms::length(&counts);
        let all = projects.entry(project).or_default();
        for (term, times) in counts {
            let posting = Posting::new(seq, session, times, length);
            match all.get_mut(term) {
                Some(postings) => postings.push(posting),
                None => drop(all.insert(term.into(), vec![posting])),
            }
        }
    }
    let of_project = |(project, all): (i64, HashMap<Box<str>, Vec<Posting>>)| {
        all.into_iter().map(move |(term, postings)| (term, project, postings))
    };
    let mut all: Vec<_> = projects.into_iter().flat_map(of_project).collect();
    all.sort_unstable_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    Ok(all)
}
