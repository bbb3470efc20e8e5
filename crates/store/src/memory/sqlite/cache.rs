//! What is held in memory of every turn: where it stands; and of the newest ones, which are not merged
//! into the postings yet, what they say. Read when it is first needed, and then as it comes.

use std::collections::{HashMap, HashSet};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use hob_domain::memory::Candidate;
use hob_index::postings::Posting;
use hob_index::terms;
use rusqlite::{Connection, OptionalExtension, params};

use super::postings::{State, has_missed, newest, revision};
use super::vector_cache::Vectors;

/// Where a turn stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) seq: i64,
    pub(super) ts: i64,
    at: i64,
    pub(super) project: u32,
    pub(super) session: u32,
    /// How many terms it has.
    pub(super) length: u32,
}

/// The turns of a session.
#[derive(Default)]
struct InSession {
    /// Their places in the order they were said.
    places: Vec<u32>,
    /// How many terms they have.
    length: u64,
}

/// The project of a turn that is gone.
const NONE: u32 = u32::MAX;

#[derive(Default)]
pub(super) struct Held {
    read: RwLock<Read>,
}

/// What has been read so far.
#[derive(Default)]
pub(super) struct Read {
    /// The last turn and the last change that are in it.
    last: i64,
    revision: i64,
    /// Up to here no turn is in `recent` any more.
    floor: i64,
    /// In the order of `seq`.
    turns: Vec<Standing>,
    sessions: HashMap<u32, InSession>,
    /// Postings that are not merged, of each project. There are a hundred thousand of them.
    recent: HashMap<u32, HashMap<Box<str>, Vec<Posting>>>,
    vectors: Vectors,
}

impl Held {
    /// Lets go of all that was read.
    pub(super) fn forget(&self) {
        *self.read.write().unwrap_or_else(PoisonError::into_inner) = Read::default();
    }

    /// Reads what is new to this connection's transaction, and all there is then. `None` when this
    /// transaction is too old to be served from what is held: it must be begun again.
    pub(super) fn read(
        &self,
        connection: &Connection,
        state: &State,
    ) -> rusqlite::Result<Option<RwLockReadGuard<'_, Read>>> {
        let behind = |read: &Read| -> rusqlite::Result<bool> {
            Ok(read.last < newest(connection)?
                || read.revision < revision(connection)?
                || read.floor < state.merged)
        };
        let guard = self.read.read().unwrap_or_else(PoisonError::into_inner);
        if !behind(&guard)? {
            return Ok((guard.floor <= state.merged).then_some(guard));
        }
        drop(guard);
        let mut guard = self.read.write().unwrap_or_else(PoisonError::into_inner);
        // Half of it would be worse than nothing.
        let mut read = std::mem::take(&mut *guard);
        read.catch_up(connection, state)?;
        *guard = read;
        drop(guard);
        let guard = self.read.read().unwrap_or_else(PoisonError::into_inner);
        Ok((guard.floor <= state.merged).then_some(guard))
    }
}

impl Read {
    fn catch_up(&mut self, connection: &Connection, state: &State) -> rusqlite::Result<()> {
        let revision = revision(connection)?;
        let changes = self.changes(connection)?;
        match changes {
            Some(changes) => self.apply(connection, state, changes)?,
            None => *self = Read::default(),
        }
        self.revision = self.revision.max(revision);
        self.prune(state);
        self.newer(connection)
    }

    /// The turns that have changed since. `None` when too many have.
    fn changes(&self, connection: &Connection) -> rusqlite::Result<Option<HashSet<i64>>> {
        if self.last == 0 {
            // There is nothing that could have changed.
            return Ok(Some(HashSet::new()));
        }
        if has_missed(connection, self.revision)? {
            return Ok(None);
        }
        let changes: HashSet<i64> = connection
            .prepare_cached("SELECT seq FROM index_changes WHERE revision > ?1")?
            .query_map([self.revision], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        Ok(Some(changes).filter(|changes| !changes.contains(&-1)))
    }

    fn apply(
        &mut self,
        connection: &Connection,
        state: &State,
        mut changes: HashSet<i64>,
    ) -> rusqlite::Result<()> {
        // What is newer than all that was read is read as it is now.
        changes.retain(|seq| *seq <= self.last);
        if changes.is_empty() {
            return Ok(());
        }
        self.vectors.forget(&changes);
        if changes.iter().any(|seq| *seq > self.floor) {
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
            let read = |row: &rusqlite::Row<'_>| Ok((standing(row)?, row.get::<_, String>(6)?));
            let now = row.query_row([seq], read).optional()?;
            if let Some((standing, terms)) = now.as_ref().filter(|_| seq > state.merged) {
                self.note(standing, terms);
            }
            match self.place(seq) {
                Some(place) => {
                    sessions.insert(self.turns[place].session);
                    match now {
                        Some((now, _)) => self.turns[place] = now,
                        None => self.turns[place].project = NONE,
                    }
                    sessions.insert(self.turns[place].session);
                }
                None => added.extend(now.map(|(now, _)| now)),
            }
        }
        if !added.is_empty() {
            // All places move.
            self.turns.extend(added);
            self.turns.sort_by_key(|turn| turn.seq);
            self.sessions.clear();
            for place in 0..self.turns.len() {
                self.enter(place);
            }
            sessions = self.sessions.keys().copied().collect();
        }
        for session in sessions {
            self.sort(session);
        }
        Ok(())
    }

    /// Lets go of what is merged by now.
    fn prune(&mut self, state: &State) {
        if self.floor >= state.merged {
            return;
        }
        self.floor = state.merged;
        self.recent.retain(|_, terms| {
            terms.retain(|_, postings| {
                postings.retain(|posting| posting.seq > state.merged);
                !postings.is_empty()
            });
            !terms.is_empty()
        });
    }

    /// Reads the turns behind the last one.
    fn newer(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let behind = self.last;
        let mut statement = connection.prepare_cached(
            "SELECT seq, ts, at, project, session, length FROM indexed WHERE seq > ?1 ORDER BY seq",
        )?;
        let mut rows = statement.query([behind])?;
        let mut sessions = HashSet::new();
        while let Some(row) = rows.next()? {
            let standing = standing(row)?;
            self.last = standing.seq;
            self.turns.push(standing);
            if self.enter(self.turns.len() - 1) {
                sessions.insert(standing.session);
            }
        }
        for session in sessions {
            self.sort(session);
        }
        let mut statement = connection
            .prepare_cached("SELECT seq, terms FROM terms WHERE seq > ?1 ORDER BY seq")?;
        let mut rows = statement.query(params![behind.max(self.floor)])?;
        while let Some(row) = rows.next()? {
            if let Some(standing) = self.standing(row.get(0)?).copied() {
                self.note(&standing, row.get_ref(1)?.as_str()?);
            }
        }
        Ok(())
    }

    /// Puts a turn among those of its session. Returns whether they are out of order then.
    fn enter(&mut self, place: usize) -> bool {
        let turn = self.turns[place];
        if turn.project == NONE {
            return false;
        }
        let within = self.sessions.entry(turn.session).or_default();
        let last = within.places.last().map(|last| self.turns[*last as usize]);
        within.places.push(place as u32);
        within.length += u64::from(turn.length);
        last.is_some_and(|last| (last.at, last.seq) > (turn.at, turn.seq))
    }

    fn sort(&mut self, session: u32) {
        let Some(InSession { places, length }) = self.sessions.get_mut(&session) else { return };
        let turns = &self.turns;
        places.retain(|place| {
            let turn = &turns[*place as usize];
            turn.project != NONE && turn.session == session
        });
        places.sort_by_key(|place| (turns[*place as usize].at, turns[*place as usize].seq));
        *length = places.iter().map(|place| u64::from(turns[*place as usize].length)).sum();
    }

    fn note(&mut self, standing: &Standing, terms: &str) {
        let Standing { seq, project, session, length, .. } = *standing;
        let recent = self.recent.entry(project).or_default();
        let once = Posting::new(seq, i64::from(session), 1, length);
        for term in terms::occurrences(terms) {
            let Some(postings) = recent.get_mut(term) else {
                recent.insert(term.into(), vec![once]);
                continue;
            };
            // Mostly it is the newest.
            let newest = postings.last().is_none_or(|last| last.seq < seq);
            let place = match newest {
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
        // Few are missing in between, so that it is there or somewhat before.
        let most = usize::try_from(seq - self.turns.first()?.seq).ok()?;
        match self.turns.get(most) {
            Some(turn) if turn.seq == seq => Some(most),
            _ => {
                let before = &self.turns[..most.min(self.turns.len())];
                before.binary_search_by_key(&seq, |turn| turn.seq).ok()
            }
        }
    }

    pub(super) fn standing(&self, seq: i64) -> Option<&Standing> {
        let place = self.place(seq)?;
        Some(&self.turns[place]).filter(|turn| turn.project != NONE)
    }

    /// How many terms all turns of a session have.
    pub(super) fn length_of(&self, session: u32) -> u64 {
        self.sessions.get(&session).map_or(0, |within| within.length)
    }

    /// Gives candidates, which are in order, the vectors of these turns.
    pub(super) fn vectors<'t>(
        &self,
        connection: &Connection,
        turns: impl Iterator<Item = &'t Standing>,
        candidates: &mut [Candidate],
    ) -> rusqlite::Result<()> {
        self.vectors.fill(connection, self.revision, turns, candidates)
    }

    /// The turn with those beside it in its session, in the order they were said.
    pub(super) fn window<'a>(
        &'a self,
        of: &'a Standing,
        beside: usize,
    ) -> impl Iterator<Item = &'a Standing> {
        let places = self.sessions.get(&of.session).map_or(&[][..], |within| &within.places);
        let key = |place: &u32| {
            let turn = &self.turns[*place as usize];
            (turn.at, turn.seq)
        };
        // Mostly they are said in the order of their places, and then no turn is looked at for it.
        let own = self.place(of.seq).and_then(|place| places.binary_search(&(place as u32)).ok());
        let middle = own.map_or_else(|| places.binary_search_by_key(&(of.at, of.seq), key), Ok);
        let (alone, window) = match middle {
            Ok(middle) => {
                let end = (middle + beside + 1).min(places.len());
                (None, &places[middle.saturating_sub(beside)..end])
            }
            Err(_) => (Some(of), &[][..]),
        };
        alone.into_iter().chain(window.iter().map(|place| &self.turns[*place as usize]))
    }

    /// The postings of a term behind a turn, in order, of each of these projects that has any.
    pub(super) fn recent(
        &self,
        term: &str,
        behind: i64,
        projects: &HashSet<u32>,
    ) -> Vec<&[Posting]> {
        let those = self.recent.iter().filter(|(project, _)| projects.contains(project));
        let postings = those.filter_map(|(_, terms)| terms.get(term));
        let newer = postings.map(|all| &all[all.partition_point(|one| one.seq <= behind)..]);
        newer.filter(|newer| !newer.is_empty()).collect()
    }

    /// All turns that are such, in order.
    pub(super) fn those(&self, wanted: impl Fn(&Standing) -> bool) -> Vec<i64> {
        let there = self.turns.iter().filter(|turn| turn.project != NONE && wanted(turn));
        there.map(|turn| turn.seq).collect()
    }
}

fn standing(row: &rusqlite::Row<'_>) -> rusqlite::Result<Standing> {
    Ok(Standing {
        seq: row.get(0)?,
        ts: row.get(1)?,
        at: row.get(2)?,
        project: row.get(3)?,
        session: row.get(4)?,
        length: row.get(5)?,
    })
}
