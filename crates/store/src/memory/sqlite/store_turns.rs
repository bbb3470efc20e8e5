//! Writing turns: each one once, whatever way it comes.

use hob_domain::StoreError;
use hob_domain::memory::{
    Identity, ImportMark, NewTurn, RecordId, Remask, Stored, Superseded, TurnKey,
};
use hob_index::sign_codes::{TABLE_BYTES, sign_code};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::merge::Merging;
use super::postings::{Entry, Gathered, note_change};
use super::vectors;
use crate::sqlite::failed;

/// What became of one turn.
pub(super) enum Outcome {
    Inserted(RecordId),
    Duplicate(RecordId),
    /// It was forgotten once.
    Forgotten,
}

/// Stores turns and says what became of them, and which turn is the newest then.
pub(super) fn store(
    transaction: &Transaction<'_>,
    speaker: &str,
    turns: &[NewTurn],
    marks: &[ImportMark],
    merging: &Merging,
) -> Result<(Stored, i64), StoreError> {
    let mut stored = Stored::default();
    let mut index = Gathered::new(transaction).map_err(failed)?;
    for turn in turns {
        match one(transaction, speaker, turn, &mut index).map_err(failed)? {
            Outcome::Inserted(_) => stored.inserted += 1,
            Outcome::Duplicate(_) => stored.duplicates += 1,
            Outcome::Forgotten => stored.forgotten += 1,
        }
    }
    index.write(transaction).map_err(failed)?;
    let newest = merging.step(transaction, stored.inserted).map_err(failed)?;
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
    Ok((stored, newest))
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
                    note_change(self.transaction, row)?;
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
    let session = session(transaction, speaker, turn, project)?;
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
            turn.source.as_str(),
            turn.rules,
        ])?;
    let seq = transaction.last_insert_rowid();
    let terms = &turn.terms;
    index.add(transaction, &Entry { seq, project, session, ts, at, terms })?;
    save_vector(transaction, project, seq, &turn.vector)
}

/// The session of a turn, which has one turn more then. Written as three plain statements, since one that
/// does it all costs more than they do together.
fn session(
    transaction: &Transaction<'_>,
    speaker: &str,
    turn: &NewTurn,
    project: i64,
) -> rusqlite::Result<i64> {
    let ts = turn.ts.as_microsecond();
    let known: Option<(i64, i64, i64)> = transaction
        .prepare_cached("SELECT id, project, ended FROM sessions WHERE speaker = ?1 AND name = ?2")?
        .query_row([speaker, &turn.session], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((id, last, ended)) = known else {
        transaction
            .prepare_cached(
                "INSERT INTO sessions (speaker, name, client, project, started, ended, turns)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?5, 1)",
            )?
            .execute(params![speaker, turn.session, turn.client, project, ts])?;
        return Ok(transaction.last_insert_rowid());
    };
    transaction
        .prepare_cached(
            "UPDATE sessions SET turns = turns + 1, started = min(started, ?2), ended = max(ended, ?2)
             WHERE id = ?1",
        )?
        .execute([id, ts])?;
    if ts >= ended && last != project {
        transaction
            .prepare_cached("UPDATE sessions SET project = ?2 WHERE id = ?1")?
            .execute([id, project])?;
    }
    Ok(id)
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
    let mut index = Gathered::new(transaction).map_err(failed)?;
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

/// Replaces what a rescan has made anew. Returns whether the signs of a vector are other ones now, which whoever holds
/// them in memory has to know.
pub(super) fn remask(transaction: &Transaction<'_>, changes: &[Remask]) -> rusqlite::Result<bool> {
    let mut index = Gathered::new(transaction)?;
    let mut turned = false;
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
        index.remove(transaction, *seq)?;
        let terms = &change.terms;
        index.add(transaction, &Entry { seq: *seq, project, session, ts, at, terms })?;
        note_change(transaction, *seq)?;
        let signs: Option<Vec<u8>> = transaction
            .prepare_cached("DELETE FROM codes WHERE seq = ?1 RETURNING code")?
            .query_row([seq], |row| row.get(0))
            .optional()?;
        turned |= signs != sign_code(&change.vector, TABLE_BYTES);
        save_vector(transaction, project, *seq, &change.vector)?;
        // It may say something else now.
        vectors::remove(transaction, *seq)?;
    }
    index.write(transaction)?;
    Ok(turned)
}

pub(super) fn save_vector(
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
    if let Some(code) = sign_code(vector, TABLE_BYTES) {
        transaction
            .prepare_cached(
                "INSERT OR REPLACE INTO codes (seq, project, code) VALUES (?1, ?2, ?3)",
            )?
            .execute(params![seq, project, code])?;
    }
    Ok(())
}
