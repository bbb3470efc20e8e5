//! Writing turns: each one once, whatever way it comes. What there is is read in one go, all is decided here, and all
//! that changes is written in one go, so that a batch costs a few ways to the server and back however large it is.

use std::collections::{BTreeMap, HashMap};

use hob_domain::memory::{ImportMark, NewTurn};
use hob_index::terms;
use tokio_postgres::Error;

use super::cipher::{Cipher, Name};
use super::names::{Known, Names, Outcome, Rows};
use super::postings::counts;
use super::write_turns::save_marks;
use crate::postgres::connections::{Client, Values};
use crate::postgres::text::take;

/// Locks the memory for writing, and reads the last numbers that were given.
pub(super) async fn lock(client: &Client) -> Result<Numbers, Error> {
    let sql = "SELECT last_seq, last_project, last_session FROM hob.memory_state
         WHERE id = 1 FOR UPDATE";
    let row = client.query_one(&client.prepare_cached(sql).await?, &[]).await?;
    Ok(Numbers { seq: row.get(0), project: row.get(1), session: row.get(2) })
}

/// The last numbers that were given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) seq: i64,
    pub(super) project: i64,
    pub(super) session: i64,
}

/// Stores turns in order. Returns what became of each, and the number of the newest turn there is then.
pub(super) async fn store(
    client: &Client,
    cipher: &Cipher,
    speaker: &str,
    turns: &[NewTurn],
    marks: &[ImportMark],
) -> Result<(Vec<Outcome>, i64), Error> {
    let names: Vec<Names> = turns.iter().map(|turn| Names::of(cipher, turn)).collect();
    let numbers = lock(client).await?;
    let mut batch = Batch::read(client, cipher, speaker, turns, &names, numbers).await?;
    let outcomes = turns.iter().zip(&names).map(|(turn, names)| batch.take(turn, names)).collect();
    batch.write(client, numbers).await?;
    save_marks(client, cipher, marks).await?;
    Ok((outcomes, batch.numbers.seq))
}

pub(super) struct Project {
    pub(super) id: i64,
    pub(super) is_new: bool,
}

pub(super) struct Session {
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

impl Session {
    /// One that is there already, by its number, its project, its begin and its end.
    pub(super) fn known(row: &tokio_postgres::Row) -> Session {
        Session {
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

/// What a batch is decided by, and what it changes.
pub(super) struct Batch<'a> {
    pub(super) cipher: &'a Cipher,
    pub(super) speaker: &'a str,
    pub(super) numbers: Numbers,
    pub(super) turns: Rows,
    pub(super) forgotten: Rows,
    pub(super) forgotten_sessions: HashMap<Vec<u8>, i64>,
    pub(super) projects: HashMap<String, Project>,
    pub(super) sessions: HashMap<Vec<u8>, Session>,
    /// How many turns, terms and sessions projects have more.
    pub(super) sums: BTreeMap<i64, [i64; 3]>,
    pub(super) inserted: Vec<Inserted<'a>>,
}

pub(super) struct Inserted<'a> {
    pub(super) turn: &'a NewTurn,
    pub(super) names: &'a Names,
    /// Its place among the rows, where its names are by now.
    pub(super) place: usize,
    pub(super) seq: i64,
    pub(super) session: i64,
    pub(super) project: i64,
}

impl<'a> Batch<'a> {
    async fn read(
        client: &Client,
        cipher: &'a Cipher,
        speaker: &'a str,
        turns: &'a [NewTurn],
        names: &'a [Names],
        numbers: Numbers,
    ) -> Result<Batch<'a>, Error> {
        let keys: Vec<&[u8]> = names.iter().filter_map(|names| names.key.as_deref()).collect();
        let answers: Vec<&[u8]> =
            names.iter().filter_map(|names| names.answer.as_deref()).collect();
        let words: Vec<&[u8]> = names.iter().map(|names| &*names.words).collect();
        let mut sessions: Vec<&[u8]> = names.iter().map(|names| &*names.session).collect();
        sessions.sort_unstable();
        sessions.dedup();
        let mut roots: Vec<&str> = turns.iter().map(|turn| &*turn.place.project).collect();
        roots.sort_unstable();
        roots.dedup();
        let root_keys: Vec<Vec<u8>> =
            roots.iter().map(|root| cipher.name_key(Name::Project, root)).collect();
        let known = client
            .prepare_cached(
                "WITH mine AS (SELECT id, name_key FROM hob.memory_sessions
                     WHERE speaker = $1 AND name_key = ANY($4)),
                 found AS (SELECT seq FROM hob.memory_turns WHERE speaker = $1 AND key = ANY($2)
                     UNION SELECT seq FROM hob.memory_turns WHERE speaker = $1 AND answer = ANY($3)
                     UNION SELECT t.seq FROM hob.memory_turns t JOIN mine m ON t.session = m.id
                         WHERE t.words = ANY($5))
                 SELECT t.seq, t.id, s.name_key, t.words, t.key, t.answer, t.nth, t.ts, t.at, t.client
                 FROM found f JOIN hob.memory_turns t ON t.seq = f.seq
                 JOIN hob.memory_sessions s ON s.id = t.session ORDER BY t.seq",
            )
            .await?;
        let gone = client
            .prepare_cached(
                "SELECT id, '\\x'::bytea, session, words, key, answer, nth, 0::bigint, 0::bigint, ''
                 FROM hob.memory_forgotten WHERE speaker = $1 AND
                     (key = ANY($2) OR answer = ANY($3) OR (session = ANY($4) AND words = ANY($5)))
                 ORDER BY id",
            )
            .await?;
        let gone_sessions = client
            .prepare_cached(
                "SELECT session, until FROM hob.memory_forgotten_sessions
                 WHERE speaker = $1 AND session = ANY($2)",
            )
            .await?;
        let there = client
            .prepare_cached(
                "SELECT id, project, started, ended, name_key FROM hob.memory_sessions
                 WHERE speaker = $1 AND name_key = ANY($2)",
            )
            .await?;
        let in_projects = client
            .prepare_cached(
                "SELECT id, root_key FROM hob.memory_projects
                 WHERE speaker = $1 AND root_key = ANY($2)",
            )
            .await?;
        let by_names: Values<'_> = &[&speaker, &keys, &answers, &sessions, &words];
        let by_session: Values<'_> = &[&speaker, &sessions];
        let by_root: Values<'_> = &[&speaker, &root_keys];
        let (known, gone, gone_sessions, there, in_projects) = tokio::try_join!(
            client.query(&known, by_names),
            client.query(&gone, by_names),
            client.query(&gone_sessions, by_session),
            client.query(&there, by_session),
            client.query(&in_projects, by_root),
        )?;
        let rows = |found: &[tokio_postgres::Row]| {
            let mut rows = Rows::default();
            found.iter().for_each(|row| rows.add(known_row(row)));
            rows
        };
        let project = |row: &tokio_postgres::Row| {
            let place = root_keys.iter().position(|key| key == row.get::<_, &[u8]>(1));
            let root = place.map(|place| roots[place]).unwrap_or_default();
            (root.to_owned(), Project { id: row.get(0), is_new: false })
        };
        let session = |row: &tokio_postgres::Row| (row.get(4), Session::known(row));
        Ok(Batch {
            cipher,
            speaker,
            numbers,
            turns: rows(&known),
            forgotten: rows(&gone),
            forgotten_sessions: gone_sessions.iter().map(|row| (row.get(0), row.get(1))).collect(),
            projects: in_projects.iter().map(project).collect(),
            sessions: there.iter().map(session).collect(),
            sums: BTreeMap::new(),
            inserted: Vec::new(),
        })
    }

    /// Decides about one turn.
    fn take(&mut self, turn: &'a NewTurn, names: &'a Names) -> Outcome {
        let until = self.forgotten_sessions.get(&names.session);
        if until.is_some_and(|until| turn.ts.as_microsecond() <= *until) {
            return Outcome::Forgotten;
        }
        if let Some(id) = self.turns.known(names, turn) {
            return Outcome::Duplicate(id);
        }
        if self.forgotten.known(names, turn).is_some() {
            return Outcome::Forgotten;
        }
        self.insert(turn, names);
        Outcome::Inserted(names.id.clone())
    }

    fn insert(&mut self, turn: &'a NewTurn, names: &'a Names) {
        let length = i64::from(terms::length(&counts(turn)));
        let project = match self.projects.get(&turn.place.project) {
            Some(project) => project.id,
            None => {
                self.numbers.project += 1;
                let project = Project { id: self.numbers.project, is_new: true };
                self.projects.insert(turn.place.project.clone(), project);
                self.numbers.project
            }
        };
        self.sum(project, [1, length, 0]);
        let ts = turn.ts.as_microsecond();
        let session = match self.sessions.get_mut(&names.session) {
            Some(session) => {
                let moved = ts >= session.ended && session.project != project;
                let from = session.project;
                if moved {
                    session.project = project;
                }
                session.started = session.started.min(ts);
                session.ended = session.ended.max(ts);
                session.turns += 1;
                session.length += length;
                session.changed = true;
                let id = session.id;
                if moved {
                    self.sum(from, [0, 0, -1]);
                    self.sum(project, [0, 0, 1]);
                }
                id
            }
            None => {
                self.numbers.session += 1;
                let session = Session {
                    id: self.numbers.session,
                    is_new: true,
                    project,
                    started: ts,
                    ended: ts,
                    turns: 1,
                    length,
                    client: turn.client.clone(),
                    name: self.cipher.name(Name::Session, &turn.session),
                    note: turn.session.starts_with("note:"),
                    changed: false,
                };
                self.sessions.insert(names.session.clone(), session);
                self.sum(project, [0, 0, 1]);
                self.numbers.session
            }
        };
        self.numbers.seq += 1;
        let seq = self.numbers.seq;
        let answer = names.answer.clone().filter(|answer| !self.turns.is_taken(answer));
        let place = self.turns.all.len();
        self.turns.add(Known {
            number: seq,
            id: names.id.clone(),
            session: names.session.clone(),
            words: names.words.clone(),
            key: names.key.clone(),
            key_kept: names.kept.key.clone(),
            answer,
            nth: names.nth,
            ts,
            at: turn.at.as_microsecond(),
            client: turn.client.clone(),
            changed: false,
        });
        self.inserted.push(Inserted { turn, names, place, seq, session, project });
    }

    fn sum(&mut self, project: i64, more: [i64; 3]) {
        let sum = self.sums.entry(project).or_default();
        sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }
}

fn known_row(row: &tokio_postgres::Row) -> Known {
    Known {
        number: row.get(0),
        id: row.get(1),
        session: row.get(2),
        words: row.get(3),
        key: row.get(4),
        key_kept: None,
        answer: row.get(5),
        nth: row.get(6),
        ts: row.get(7),
        at: row.get(8),
        client: take(row.get(9)),
        changed: false,
    }
}
