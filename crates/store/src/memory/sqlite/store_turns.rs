//! Storing captured turns, each once.

use hob_domain::StoreError;
use hob_domain::memory::{ImportMark, NewTurn, RecordId, Stored, Superseded, TurnKey};
use rusqlite::{OptionalExtension, ToSql, Transaction, params};

use super::merge::Merging;
use super::names::{StoredTurn, find_by_record, find_stored, is_forgotten};
use super::postings::{IndexChanges, IndexedTurn};
use super::vectors::save_table_vector;
use crate::memory::identity::TurnNames;
use crate::sqlite::failed;

/// The outcome of storing a captured turn.
enum CaptureOutcome {
    Inserted(RecordId),
    Duplicate(RecordId),
    /// The turn was forgotten once, and is not stored again.
    Forgotten,
}

/// Stores turns in order and marks imports as done. Returns what became of the turns, and the
/// number of the newest turn afterwards.
pub(super) fn store(
    transaction: &Transaction<'_>,
    speaker: &str,
    turns: &[NewTurn],
    marks: &[ImportMark],
    merging: &Merging,
) -> Result<(Stored, i64), StoreError> {
    let mut stored = Stored::default();
    let mut writer = TurnWriter::new(transaction, speaker).map_err(failed)?;
    for turn in turns {
        match writer.store(turn).map_err(failed)? {
            CaptureOutcome::Inserted(_) => stored.inserted += 1,
            CaptureOutcome::Duplicate(_) => stored.duplicates += 1,
            CaptureOutcome::Forgotten => stored.forgotten += 1,
        }
    }
    writer.index.write(transaction).map_err(failed)?;
    let newest = merging.step(transaction, stored.inserted).map_err(failed)?;
    save_marks(transaction, marks).map_err(failed)?;
    Ok((stored, newest))
}

fn save_marks(transaction: &Transaction<'_>, marks: &[ImportMark]) -> rusqlite::Result<()> {
    for mark in marks {
        transaction
            .prepare_cached(
                "INSERT INTO imports (path, size, modified) VALUES (?1, ?2, ?3)
                 ON CONFLICT (path) DO UPDATE SET size = ?2, modified = ?3",
            )?
            .execute(params![mark.path.bytes(), mark.size as i64, mark.modified])?;
    }
    Ok(())
}

/// Stores a turn that supersedes another.
pub(super) fn supersede(
    transaction: &Transaction<'_>,
    speaker: &str,
    old: &RecordId,
    turn: &NewTurn,
) -> Result<Superseded, StoreError> {
    let newer: Option<Option<String>> = transaction
        .prepare_cached("SELECT superseded_by FROM turns WHERE speaker = ?1 AND id = ?2")
        .and_then(|mut s| s.query_row(params![speaker, old.as_str()], |row| row.get(0)).optional())
        .map_err(failed)?;
    match newer {
        None => return Ok(Superseded::Missing),
        Some(Some(newer)) => return Ok(Superseded::Already(RecordId::new(newer))),
        Some(None) => {}
    }
    let mut writer = TurnWriter::new(transaction, speaker).map_err(failed)?;
    let id = match writer.store(turn).map_err(failed)? {
        CaptureOutcome::Inserted(id) | CaptureOutcome::Duplicate(id) => id,
        CaptureOutcome::Forgotten => return Ok(Superseded::Forgotten),
    };
    writer.index.write(transaction).map_err(failed)?;
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

/// Writes the turns of one principal in one transaction.
pub(super) struct TurnWriter<'a> {
    transaction: &'a Transaction<'a>,
    speaker: &'a str,
    index: IndexChanges,
}

/// A session as the writer finds it.
struct SessionRow {
    id: i64,
    project: i64,
    ended: i64,
}

impl<'a> TurnWriter<'a> {
    pub(super) fn new(
        transaction: &'a Transaction<'a>,
        speaker: &'a str,
    ) -> rusqlite::Result<TurnWriter<'a>> {
        Ok(TurnWriter { transaction, speaker, index: IndexChanges::new(transaction)? })
    }

    fn store(&mut self, turn: &NewTurn) -> rusqlite::Result<CaptureOutcome> {
        if self.is_in_forgotten_session(turn)? {
            return Ok(CaptureOutcome::Forgotten);
        }
        if let Some(id) = find_by_record(self.transaction, self.speaker, turn)? {
            return Ok(CaptureOutcome::Duplicate(id));
        }
        let session = self.session(&turn.session)?;
        let number = session.as_ref().map(|session| session.id);
        let answer = match find_stored(self.transaction, self.speaker, turn, number)? {
            StoredTurn::Known(id) => return Ok(CaptureOutcome::Duplicate(id)),
            StoredTurn::New { answer } => answer,
        };
        if is_forgotten(self.transaction, self.speaker, turn)? {
            return Ok(CaptureOutcome::Forgotten);
        }
        let id = turn.record_id();
        let names = TurnNames { answer, ..TurnNames::of(turn, ()) };
        self.insert(turn, &id, &names, session)?;
        Ok(CaptureOutcome::Inserted(id))
    }

    /// Stores a forgotten turn again under its id and its names. Returns whether it was missing.
    pub(super) fn restore(
        &mut self,
        turn: &NewTurn,
        id: &RecordId,
        names: &TurnNames<TurnKey, ()>,
    ) -> rusqlite::Result<bool> {
        let [record, answer] =
            [&names.record, &names.answer].map(|name| name.as_ref().map(TurnKey::bytes));
        let exists =
            |sql: &str, values: &[&dyn ToSql]| self.transaction.prepare_cached(sql)?.exists(values);
        let sql = "SELECT 1 FROM turns WHERE speaker = ?1 AND (id = ?2 OR key = ?3)";
        if exists(sql, &[&self.speaker, &id.as_str(), &record])? {
            return Ok(false);
        }
        let sql = "SELECT 1 FROM turns WHERE speaker = ?1 AND answer = ?2";
        let is_taken = exists(sql, &[&self.speaker, &answer])?;
        let answer = names.answer.filter(|_| !is_taken);
        let session = self.session(&turn.session)?;
        self.insert(turn, id, &TurnNames { answer, ..names.clone() }, session)?;
        Ok(true)
    }

    /// Writes the index of the turns.
    pub(super) fn write_index(self) -> rusqlite::Result<()> {
        self.index.write(self.transaction)
    }

    /// Returns whether the turn's session was forgotten as a whole, up to a time after the turn.
    fn is_in_forgotten_session(&self, turn: &NewTurn) -> rusqlite::Result<bool> {
        let until: Option<i64> = self
            .transaction
            .prepare_cached(
                "SELECT until FROM forgotten_sessions WHERE speaker = ?1 AND session = ?2",
            )?
            .query_row([self.speaker, &turn.session], |row| row.get(0))
            .optional()?;
        Ok(until.is_some_and(|until| turn.ts.as_microsecond() <= until))
    }

    fn session(&self, name: &str) -> rusqlite::Result<Option<SessionRow>> {
        self.transaction
            .prepare_cached(
                "SELECT id, project, ended FROM sessions WHERE speaker = ?1 AND name = ?2",
            )?
            .query_row([self.speaker, name], |row| {
                Ok(SessionRow { id: row.get(0)?, project: row.get(1)?, ended: row.get(2)? })
            })
            .optional()
    }

    fn insert(
        &mut self,
        turn: &NewTurn,
        id: &RecordId,
        names: &TurnNames<TurnKey, ()>,
        session: Option<SessionRow>,
    ) -> rusqlite::Result<()> {
        let (ts, at) = (turn.ts.as_microsecond(), turn.at.as_microsecond());
        let project = self.project(&turn.place.project)?;
        let session = self.add_to_session(turn, session, project)?;
        self.transaction
            .prepare_cached(
                "INSERT INTO turns (id, speaker, session, project, worktree, key, answer, nth,
                     words, role, tier, text, sealed, cue, ts, at, client, source, rules)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16,
                     ?17, ?18, ?19)",
            )?
            .execute(params![
                id.as_str(),
                self.speaker,
                session,
                project,
                turn.place.worktree,
                names.record.as_ref().map(TurnKey::bytes),
                names.answer.as_ref().map(TurnKey::bytes),
                names.nth,
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
        let seq = self.transaction.last_insert_rowid();
        let indexed = IndexedTurn { seq, project, session, ts, at, terms: &turn.terms };
        self.index.add(self.transaction, &indexed)?;
        save_table_vector(self.transaction, project, seq, &turn.vector)
    }

    /// Returns the number of a project, which is created if there is none.
    fn project(&self, root: &str) -> rusqlite::Result<i64> {
        let existing = self
            .transaction
            .prepare_cached("SELECT id FROM projects WHERE speaker = ?1 AND root = ?2")?
            .query_row([self.speaker, root], |row| row.get(0))
            .optional()?;
        if let Some(id) = existing {
            return Ok(id);
        }
        self.transaction
            .prepare_cached("INSERT INTO projects (speaker, root) VALUES (?1, ?2)")?
            .execute([self.speaker, root])?;
        Ok(self.transaction.last_insert_rowid())
    }

    /// Adds a turn to its session, which is created if there is none, and returns the session's
    /// number. These are plain statements, since one that does it all costs more than they do
    /// together.
    fn add_to_session(
        &self,
        turn: &NewTurn,
        session: Option<SessionRow>,
        project: i64,
    ) -> rusqlite::Result<i64> {
        let ts = turn.ts.as_microsecond();
        let Some(session) = session else {
            self.transaction
                .prepare_cached(
                    "INSERT INTO sessions (speaker, name, client, project, started, ended, turns)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?5, 1)",
                )?
                .execute(params![self.speaker, turn.session, turn.client, project, ts])?;
            return Ok(self.transaction.last_insert_rowid());
        };
        self.transaction
            .prepare_cached(
                "UPDATE sessions SET turns = turns + 1, started = min(started, ?2),
                     ended = max(ended, ?2) WHERE id = ?1",
            )?
            .execute([session.id, ts])?;
        // A session is in the project of its latest turn.
        if ts >= session.ended && session.project != project {
            self.transaction
                .prepare_cached("UPDATE sessions SET project = ?2 WHERE id = ?1")?
                .execute([session.id, project])?;
        }
        Ok(session.id)
    }
}
