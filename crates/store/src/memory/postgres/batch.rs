//! A batch of captured turns, between reading and writing: the rows it is decided by, and what it
//! changes.

use std::collections::{BTreeMap, HashMap};

use hob_domain::memory::{NOTE_SESSION, NewTurn};
use hob_index::terms;
use tokio_postgres::{Error, Row};

use super::cipher::{Cipher, Name};
use super::names::{CaptureOutcome, ExistingRow, ExistingRows, StoredNames};
use super::postings::counts;
use super::rows::ask;
use crate::memory::identity::{ExistingTurn, TurnNames};
use crate::postgres::connections::{Client, Values};
use crate::postgres::text::take;

/// Stored turns that share a record, an answer's place, or the words and the session with one of
/// the batch.
const EXISTING_TURNS: &str = "WITH mine AS (SELECT id, name_key FROM hob.memory_sessions
         WHERE speaker = $1 AND name_key = ANY($4)),
     found AS (SELECT seq FROM hob.memory_turns WHERE speaker = $1 AND key = ANY($2)
         UNION SELECT seq FROM hob.memory_turns WHERE speaker = $1 AND answer = ANY($3)
         UNION SELECT t.seq FROM hob.memory_turns t JOIN mine m ON t.session = m.id
             WHERE t.words = ANY($5))
     SELECT t.seq, t.id, s.name_key, t.words, t.key, t.answer, t.nth, t.ts, t.at, t.client
     FROM found f JOIN hob.memory_turns t ON t.seq = f.seq
     JOIN hob.memory_sessions s ON s.id = t.session ORDER BY t.seq";
/// Forgotten turns, likewise.
const FORGOTTEN_TURNS: &str =
    "SELECT id, '\\x'::bytea, session, words, key, answer, nth, 0::bigint, 0::bigint, ''
     FROM hob.memory_forgotten WHERE speaker = $1 AND
         (key = ANY($2) OR answer = ANY($3) OR (session = ANY($4) AND words = ANY($5)))
     ORDER BY id";
const FORGOTTEN_SESSIONS: &str = "SELECT session, until FROM hob.memory_forgotten_sessions
     WHERE speaker = $1 AND session = ANY($2)";
const SESSIONS: &str = "SELECT id, project, started, ended, name_key FROM hob.memory_sessions
     WHERE speaker = $1 AND name_key = ANY($2)";
const PROJECTS: &str = "SELECT id, root_key FROM hob.memory_projects
     WHERE speaker = $1 AND root_key = ANY($2)";

/// The last numbers that were given to turns, projects and sessions.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastNumbers {
    pub(super) seq: i64,
    pub(super) project: i64,
    pub(super) session: i64,
}

/// Locks the memory for writing and returns the last numbers that were given.
pub(super) async fn lock(client: &Client) -> Result<LastNumbers, Error> {
    let sql = "SELECT last_seq, last_project, last_session FROM hob.memory_state
         WHERE id = 1 FOR UPDATE";
    let row = client.query_one(&client.prepare_cached(sql).await?, &[]).await?;
    Ok(LastNumbers { seq: row.get(0), project: row.get(1), session: row.get(2) })
}

pub(super) struct BatchProject {
    pub(super) id: i64,
    pub(super) is_new: bool,
}

/// A session of the batch. `turns` and `length` are what the batch adds to an existing one.
pub(super) struct BatchSession {
    pub(super) id: i64,
    pub(super) is_new: bool,
    pub(super) project: i64,
    pub(super) started: i64,
    pub(super) ended: i64,
    pub(super) turns: i64,
    pub(super) length: i64,
    pub(super) client: String,
    pub(super) name: Vec<u8>,
    pub(super) note: bool,
    pub(super) changed: bool,
}

impl BatchSession {
    /// An existing session: its number, project, start and end.
    pub(super) fn existing(row: &Row) -> BatchSession {
        BatchSession {
            id: row.get(0),
            is_new: false,
            project: row.get(1),
            started: row.get(2),
            ended: row.get(3),
            turns: 0,
            length: 0,
            client: String::new(),
            name: Vec::new(),
            note: false,
            changed: false,
        }
    }
}

/// Numbers to add to the sums of a project.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProjectSums {
    pub(super) turns: i64,
    /// The length of these turns, in terms.
    pub(super) length: i64,
    pub(super) sessions: i64,
}

impl std::ops::AddAssign for ProjectSums {
    fn add_assign(&mut self, other: ProjectSums) {
        self.turns += other.turns;
        self.length += other.length;
        self.sessions += other.sessions;
    }
}

/// A new turn.
pub(super) struct InsertedTurn<'a> {
    pub(super) turn: &'a NewTurn,
    pub(super) names: &'a StoredNames,
    /// Its place among the existing rows, where a later turn of the batch may have claimed a name
    /// for it.
    pub(super) place: usize,
    pub(super) seq: i64,
    pub(super) session: i64,
    pub(super) project: i64,
    /// In terms.
    pub(super) length: i64,
}

pub(super) struct TurnBatch<'a> {
    pub(super) cipher: &'a Cipher,
    pub(super) speaker: &'a str,
    pub(super) numbers: LastNumbers,
    pub(super) turns: ExistingRows,
    pub(super) forgotten: ExistingRows,
    /// Until when the turns of a session are forgotten, by the hash of its name.
    pub(super) forgotten_sessions: HashMap<Vec<u8>, i64>,
    pub(super) projects: HashMap<String, BatchProject>,
    pub(super) sessions: HashMap<Vec<u8>, BatchSession>,
    pub(super) sums: BTreeMap<i64, ProjectSums>,
    pub(super) inserted: Vec<InsertedTurn<'a>>,
}

impl<'a> TurnBatch<'a> {
    /// A batch that nothing has been read for.
    pub(super) fn empty(
        cipher: &'a Cipher,
        speaker: &'a str,
        numbers: LastNumbers,
    ) -> TurnBatch<'a> {
        TurnBatch {
            cipher,
            speaker,
            numbers,
            turns: ExistingRows::default(),
            forgotten: ExistingRows::default(),
            forgotten_sessions: HashMap::new(),
            projects: HashMap::new(),
            sessions: HashMap::new(),
            sums: BTreeMap::new(),
            inserted: Vec::new(),
        }
    }

    /// Reads all rows that matter for these turns, in one round trip.
    pub(super) async fn read(
        &mut self,
        client: &Client,
        turns: &[NewTurn],
        names: &[StoredNames],
    ) -> Result<(), Error> {
        let records: Vec<&[u8]> =
            names.iter().filter_map(|names| names.hashed.record.as_deref()).collect();
        let answers: Vec<&[u8]> =
            names.iter().filter_map(|names| names.hashed.answer.as_deref()).collect();
        let words: Vec<&[u8]> = names.iter().map(|names| &*names.hashed.words).collect();
        let mut sessions: Vec<&[u8]> = names.iter().map(|names| &*names.hashed.session).collect();
        sessions.sort_unstable();
        sessions.dedup();
        let mut roots: Vec<&str> = turns.iter().map(|turn| &*turn.place.project).collect();
        roots.sort_unstable();
        roots.dedup();
        let root_keys: Vec<Vec<u8>> =
            roots.iter().map(|root| self.cipher.hash_name(Name::Project, root)).collect();
        let by_names: Values<'_> = &[&self.speaker, &records, &answers, &sessions, &words];
        let by_session: Values<'_> = &[&self.speaker, &sessions];
        let by_root: Values<'_> = &[&self.speaker, &root_keys];
        let (existing, forgotten, forgotten_sessions, sessions, projects) = tokio::try_join!(
            ask(client, EXISTING_TURNS, by_names),
            ask(client, FORGOTTEN_TURNS, by_names),
            ask(client, FORGOTTEN_SESSIONS, by_session),
            ask(client, SESSIONS, by_session),
            ask(client, PROJECTS, by_root),
        )?;
        for row in &existing {
            self.turns.add(existing_row(row));
        }
        for row in &forgotten {
            self.forgotten.add(existing_row(row));
        }
        self.forgotten_sessions
            .extend(forgotten_sessions.iter().map(|row| (row.get(0), row.get(1))));
        self.sessions.extend(
            sessions.iter().map(|row| (row.get::<_, Vec<u8>>(4), BatchSession::existing(row))),
        );
        for row in &projects {
            let place = root_keys.iter().position(|key| key == row.get::<_, &[u8]>(1));
            let root = place.map(|place| roots[place]).unwrap_or_default();
            let project = BatchProject { id: row.get(0), is_new: false };
            self.projects.insert(root.to_owned(), project);
        }
        Ok(())
    }

    /// Decides what becomes of one turn, and adds it to the batch if it is new.
    pub(super) fn decide(&mut self, turn: &'a NewTurn, names: &'a StoredNames) -> CaptureOutcome {
        let until = self.forgotten_sessions.get(&names.hashed.session);
        if until.is_some_and(|until| turn.ts.as_microsecond() <= *until) {
            return CaptureOutcome::Forgotten;
        }
        if let Some(id) = self.turns.recognise(names, turn) {
            return CaptureOutcome::Duplicate(id.to_vec());
        }
        if self.forgotten.recognise(names, turn).is_some() {
            return CaptureOutcome::Forgotten;
        }
        self.insert(turn, names);
        CaptureOutcome::Inserted(names.id.clone())
    }

    /// Adds a forgotten turn to the batch, unless it is stored. Returns whether it was missing.
    pub(super) fn restore(&mut self, turn: &'a NewTurn, names: &'a StoredNames) -> bool {
        let is_missing = !self.turns.has(names);
        if is_missing {
            self.insert(turn, names);
        }
        is_missing
    }

    fn insert(&mut self, turn: &'a NewTurn, names: &'a StoredNames) {
        let length = i64::from(terms::length(&counts(turn)));
        let project = self.project(&turn.place.project);
        self.sum(project, ProjectSums { turns: 1, length, sessions: 0 });
        let session = self.session(turn, names, project, length);
        self.numbers.seq += 1;
        let seq = self.numbers.seq;
        let names_stored =
            TurnNames { answer: self.turns.free_answer(&names.hashed), ..names.hashed.clone() };
        let place = self.turns.add(ExistingRow {
            turn: ExistingTurn { number: seq, at: turn.at.as_microsecond(), names: names_stored },
            id: names.id.clone(),
            sealed_record: names.sealed.record.clone(),
            ts: turn.ts.as_microsecond(),
            client: turn.client.clone(),
            is_claimed: false,
        });
        self.inserted.push(InsertedTurn { turn, names, place, seq, session, project, length });
    }

    /// Returns the number of a project, which may be new.
    fn project(&mut self, root: &str) -> i64 {
        if let Some(project) = self.projects.get(root) {
            return project.id;
        }
        self.numbers.project += 1;
        let project = BatchProject { id: self.numbers.project, is_new: true };
        self.projects.insert(root.to_owned(), project);
        self.numbers.project
    }

    /// Adds a turn to its session, which may be new, and returns the session's number. A session is
    /// in the project of its latest turn.
    fn session(&mut self, turn: &NewTurn, names: &StoredNames, project: i64, length: i64) -> i64 {
        let ts = turn.ts.as_microsecond();
        let Some(session) = self.sessions.get_mut(&names.hashed.session) else {
            self.numbers.session += 1;
            let session = BatchSession {
                id: self.numbers.session,
                is_new: true,
                project,
                started: ts,
                ended: ts,
                turns: 1,
                length,
                client: turn.client.clone(),
                name: self.cipher.encrypt_name(Name::Session, &turn.session),
                note: turn.session.starts_with(NOTE_SESSION),
                changed: false,
            };
            self.sessions.insert(names.hashed.session.clone(), session);
            self.sum(project, ProjectSums { sessions: 1, ..ProjectSums::default() });
            return self.numbers.session;
        };
        let from = session.project;
        let has_moved = ts >= session.ended && from != project;
        if has_moved {
            session.project = project;
        }
        session.started = session.started.min(ts);
        session.ended = session.ended.max(ts);
        session.turns += 1;
        session.length += length;
        session.changed = true;
        let id = session.id;
        if has_moved {
            self.sum(from, ProjectSums { sessions: -1, ..ProjectSums::default() });
            self.sum(project, ProjectSums { sessions: 1, ..ProjectSums::default() });
        }
        id
    }

    pub(super) fn sum(&mut self, project: i64, more: ProjectSums) {
        *self.sums.entry(project).or_default() += more;
    }
}

fn existing_row(row: &Row) -> ExistingRow {
    let names = TurnNames {
        session: row.get(2),
        words: row.get(3),
        record: row.get(4),
        answer: row.get(5),
        nth: row.get(6),
    };
    ExistingRow {
        turn: ExistingTurn { number: row.get(0), at: row.get(8), names },
        id: row.get(1),
        sealed_record: None,
        ts: row.get(7),
        client: take(row.get(9)),
        is_claimed: false,
    }
}
