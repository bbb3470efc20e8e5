//! Writing turns: each one once, whatever way it comes.

use std::collections::BTreeSet;

use hob_domain::memory::{
    Forget, Identity, ImportMark, NewTurn, RecordId, Remask, Stored, Superseded, TurnKey,
};
use hob_domain::{StoreError, Timestamp};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::memory_index::{Entry, Gathered};
use super::{codes, earlier_index, failed, model_vectors};

/// What became of one turn.
pub(super) enum Outcome {
    Inserted(RecordId),
    Duplicate(RecordId),
    /// It was forgotten once.
    Forgotten,
}

pub(super) fn store(
    transaction: &Transaction<'_>,
    speaker: &str,
    turns: &[NewTurn],
    marks: &[ImportMark],
) -> Result<Stored, StoreError> {
    let mut stored = Stored::default();
    let mut index = Gathered::default();
    for turn in turns {
        match one(transaction, speaker, turn, &mut index).map_err(failed)? {
            Outcome::Inserted(_) => stored.inserted += 1,
            Outcome::Duplicate(_) => stored.duplicates += 1,
            Outcome::Forgotten => stored.forgotten += 1,
        }
    }
    index.write(transaction).map_err(failed)?;
    for mark in marks {
        transaction
            .prepare_cached(
                "INSERT INTO imports (path, size, modified) VALUES (?1, ?2, ?3)
                 ON CONFLICT (path) DO UPDATE SET size = ?2, modified = ?3",
            )
            .and_then(|mut s| {
                s.execute(params![mark.path.bytes(), mark.size as i64, mark.modified])
            })
            .map_err(failed)?;
    }
    Ok(stored)
}

pub(super) fn one(
    transaction: &Transaction<'_>,
    speaker: &str,
    turn: &NewTurn,
    index: &mut Gathered,
) -> rusqlite::Result<Outcome> {
    let ts = turn.ts.as_microsecond();
    let until: Option<i64> = transaction
        .prepare_cached("SELECT until FROM forgotten_sessions WHERE speaker = ?1 AND session = ?2")?
        .query_row(params![speaker, turn.session], |row| row.get(0))
        .optional()?;
    if until.is_some_and(|until| ts <= until) {
        return Ok(Outcome::Forgotten);
    }
    let names = Names { transaction, speaker, turn };
    if let Some(id) = names.known_in("turns")? {
        return Ok(Outcome::Duplicate(RecordId::new(id)));
    }
    if names.known_in("forgotten")?.is_some() {
        return Ok(Outcome::Forgotten);
    }
    let id = match turn.identity {
        Identity::Record { key, .. } => key.record_id(),
        Identity::Answer(place) => place.record_id(),
        Identity::Nth(n) => {
            let words = turn.words.to_hex();
            TurnKey::of(&["nth", &turn.session, &words, &n.to_string()]).record_id()
        }
    };
    insert(transaction, speaker, turn, &id, index)?;
    Ok(Outcome::Inserted(id))
}

/// Looks for a turn under the names it may be known by, among those that are stored and those that
/// were forgotten, and notes the name it came under.
struct Names<'a> {
    transaction: &'a Transaction<'a>,
    speaker: &'a str,
    turn: &'a NewTurn,
}

impl Names<'_> {
    fn known_in(&self, table: &str) -> rusqlite::Result<Option<String>> {
        match self.turn.identity {
            Identity::Record { key, answer } => {
                if let Some(row) = self.find(table, "key = ?2", key.bytes())? {
                    return Ok(Some(row.1));
                }
                // The same turn may have come before its record did: by its place, or by its number.
                let unclaimed = match answer {
                    Some(answer) => {
                        self.find(table, "key IS NULL AND answer = ?2", answer.bytes())?
                    }
                    None => None,
                };
                let unclaimed = match unclaimed {
                    Some(row) => Some(row),
                    None => {
                        self.find_words(table, "key IS NULL AND nth IS NOT NULL AND ?4 = 0", 0)?
                    }
                };
                let Some((row, id)) = unclaimed else { return Ok(None) };
                self.set(table, row, "key", key.bytes())?;
                if table == "turns" {
                    // Its record knows better when, and in what, it was said.
                    let times = [self.turn.ts.as_microsecond(), self.turn.at.as_microsecond()];
                    self.transaction
                        .prepare_cached(
                            "UPDATE turns SET ts = ?2, at = ?3, client = ?4 WHERE seq = ?1",
                        )?
                        .execute(params![row, times[0], times[1], self.turn.client])?;
                    self.transaction
                        .prepare_cached("UPDATE indexed SET ts = ?2, at = ?3 WHERE seq = ?1")?
                        .execute(params![row, times[0], times[1]])?;
                }
                Ok(Some(id))
            }
            Identity::Answer(place) => {
                Ok(self.find(table, "answer = ?2", place.bytes())?.map(|(_, id)| id))
            }
            Identity::Nth(n) => {
                let exact = self.find_words(table, "nth = ?4", n)?;
                if let Some((_, id)) = exact {
                    return Ok(Some(id));
                }
                let record =
                    self.find_words(table, "key IS NOT NULL AND nth IS NULL AND ?4 = 0", 0)?;
                let Some((row, id)) = record else { return Ok(None) };
                self.set(table, row, "nth", n)?;
                Ok(Some(id))
            }
        }
    }

    /// The row with this name, and its id.
    fn find(
        &self,
        table: &str,
        condition: &str,
        name: &[u8; 32],
    ) -> rusqlite::Result<Option<(i64, String)>> {
        let id = if table == "turns" { "id" } else { "''" };
        let sql =
            format!("SELECT rowid, {id} FROM {table} WHERE speaker = ?1 AND {condition} LIMIT 1");
        self.query(&sql, params![self.speaker, name])
    }

    /// The first row of this session with these words that meets a condition on a number. The plus
    /// keeps the order from choosing the index: there are few rows with the words, and many others.
    fn find_words(
        &self,
        table: &str,
        condition: &str,
        number: u32,
    ) -> rusqlite::Result<Option<(i64, String)>> {
        let sql = match table {
            "turns" => format!(
                "SELECT seq, id FROM turns WHERE words = ?3 AND {condition} AND session =
                     (SELECT id FROM sessions WHERE speaker = ?1 AND name = ?2)
                 ORDER BY +at, seq LIMIT 1"
            ),
            _ => format!(
                "SELECT rowid, '' FROM forgotten
                 WHERE speaker = ?1 AND session = ?2 AND words = ?3 AND {condition} LIMIT 1"
            ),
        };
        let words = self.turn.words.bytes();
        self.query(&sql, params![self.speaker, self.turn.session, words, number])
    }

    fn query(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
    ) -> rusqlite::Result<Option<(i64, String)>> {
        self.transaction
            .prepare_cached(sql)?
            .query_row(parameters, |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
    }

    fn set(
        &self,
        table: &str,
        row: i64,
        column: &str,
        value: impl rusqlite::ToSql,
    ) -> rusqlite::Result<()> {
        let sql = format!("UPDATE {table} SET {column} = ?2 WHERE rowid = ?1");
        self.transaction.prepare_cached(&sql)?.execute(params![row, value])?;
        Ok(())
    }
}

fn insert(
    transaction: &Transaction<'_>,
    speaker: &str,
    turn: &NewTurn,
    id: &RecordId,
    index: &mut Gathered,
) -> rusqlite::Result<()> {
    let (ts, at) = (turn.ts.as_microsecond(), turn.at.as_microsecond());
    let (key, answer, nth) = match turn.identity {
        Identity::Record { key, answer } => (Some(key), answer, None),
        Identity::Answer(place) => (None, Some(place), None),
        Identity::Nth(n) => (None, None, Some(n)),
    };
    // Two records may claim one place, such as two equal blocks of an answer; the first one has it.
    let answer = match answer {
        Some(place) => {
            let taken = transaction
                .prepare_cached("SELECT 1 FROM turns WHERE speaker = ?1 AND answer = ?2")?
                .exists(params![speaker, place.bytes()])?;
            Some(place).filter(|_| !taken)
        }
        None => None,
    };
    let project = project(transaction, speaker, &turn.place.project)?;
    let session: i64 = transaction
        .prepare_cached(
            "INSERT INTO sessions (speaker, name, client, project, started, ended, turns)
             VALUES (?1, ?2, ?3, ?4, ?5, ?5, 1)
             ON CONFLICT (speaker, name) DO UPDATE SET
                 turns = turns + 1, started = min(started, ?5), ended = max(ended, ?5),
                 project = iif(?5 >= ended, ?4, project)
             RETURNING id",
        )?
        .query_row(params![speaker, turn.session, turn.client, project, ts], |row| row.get(0))?;
    transaction
        .prepare_cached(
            "INSERT INTO turns (id, speaker, session, project, worktree, key, answer, nth, words,
                 role, tier, text, sealed, cue, ts, at, client, source, rules)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
                 ?18, ?19)",
        )?
        .execute(params![
            id.as_str(),
            speaker,
            session,
            project,
            turn.place.worktree,
            key.as_ref().map(TurnKey::bytes),
            answer.as_ref().map(TurnKey::bytes),
            nth,
            turn.words.bytes(),
            turn.role.as_str(),
            turn.tier.as_str(),
            turn.text,
            turn.sealed,
            turn.cue,
            ts,
            at,
            turn.client,
            turn.source,
            turn.rules,
        ])?;
    let seq = transaction.last_insert_rowid();
    let terms = &turn.terms;
    index.add(transaction, &Entry { seq, project, session, ts, at, terms })?;
    save_vector(transaction, project, seq, &turn.vector)
}

fn project(transaction: &Transaction<'_>, speaker: &str, root: &str) -> rusqlite::Result<i64> {
    let known = transaction
        .prepare_cached("SELECT id FROM projects WHERE speaker = ?1 AND root = ?2")?
        .query_row(params![speaker, root], |row| row.get(0))
        .optional()?;
    match known {
        Some(id) => Ok(id),
        None => {
            transaction
                .prepare_cached("INSERT INTO projects (speaker, root) VALUES (?1, ?2)")?
                .execute(params![speaker, root])?;
            Ok(transaction.last_insert_rowid())
        }
    }
}

pub(super) fn session_of(
    connection: &Connection,
    speaker: &str,
    name: &str,
) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT id FROM sessions WHERE speaker = ?1 AND name = ?2")?
        .query_row([speaker, name], |row| row.get(0))
        .optional()
}

/// The term by which the earlier index keeps speakers apart.
pub(super) fn speaker_term(speaker: &str) -> String {
    format!("o{}", hob_domain::secret::hex(speaker.as_bytes()))
}

pub(super) fn supersede(
    transaction: &Transaction<'_>,
    speaker: &str,
    old: &RecordId,
    turn: &NewTurn,
) -> Result<Superseded, StoreError> {
    let there = transaction
        .prepare_cached("SELECT 1 FROM turns WHERE speaker = ?1 AND id = ?2")
        .and_then(|mut s| s.exists(params![speaker, old.as_str()]))
        .map_err(failed)?;
    if !there {
        return Ok(Superseded::Missing);
    }
    let mut index = Gathered::default();
    let id = match one(transaction, speaker, turn, &mut index).map_err(failed)? {
        Outcome::Inserted(id) | Outcome::Duplicate(id) => id,
        Outcome::Forgotten => return Ok(Superseded::Forgotten),
    };
    index.write(transaction).map_err(failed)?;
    let link = |sql: &str, other: &RecordId, row: &RecordId| {
        transaction
            .prepare_cached(sql)
            .and_then(|mut s| s.execute(params![speaker, row.as_str(), other.as_str()]))
            .map_err(failed)
    };
    if id != *old {
        link("UPDATE turns SET superseded_by = ?3 WHERE speaker = ?1 AND id = ?2", &id, old)?;
        link("UPDATE turns SET supersedes = ?3 WHERE speaker = ?1 AND id = ?2", old, &id)?;
    }
    Ok(Superseded::By(id))
}

pub(super) fn forget(
    transaction: &Transaction<'_>,
    speaker: &str,
    what: &Forget,
    now: Timestamp,
) -> rusqlite::Result<usize> {
    let (column, name) = match what {
        Forget::Record(id) => ("t.id", id.as_str()),
        Forget::Session(session) => {
            transaction.execute(
                "INSERT INTO forgotten_sessions (speaker, session, until) VALUES (?1, ?2, ?3)
                 ON CONFLICT (speaker, session) DO UPDATE SET until = max(until, ?3)",
                params![speaker, session, now.as_microsecond()],
            )?;
            ("s.name", session.as_str())
        }
    };
    let found: Vec<(i64, i64, i64)> = transaction
        .prepare(&format!(
            "SELECT t.seq, t.project, t.session FROM turns t JOIN sessions s ON s.id = t.session
             WHERE t.speaker = ?1 AND s.speaker = ?1 AND {column} = ?2"
        ))?
        .query_map(params![speaker, name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_, _>>()?;
    let mut index = Gathered::default();
    for (seq, project, session) in &found {
        let run = |sql: &str| transaction.prepare_cached(sql)?.execute([seq]);
        run("INSERT INTO forgotten (speaker, session, words, key, answer, nth)
             SELECT t.speaker, s.name, t.words, t.key, t.answer, t.nth
             FROM turns t JOIN sessions s ON s.id = t.session WHERE t.seq = ?1")?;
        // What it corrected stands again; what corrected it stands alone.
        run("UPDATE turns SET superseded_by = NULL WHERE superseded_by =
                 (SELECT id FROM turns WHERE seq = ?1) AND speaker =
                 (SELECT speaker FROM turns WHERE seq = ?1)")?;
        run("UPDATE turns SET supersedes = NULL WHERE supersedes =
                 (SELECT id FROM turns WHERE seq = ?1) AND speaker =
                 (SELECT speaker FROM turns WHERE seq = ?1)")?;
        earlier_index::remove(transaction, *seq)?;
        index.remove(transaction, *seq)?;
        transaction
            .prepare_cached("DELETE FROM vectors WHERE project = ?1 AND seq = ?2")?
            .execute([project, seq])?;
        run("DELETE FROM codes WHERE seq = ?1")?;
        model_vectors::remove(transaction, *seq)?;
        run("DELETE FROM turns WHERE seq = ?1")?;
        transaction
            .prepare_cached("UPDATE sessions SET turns = turns - 1 WHERE id = ?1")?
            .execute([session])?;
    }
    index.write(transaction)?;
    let sessions: BTreeSet<i64> = found.iter().map(|(_, _, session)| *session).collect();
    for session in sessions {
        transaction
            .prepare_cached("DELETE FROM sessions WHERE id = ?1 AND turns <= 0")?
            .execute([session])?;
    }
    let projects: BTreeSet<i64> = found.iter().map(|(_, project, _)| *project).collect();
    for project in projects {
        transaction
            .prepare_cached(
                "DELETE FROM projects WHERE id = ?1
                 AND NOT EXISTS (SELECT 1 FROM turns WHERE project = ?1)
                 AND NOT EXISTS (SELECT 1 FROM sessions WHERE project = ?1)",
            )?
            .execute([project])?;
    }
    Ok(found.len())
}

pub(super) fn remask(transaction: &Transaction<'_>, changes: &[Remask]) -> rusqlite::Result<()> {
    let mut index = Gathered::default();
    for change in changes {
        let Remask { seq, text, sealed, cue, rules, .. } = change;
        let row: Option<[i64; 4]> = transaction
            .prepare_cached(
                "UPDATE turns SET text = ?2, sealed = ?3, cue = ?4, rules = ?5 WHERE seq = ?1
                 RETURNING project, session, ts, at",
            )?
            .query_row(params![seq, text, sealed, cue, rules], |row| {
                Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?])
            })
            .optional()?;
        // One that was forgotten meanwhile stays so.
        let Some([project, session, ts, at]) = row else { continue };
        earlier_index::remove(transaction, *seq)?;
        index.remove(transaction, *seq)?;
        let terms = &change.terms;
        index.add(transaction, &Entry { seq: *seq, project, session, ts, at, terms })?;
        save_vector(transaction, project, *seq, &change.vector)?;
        // It may say something else now.
        model_vectors::remove(transaction, *seq)?;
    }
    index.write(transaction)
}

fn save_vector(
    transaction: &Transaction<'_>,
    project: i64,
    seq: i64,
    vector: &[i8],
) -> rusqlite::Result<()> {
    let bytes: Vec<u8> = vector.iter().map(|value| value.cast_unsigned()).collect();
    transaction
        .prepare_cached(
            "INSERT OR REPLACE INTO vectors (project, seq, vector) VALUES (?1, ?2, ?3)",
        )?
        .execute(params![project, seq, bytes])?;
    if let Some(code) = codes::code(vector, codes::TABLE_BYTES) {
        transaction
            .prepare_cached(
                "INSERT OR REPLACE INTO codes (seq, project, code) VALUES (?1, ?2, ?3)",
            )?
            .execute(params![seq, project, code])?;
    }
    Ok(())
}

/// Removes everything of a speaker, what was forgotten included: whoever has the name next is
/// another one.
pub(super) fn forget_speaker(
    transaction: &Transaction<'_>,
    speaker: &str,
) -> rusqlite::Result<usize> {
    transaction.execute(
        "DELETE FROM term_index WHERE rowid IN (SELECT seq FROM turns WHERE speaker = ?1)",
        [speaker],
    )?;
    model_vectors::remove_speaker(transaction, speaker)?;
    for table in ["vectors", "codes", "postings", "indexed", "index_projects"] {
        let sql = format!(
            "DELETE FROM {table} WHERE project IN (SELECT id FROM projects WHERE speaker = ?1)"
        );
        transaction.execute(&sql, [speaker])?;
    }
    transaction.execute(
        "DELETE FROM index_sessions
         WHERE session IN (SELECT id FROM sessions WHERE speaker = ?1)",
        [speaker],
    )?;
    let count = transaction.execute("DELETE FROM turns WHERE speaker = ?1", [speaker])?;
    for table in ["sessions", "projects", "forgotten", "forgotten_sessions"] {
        transaction.execute(&format!("DELETE FROM {table} WHERE speaker = ?1"), [speaker])?;
    }
    Ok(count)
}
