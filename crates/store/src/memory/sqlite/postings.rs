//! Writing the index.
//!
//! A new turn is only noted with its terms (`indexed` and `terms`). Later a merge moves the
//! postings of thousands of turns into the posting lists at once (see the module `merge`). Until
//! then a query finds recent turns in the metadata cache. A turn that is changed or removed after
//! it was merged is changed in its posting lists at once.

use std::collections::BTreeMap;

use hob_index::postings::Posting;
use hob_index::terms;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::posting_list::PostingList;

/// `index_changes` keeps this many rows. A cache that has missed more reads everything again.
const MAX_CHANGES: i64 = 50_000;
/// The turn number in `index_changes` that stands for a change of any number of turns.
pub(super) const EVERYTHING: i64 = -1;

/// A turn as the index takes it.
pub(super) struct IndexedTurn<'a> {
    pub(super) seq: i64,
    pub(super) project: i64,
    pub(super) session: i64,
    pub(super) ts: i64,
    pub(super) at: i64,
    /// Separated by blanks.
    pub(super) terms: &'a str,
}

/// The progress of merging turns into the posting lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MergeState {
    /// All terms of the turns up to this one are merged.
    pub(super) merged: i64,
    /// The turn up to which the merge in progress goes; `merged` if there is none.
    pub(super) next: i64,
    /// The merge in progress has come to this term. It takes the terms in their order.
    pub(super) done: String,
    /// A random number that changes with every step of a merge.
    pub(super) token: i64,
}

impl MergeState {
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<MergeState> {
        connection.prepare_cached("SELECT merged, next, done, token FROM index_state")?.query_row(
            [],
            |row| {
                let (merged, next) = (row.get(0)?, row.get(1)?);
                Ok(MergeState { merged, next, done: row.get(2)?, token: row.get(3)? })
            },
        )
    }

    pub(super) fn write(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        transaction
            .prepare_cached("UPDATE index_state SET merged = ?1, next = ?2, done = ?3, token = ?4")?
            .execute(params![self.merged, self.next, self.done, self.token])?;
        Ok(())
    }

    /// Returns the last turn whose postings are in the lists of a term.
    pub(super) fn merged_up_to(&self, term: &str) -> i64 {
        if term <= self.done.as_str() { self.next } else { self.merged }
    }
}

/// The changes of a transaction to the index. The sums of projects and sessions are written at the
/// end, by [`IndexChanges::write`].
pub(super) struct IndexChanges {
    state: MergeState,
    projects: BTreeMap<i64, IndexSums>,
    sessions: BTreeMap<i64, IndexSums>,
}

/// Numbers to add to the sums of a project or a session.
#[derive(Default)]
struct IndexSums {
    turns: i64,
    /// In terms.
    length: i64,
}

impl IndexChanges {
    pub(super) fn new(transaction: &Transaction<'_>) -> rusqlite::Result<IndexChanges> {
        let state = MergeState::read(transaction)?;
        Ok(IndexChanges { state, projects: BTreeMap::new(), sessions: BTreeMap::new() })
    }

    pub(super) fn add(
        &mut self,
        transaction: &Transaction<'_>,
        turn: &IndexedTurn<'_>,
    ) -> rusqlite::Result<()> {
        let IndexedTurn { seq, project, session, ts, at, terms } = *turn;
        let frequencies = terms::frequencies(terms);
        let length = terms::length(&frequencies);
        // A turn that comes back after the merge of its number goes into the lists at once.
        for (term, frequency) in &frequencies {
            if seq <= self.state.merged_up_to(term) {
                let posting = Posting::new(seq, session, *frequency, length);
                PostingList::new(transaction, term, project).insert(posting)?;
            }
        }
        self.count(project, session, 1, i64::from(length));
        transaction
            .prepare_cached(
                "INSERT INTO indexed (seq, project, session, ts, at, length)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![seq, project, session, ts, at, length])?;
        transaction
            .prepare_cached("INSERT INTO terms (seq, terms) VALUES (?1, ?2)")?
            .execute(params![seq, terms])?;
        Ok(())
    }

    /// Removes a turn from the index, if it is there.
    pub(super) fn remove(
        &mut self,
        transaction: &Transaction<'_>,
        seq: i64,
    ) -> rusqlite::Result<()> {
        let row: Option<(i64, i64, i64)> = transaction
            .prepare_cached(
                "DELETE FROM indexed WHERE seq = ?1 RETURNING project, session, length",
            )?
            .query_row([seq], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let Some((project, session, length)) = row else { return Ok(()) };
        let terms: Option<String> = transaction
            .prepare_cached("DELETE FROM terms WHERE seq = ?1 RETURNING terms")?
            .query_row([seq], |row| row.get(0))
            .optional()?;
        for (term, _) in terms::frequencies(&terms.unwrap_or_default()) {
            if seq <= self.state.merged_up_to(term) {
                PostingList::new(transaction, term, project).remove(seq)?;
            }
        }
        self.count(project, session, -1, -length);
        Ok(())
    }

    fn count(&mut self, project: i64, session: i64, turns: i64, length: i64) {
        for sums in
            [self.projects.entry(project).or_default(), self.sessions.entry(session).or_default()]
        {
            sums.turns += turns;
            sums.length += length;
        }
    }

    /// Writes the sums.
    pub(super) fn write(self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let tables = [
            ("index_projects", "project", self.projects),
            ("index_sessions", "session", self.sessions),
        ];
        for (table, column, sums) in tables {
            let add = format!(
                "INSERT INTO {table} ({column}, turns, length) VALUES (?1, ?2, ?3)
                 ON CONFLICT ({column}) DO UPDATE SET turns = turns + ?2, length = length + ?3"
            );
            let mut add = transaction.prepare_cached(&add)?;
            let delete = format!("DELETE FROM {table} WHERE {column} = ?1 AND turns <= 0");
            for (id, IndexSums { turns, length }) in sums {
                add.execute([id, turns, length])?;
                if turns < 0 {
                    transaction.prepare_cached(&delete)?.execute([id])?;
                }
            }
        }
        Ok(())
    }
}

/// Notes for all caches that a turn of the index has changed.
pub(super) fn note_change(transaction: &Transaction<'_>, seq: i64) -> rusqlite::Result<()> {
    transaction.prepare_cached("INSERT INTO index_changes (seq) VALUES (?1)")?.execute([seq])?;
    let revision = transaction.last_insert_rowid();
    transaction
        .prepare_cached("DELETE FROM index_changes WHERE revision <= ?1")?
        .execute([revision - MAX_CHANGES])?;
    Ok(())
}

/// Returns the number of the last change.
pub(super) fn revision(connection: &Connection) -> rusqlite::Result<i64> {
    connection
        .prepare_cached("SELECT coalesce(max(revision), 0) FROM index_changes")?
        .query_row([], |row| row.get(0))
}

/// Returns whether changes after this one are deleted already.
pub(super) fn has_missed(connection: &Connection, since: i64) -> rusqlite::Result<bool> {
    let oldest: Option<i64> = connection
        .prepare_cached("SELECT min(revision) FROM index_changes")?
        .query_row([], |row| row.get(0))?;
    Ok(oldest.is_some_and(|oldest| oldest > since + 1))
}

/// Returns the newest turn of the index.
pub(super) fn newest(connection: &Connection) -> rusqlite::Result<i64> {
    connection
        .prepare_cached("SELECT coalesce(max(seq), 0) FROM indexed")?
        .query_row([], |row| row.get(0))
}
