//! Forgetting turns: hiding them at once, restoring them, and erasing them for good.

use std::collections::BTreeSet;

use hob_domain::memory::{Forget, Forgetting, Principal, RecordId, TurnKey};
use hob_domain::{StoreError, Timestamp};
use rusqlite::{OptionalExtension, Transaction, params};

use super::names::key;
use super::postings::{EVERYTHING, IndexChanges, note_change};
use super::rows::stored_turn;
use super::store_turns::TurnWriter;
use super::vectors;
use crate::memory::hidden::HiddenTurn;
use crate::memory::identity::TurnNames;
use crate::sqlite::failed;
use crate::values::damaged;

/// Takes a step of forgetting. Returns how many turns it changed.
pub(super) fn forget(
    transaction: &Transaction<'_>,
    step: &Forgetting,
) -> Result<usize, StoreError> {
    match step {
        Forgetting::Hide { principal, turns, now } => {
            hide(transaction, principal.as_str(), turns, *now).map_err(failed)
        }
        Forgetting::Restore { principal, turns, hidden_since } => {
            restore(transaction, principal.as_str(), turns, *hidden_since)
        }
        Forgetting::Erase { hidden_before } => erase(transaction, *hidden_before).map_err(failed),
        Forgetting::RemovePrincipal(principal) => {
            remove_principal(transaction, principal.as_str()).map_err(failed)
        }
    }
}

fn hide(
    transaction: &Transaction<'_>,
    speaker: &str,
    turns: &Forget,
    now: Timestamp,
) -> rusqlite::Result<usize> {
    let now = now.as_microsecond();
    let (column, name, hidden_at) = match turns {
        Forget::Record(id) => ("t.id", id.as_str(), now),
        Forget::Session(session) => {
            ("s.name", session.as_str(), hide_session(transaction, speaker, session, now)?)
        }
    };
    let found: Vec<(i64, i64, i64)> = transaction
        .prepare(&format!(
            "SELECT t.seq, t.project, t.session FROM turns t JOIN sessions s ON s.id = t.session
             WHERE t.speaker = ?1 AND s.speaker = ?1 AND {column} = ?2 ORDER BY t.seq"
        ))?
        .query_map(params![speaker, name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_, _>>()?;
    // Forgetting one turn changes the links of others, so all are read first.
    let mut bodies = Vec::with_capacity(found.len());
    for (seq, _, _) in &found {
        let (record, at) = stored_turn(transaction, *seq)?;
        bodies.push(HiddenTurn::new(record, at).to_bytes());
    }
    let mut index = IndexChanges::new(transaction)?;
    for ((seq, project, session), body) in found.iter().zip(bodies) {
        let run = |sql: &str| transaction.prepare_cached(sql)?.execute([seq]);
        transaction
            .prepare_cached(
                "INSERT INTO forgotten (speaker, session, words, key, answer, nth, turn, hidden_at, body)
                 SELECT t.speaker, s.name, t.words, t.key, t.answer, t.nth, t.id, ?2, ?3
                 FROM turns t JOIN sessions s ON s.id = t.session WHERE t.seq = ?1",
            )?
            .execute(params![seq, hidden_at, body])?;
        // A turn that it superseded is valid again, unless a later correction supersedes both.
        run("UPDATE turns SET superseded_by = (SELECT superseded_by FROM turns WHERE seq = ?1)
                 WHERE superseded_by = (SELECT id FROM turns WHERE seq = ?1) AND speaker =
                 (SELECT speaker FROM turns WHERE seq = ?1)")?;
        run("UPDATE turns SET supersedes = (SELECT supersedes FROM turns WHERE seq = ?1)
                 WHERE supersedes = (SELECT id FROM turns WHERE seq = ?1) AND speaker =
                 (SELECT speaker FROM turns WHERE seq = ?1)")?;
        index.remove(transaction, *seq)?;
        note_change(transaction, *seq)?;
        transaction
            .prepare_cached("DELETE FROM vectors WHERE project = ?1 AND seq = ?2")?
            .execute([project, seq])?;
        run("DELETE FROM codes WHERE seq = ?1")?;
        vectors::remove(transaction, *seq)?;
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

/// Marks a session as forgotten up to this time. Returns the time at which its turns count as hidden: that of the mark,
/// by which they are found again. Turns that were hidden with an earlier mark get the new one.
fn hide_session(
    transaction: &Transaction<'_>,
    speaker: &str,
    session: &str,
    now: i64,
) -> rusqlite::Result<i64> {
    let values = params![speaker, session, now];
    transaction.execute(
        "UPDATE forgotten SET hidden_at = max(hidden_at, ?3)
         WHERE speaker = ?1 AND session = ?2 AND body IS NOT NULL AND hidden_at =
             (SELECT until FROM forgotten_sessions WHERE speaker = ?1 AND session = ?2)",
        values,
    )?;
    transaction.query_row(
        "INSERT INTO forgotten_sessions (speaker, session, until) VALUES (?1, ?2, ?3)
         ON CONFLICT (speaker, session) DO UPDATE SET until = max(until, ?3) RETURNING until",
        values,
        |row| row.get(0),
    )
}

/// A hidden turn as the database has it: its row, its names and its body.
type HiddenRow = (i64, TurnNames<TurnKey, ()>, Vec<u8>);

/// Restores hidden turns. A turn that was stored again meanwhile stays as it is.
fn restore(
    transaction: &Transaction<'_>,
    speaker: &str,
    turns: &Forget,
    since: Timestamp,
) -> Result<usize, StoreError> {
    // Of a session, those turns come back that were forgotten with it. One that was forgotten alone stays forgotten.
    let (condition, name) = match turns {
        Forget::Record(id) => ("turn = ?2", id.as_str()),
        Forget::Session(session) => (
            "session = ?2 AND hidden_at =
                 (SELECT until FROM forgotten_sessions WHERE speaker = ?1 AND session = ?2)",
            session.as_str(),
        ),
    };
    let rows: Vec<HiddenRow> = transaction
        .prepare(&format!(
            "SELECT rowid, words, key, answer, nth, body FROM forgotten
             WHERE speaker = ?1 AND {condition} AND body IS NOT NULL AND hidden_at >= ?3
             ORDER BY rowid"
        ))
        .and_then(|mut statement| {
            let values = params![speaker, name, since.as_microsecond()];
            statement
                .query_map(values, |row| {
                    let words = key(row, 1)?.unwrap_or(TurnKey::from_bytes([0; 32]));
                    let (record, answer, nth) = (key(row, 2)?, key(row, 3)?, row.get(4)?);
                    let names = TurnNames { session: (), words, record, answer, nth };
                    Ok((row.get(0)?, names, row.get(5)?))
                })?
                .collect()
        })
        .map_err(failed)?;
    if let (Forget::Session(_), false) = (turns, rows.is_empty()) {
        transaction
            .execute(
                "DELETE FROM forgotten_sessions WHERE speaker = ?1 AND session = ?2",
                [speaker, name],
            )
            .map_err(failed)?;
        if speaker == Principal::Owner.as_str() {
            // Imports are done though the session refused their turns. The next one reads all files again.
            transaction.execute("DELETE FROM imports", []).map_err(failed)?;
        }
    }
    let mut writer = TurnWriter::new(transaction, speaker).map_err(failed)?;
    let mut links: Vec<(RecordId, RecordId)> = Vec::new();
    let mut count = 0;
    for (row, names, body) in rows {
        let hidden = HiddenTurn::from_bytes(&body).ok_or_else(|| damaged("a forgotten turn"))?;
        transaction.execute("DELETE FROM forgotten WHERE rowid = ?1", [row]).map_err(failed)?;
        let id = hidden.id.clone();
        links.extend(hidden.superseded_by.clone().map(|newer| (id.clone(), newer)));
        links.extend(hidden.supersedes.clone().map(|older| (older, id.clone())));
        let turn = hidden.turn(&names);
        count += usize::from(writer.restore(&turn, &id, &names).map_err(failed)?);
    }
    writer.write_index().map_err(failed)?;
    for (older, newer) in &links {
        link(transaction, speaker, older, newer).map_err(failed)?;
        // If the other turn is still hidden, it brings the link when it comes back.
        for id in [older, newer] {
            note_link(transaction, speaker, id, older, newer).map_err(failed)?;
        }
    }
    Ok(count)
}

/// Adds a link to what is kept of a hidden turn.
fn note_link(
    transaction: &Transaction<'_>,
    speaker: &str,
    id: &RecordId,
    older: &RecordId,
    newer: &RecordId,
) -> rusqlite::Result<()> {
    let found: Option<(i64, Vec<u8>)> = transaction
        .prepare_cached(
            "SELECT rowid, body FROM forgotten
             WHERE speaker = ?1 AND turn = ?2 AND body IS NOT NULL",
        )?
        .query_row([speaker, id.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let hidden = found.and_then(|(row, body)| Some((row, HiddenTurn::from_bytes(&body)?)));
    if let Some((row, mut hidden)) = hidden {
        hidden.link(older, newer);
        transaction
            .prepare_cached("UPDATE forgotten SET body = ?2 WHERE rowid = ?1")?
            .execute(params![row, hidden.to_bytes()])?;
    }
    Ok(())
}

/// Links a superseded turn with the one that supersedes it, if both are stored.
fn link(
    transaction: &Transaction<'_>,
    speaker: &str,
    older: &RecordId,
    newer: &RecordId,
) -> rusqlite::Result<()> {
    for (column, row, other) in [("superseded_by", older, newer), ("supersedes", newer, older)] {
        transaction
            .prepare_cached(&format!(
                "UPDATE turns SET {column} = ?3 WHERE speaker = ?1 AND id = ?2
                 AND EXISTS (SELECT 1 FROM turns WHERE speaker = ?1 AND id = ?3)"
            ))?
            .execute(params![speaker, row.as_str(), other.as_str()])?;
    }
    Ok(())
}

/// Erases hidden turns. What is left recognises them when they come again, and cannot be read.
fn erase(transaction: &Transaction<'_>, before: Timestamp) -> rusqlite::Result<usize> {
    transaction.execute(
        "UPDATE forgotten SET turn = NULL, hidden_at = NULL, body = NULL
         WHERE body IS NOT NULL AND hidden_at < ?1",
        [before.as_microsecond()],
    )
}

/// Removes everything of a principal, including the names of forgotten turns: an app that gets the
/// name later is another app.
fn remove_principal(transaction: &Transaction<'_>, speaker: &str) -> rusqlite::Result<usize> {
    transaction.execute(
        "DELETE FROM terms WHERE seq IN (SELECT seq FROM turns WHERE speaker = ?1)",
        [speaker],
    )?;
    note_change(transaction, EVERYTHING)?;
    vectors::remove_of_principal(transaction, speaker)?;
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
