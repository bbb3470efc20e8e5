//! The metadata cache: what a process holds in memory of the index.
//!
//! Of every turn it holds the metadata: project, session, time and length. Of the recent turns,
//! which are not merged into the posting lists yet, it holds the postings as well. Another process
//! may write to the file at any time. So each query first compares the cache with the file: the
//! last turn, the last change (every change of an existing turn has a row in `index_changes`) and
//! how far the turns are merged. Then it reads only what is new.

use std::collections::{HashMap, HashSet};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use hob_domain::memory::Candidate;
use hob_index::postings::Posting;
use hob_index::terms;
use rusqlite::{Connection, OptionalExtension, params};

use super::metadata::TurnMetadata;
use super::postings::{EVERYTHING, MergeState, has_missed, newest, revision};
use super::vector_cache::VectorCache;

#[derive(Default)]
pub(super) struct IndexCache {
    cached: RwLock<CachedIndex>,
}

/// The contents of the cache.
#[derive(Default)]
pub(super) struct CachedIndex {
    /// The last turn that was read.
    last: i64,
    /// The last change that was read.
    revision: i64,
    /// Turns up to this one are merged into the posting lists and have no recent postings.
    merged: i64,
    /// In the order of `seq`.
    turns: Vec<TurnMetadata>,
    sessions: HashMap<u32, CachedSession>,
    /// Postings of turns that are not merged, by project and term. There are a hundred thousand of
    /// them.
    recent: HashMap<u32, HashMap<Box<str>, Vec<Posting>>>,
    vectors: VectorCache,
}

/// The turns of a session.
#[derive(Default)]
struct CachedSession {
    /// The places of its turns in the order they were said.
    places: Vec<u32>,
    /// The length of all its turns, in terms.
    length: u64,
}

impl IndexCache {
    pub(super) fn clear(&self) {
        *self.cached.write().unwrap_or_else(PoisonError::into_inner) = CachedIndex::default();
    }

    /// Brings the cache up to the state of this transaction and returns it. Returns `None` if the
    /// cache is newer than the transaction, which must then be begun again.
    pub(super) fn read(
        &self,
        connection: &Connection,
        state: &MergeState,
    ) -> rusqlite::Result<Option<RwLockReadGuard<'_, CachedIndex>>> {
        let is_stale = |cached: &CachedIndex| -> rusqlite::Result<bool> {
            Ok(cached.last < newest(connection)?
                || cached.revision < revision(connection)?
                || cached.merged < state.merged)
        };
        let guard = self.cached.read().unwrap_or_else(PoisonError::into_inner);
        if !is_stale(&guard)? {
            return Ok((guard.merged <= state.merged).then_some(guard));
        }
        drop(guard);
        let mut guard = self.cached.write().unwrap_or_else(PoisonError::into_inner);
        // After an error the cache must be empty, not half up to date.
        let mut cached = std::mem::take(&mut *guard);
        cached.catch_up(connection, state)?;
        *guard = cached;
        drop(guard);
        let guard = self.cached.read().unwrap_or_else(PoisonError::into_inner);
        Ok((guard.merged <= state.merged).then_some(guard))
    }
}

impl CachedIndex {
    fn catch_up(&mut self, connection: &Connection, state: &MergeState) -> rusqlite::Result<()> {
        let revision = revision(connection)?;
        match self.changes(connection)? {
            Some(changes) => self.apply(connection, state, changes)?,
            None => *self = CachedIndex::default(),
        }
        self.revision = self.revision.max(revision);
        self.drop_merged(state);
        self.read_new(connection)
    }

    /// Returns the turns that have changed since the last time, or `None` if everything must be
    /// read again.
    fn changes(&self, connection: &Connection) -> rusqlite::Result<Option<HashSet<i64>>> {
        if self.last == 0 {
            // The cache is empty.
            return Ok(Some(HashSet::new()));
        }
        if has_missed(connection, self.revision)? {
            return Ok(None);
        }
        let changes: HashSet<i64> = connection
            .prepare_cached("SELECT seq FROM index_changes WHERE revision > ?1")?
            .query_map([self.revision], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        Ok(Some(changes).filter(|changes| !changes.contains(&EVERYTHING)))
    }

    /// Reads changed turns again.
    fn apply(
        &mut self,
        connection: &Connection,
        state: &MergeState,
        mut changes: HashSet<i64>,
    ) -> rusqlite::Result<()> {
        // Newer turns are read later, as they are now.
        changes.retain(|seq| *seq <= self.last);
        if changes.is_empty() {
            return Ok(());
        }
        self.vectors.remove(&changes);
        if changes.iter().any(|seq| *seq > self.merged) {
            for postings in self.recent.values_mut().flat_map(HashMap::values_mut) {
                postings.retain(|posting| !changes.contains(&posting.seq));
            }
        }
        let mut added = Vec::new();
        let mut sessions = HashSet::new();
        let mut row = connection.prepare_cached(
            "SELECT i.seq, i.ts, i.at, i.project, i.session, i.length, t.terms
             FROM indexed i JOIN terms t ON t.seq = i.seq WHERE i.seq = ?1",
        )?;
        for seq in changes {
            let read =
                |row: &rusqlite::Row<'_>| Ok((TurnMetadata::of(row)?, row.get::<_, String>(6)?));
            let now = row.query_row([seq], read).optional()?;
            if let Some((turn, terms)) = now.as_ref().filter(|_| seq > state.merged) {
                self.add_recent(turn, terms);
            }
            match self.place(seq) {
                Some(place) => {
                    sessions.insert(self.turns[place].session);
                    match now {
                        Some((now, _)) => self.turns[place] = now,
                        None => self.turns[place].remove(),
                    }
                    sessions.insert(self.turns[place].session);
                }
                None => added.extend(now.map(|(now, _)| now)),
            }
        }
        if !added.is_empty() {
            // All places have moved.
            self.turns.extend(added);
            self.turns.sort_by_key(|turn| turn.seq);
            self.sessions.clear();
            for place in 0..self.turns.len() {
                self.add_to_session(place);
            }
            sessions = self.sessions.keys().copied().collect();
        }
        for session in sessions {
            self.sort_session(session);
        }
        Ok(())
    }

    /// Drops the recent postings that are merged by now.
    fn drop_merged(&mut self, state: &MergeState) {
        if self.merged >= state.merged {
            return;
        }
        self.merged = state.merged;
        self.recent.retain(|_, terms| {
            terms.retain(|_, postings| {
                postings.retain(|posting| posting.seq > state.merged);
                !postings.is_empty()
            });
            !terms.is_empty()
        });
    }

    /// Reads the turns after the last one.
    fn read_new(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let after = self.last;
        let mut statement = connection.prepare_cached(
            "SELECT seq, ts, at, project, session, length FROM indexed WHERE seq > ?1 ORDER BY seq",
        )?;
        let mut rows = statement.query([after])?;
        let mut sessions = HashSet::new();
        while let Some(row) = rows.next()? {
            let turn = TurnMetadata::of(row)?;
            self.last = turn.seq;
            self.turns.push(turn);
            if self.add_to_session(self.turns.len() - 1) {
                sessions.insert(turn.session);
            }
        }
        for session in sessions {
            self.sort_session(session);
        }
        let mut statement = connection
            .prepare_cached("SELECT seq, terms FROM terms WHERE seq > ?1 ORDER BY seq")?;
        let mut rows = statement.query(params![after.max(self.merged)])?;
        while let Some(row) = rows.next()? {
            if let Some(turn) = self.metadata(row.get(0)?).copied() {
                self.add_recent(&turn, row.get_ref(1)?.as_str()?);
            }
        }
        Ok(())
    }

    /// Appends a turn to its session. Returns whether the session must be sorted.
    fn add_to_session(&mut self, place: usize) -> bool {
        let turn = self.turns[place];
        if turn.is_removed() {
            return false;
        }
        let session = self.sessions.entry(turn.session).or_default();
        let last = session.places.last().map(|last| self.turns[*last as usize]);
        session.places.push(place as u32);
        session.length += u64::from(turn.length);
        last.is_some_and(|last| (last.at, last.seq) > (turn.at, turn.seq))
    }

    /// Puts the turns of a session in order, without those that were removed or moved to another.
    fn sort_session(&mut self, session: u32) {
        let Some(CachedSession { places, length }) = self.sessions.get_mut(&session) else {
            return;
        };
        let turns = &self.turns;
        places.retain(|place| {
            let turn = &turns[*place as usize];
            !turn.is_removed() && turn.session == session
        });
        places.sort_by_key(|place| (turns[*place as usize].at, turns[*place as usize].seq));
        *length = places.iter().map(|place| u64::from(turns[*place as usize].length)).sum();
    }

    /// Adds the postings of a turn that is not merged yet.
    fn add_recent(&mut self, turn: &TurnMetadata, terms: &str) {
        let TurnMetadata { seq, project, session, length, .. } = *turn;
        let recent = self.recent.entry(project).or_default();
        let once = Posting::new(seq, i64::from(session), 1, length);
        for term in terms::occurrences(terms) {
            let Some(postings) = recent.get_mut(term) else {
                recent.insert(term.into(), vec![once]);
                continue;
            };
            // The turn is mostly the newest one.
            let is_newest = postings.last().is_none_or(|last| last.seq < seq);
            let place = match is_newest {
                true => postings.len(),
                false => postings.partition_point(|other| other.seq < seq),
            };
            match postings.get_mut(place) {
                Some(again) if again.seq == seq => {
                    again.frequency = again.frequency.saturating_add(1)
                }
                _ => postings.insert(place, once),
            }
        }
    }

    fn place(&self, seq: i64) -> Option<usize> {
        // Few numbers are missing, so the turn is at this place or a little before it.
        let highest = usize::try_from(seq - self.turns.first()?.seq).ok()?;
        match self.turns.get(highest) {
            Some(turn) if turn.seq == seq => Some(highest),
            _ => {
                let before = &self.turns[..highest.min(self.turns.len())];
                before.binary_search_by_key(&seq, |turn| turn.seq).ok()
            }
        }
    }

    pub(super) fn metadata(&self, seq: i64) -> Option<&TurnMetadata> {
        let place = self.place(seq)?;
        Some(&self.turns[place]).filter(|turn| !turn.is_removed())
    }

    /// Returns the length of all turns of a session, in terms.
    pub(super) fn session_length(&self, session: u32) -> u64 {
        self.sessions.get(&session).map_or(0, |session| session.length)
    }

    /// Gives candidates the vectors of these turns. Both are in order.
    pub(super) fn fill_vectors<'t>(
        &self,
        connection: &Connection,
        turns: impl Iterator<Item = &'t TurnMetadata>,
        candidates: &mut [Candidate],
    ) -> rusqlite::Result<()> {
        self.vectors.fill(connection, self.revision, turns, candidates)
    }

    /// Returns a turn with its neighbours in its session, in the order they were said.
    pub(super) fn window<'a>(
        &'a self,
        of: &'a TurnMetadata,
        neighbours: usize,
    ) -> impl Iterator<Item = &'a TurnMetadata> {
        let places = self.sessions.get(&of.session).map_or(&[][..], |session| &session.places);
        let key = |place: &u32| {
            let turn = &self.turns[*place as usize];
            (turn.at, turn.seq)
        };
        // Turns are mostly said in the order of their places, and then none has to be looked at.
        let own = self.place(of.seq).and_then(|place| places.binary_search(&(place as u32)).ok());
        let middle = own.map_or_else(|| places.binary_search_by_key(&(of.at, of.seq), key), Ok);
        let (alone, window) = match middle {
            Ok(middle) => {
                let end = (middle + neighbours + 1).min(places.len());
                (None, &places[middle.saturating_sub(neighbours)..end])
            }
            Err(_) => (Some(of), &[][..]),
        };
        alone.into_iter().chain(window.iter().map(|place| &self.turns[*place as usize]))
    }

    /// Returns the recent postings of a term after a turn, in order, for each of these projects
    /// that has any.
    pub(super) fn recent(
        &self,
        term: &str,
        after: i64,
        projects: &HashSet<u32>,
    ) -> Vec<&[Posting]> {
        let those = self.recent.iter().filter(|(project, _)| projects.contains(project));
        let postings = those.filter_map(|(_, terms)| terms.get(term));
        let newer = postings.map(|all| &all[all.partition_point(|one| one.seq <= after)..]);
        newer.filter(|newer| !newer.is_empty()).collect()
    }

    /// Returns the numbers of all turns that a filter accepts, in order.
    pub(super) fn select(&self, accepts: impl Fn(&TurnMetadata) -> bool) -> Vec<i64> {
        let there = self.turns.iter().filter(|turn| !turn.is_removed() && accepts(turn));
        there.map(|turn| turn.seq).collect()
    }
}
