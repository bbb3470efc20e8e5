//! The names of turns in SQLite: reading the rows that share a name with a captured turn, and
//! writing the names it claims.

use hob_domain::memory::{Identity, NewTurn, RecordId, TurnKey};
use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::postings::note_change;
use crate::memory::identity::{Claim, ExistingTurn, TurnNames, free_answer, recognise};

/// The result of looking for a captured turn among the stored ones.
pub(super) enum StoredTurn {
    /// The turn is stored under this id.
    Known(RecordId),
    /// The turn is not stored; it may have this answer's place.
    New { answer: Option<TurnKey> },
}

/// Looks for a captured turn by its record: the usual duplicate, for which no other row matters.
pub(super) fn find_by_record(
    transaction: &Transaction<'_>,
    speaker: &str,
    turn: &NewTurn,
) -> rusqlite::Result<Option<RecordId>> {
    let Identity::Record { key, .. } = &turn.identity else { return Ok(None) };
    transaction
        .prepare_cached("SELECT id FROM turns WHERE speaker = ?1 AND key = ?2")?
        .query_row(params![speaker, key.bytes()], |row| Ok(RecordId::new(row.get::<_, String>(0)?)))
        .optional()
}

/// Looks for a captured turn among the stored ones that do not have its record, and writes the name
/// that it claims there. `session` is the number of its session, if there is one.
pub(super) fn find_stored(
    transaction: &Transaction<'_>,
    speaker: &str,
    turn: &NewTurn,
    session: Option<i64>,
) -> rusqlite::Result<StoredTurn> {
    let names = TurnNames::of(turn, session);
    let mut statement = transaction.prepare_cached(
        "SELECT seq, at, words, key, answer, nth, session, id FROM turns
         WHERE speaker = ?1 AND answer = ?2
         UNION ALL SELECT seq, at, words, key, answer, nth, session, id FROM turns
         WHERE session = ?3 AND words = ?4",
    )?;
    let answer = names.answer.as_ref().map(TurnKey::bytes);
    let rows: Vec<(ExistingTurn<TurnKey, Option<i64>>, String)> = statement
        .query_map(params![speaker, answer, session, names.words.bytes()], |row| {
            Ok((existing(row, row.get(6)?)?, row.get(7)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let existing = rows.iter().map(|(row, _)| row);
    let Some(found) = recognise(&names, existing.clone()) else {
        return Ok(StoredTurn::New { answer: free_answer(&names, existing).copied() });
    };
    let (row, id) = &rows[found.row];
    match found.claim {
        None => {}
        Some(Claim::Record) => claim_record(transaction, row.number, turn, names.record)?,
        Some(Claim::Nth) => {
            transaction
                .prepare_cached("UPDATE turns SET nth = ?2 WHERE seq = ?1")?
                .execute(params![row.number, names.nth])?;
        }
    }
    Ok(StoredTurn::Known(RecordId::new(id.as_str())))
}

fn claim_record(
    transaction: &Transaction<'_>,
    seq: i64,
    turn: &NewTurn,
    record: Option<TurnKey>,
) -> rusqlite::Result<()> {
    let (ts, at) = (turn.ts.as_microsecond(), turn.at.as_microsecond());
    let record = record.as_ref().map(TurnKey::bytes);
    transaction
        .prepare_cached("UPDATE turns SET key = ?2, ts = ?3, at = ?4, client = ?5 WHERE seq = ?1")?
        .execute(params![seq, record, ts, at, turn.client])?;
    transaction
        .prepare_cached("UPDATE indexed SET ts = ?2, at = ?3 WHERE seq = ?1")?
        .execute([seq, ts, at])?;
    note_change(transaction, seq)
}

/// Returns whether a captured turn was forgotten, and writes the name that it claims there.
pub(super) fn is_forgotten(
    transaction: &Transaction<'_>,
    speaker: &str,
    turn: &NewTurn,
) -> rusqlite::Result<bool> {
    let names = TurnNames::of(turn, turn.session.clone());
    let [record, answer] =
        [&names.record, &names.answer].map(|name| name.as_ref().map(TurnKey::bytes));
    let mut statement = transaction.prepare_cached(
        "SELECT rowid, 0, words, key, answer, nth, session FROM forgotten
         WHERE speaker = ?1 AND key = ?2
         UNION ALL SELECT rowid, 0, words, key, answer, nth, session FROM forgotten
         WHERE speaker = ?1 AND answer = ?3
         UNION ALL SELECT rowid, 0, words, key, answer, nth, session FROM forgotten
         WHERE speaker = ?1 AND session = ?4 AND words = ?5",
    )?;
    let values = params![speaker, record, answer, names.session, names.words.bytes()];
    let rows: Vec<ExistingTurn<TurnKey, String>> = statement
        .query_map(values, |row| existing(row, row.get(6)?))?
        .collect::<rusqlite::Result<_>>()?;
    let Some(known) = recognise(&names, rows.iter()) else { return Ok(false) };
    let number = rows[known.row].number;
    match known.claim {
        None => {}
        Some(Claim::Record) => {
            transaction
                .prepare_cached("UPDATE forgotten SET key = ?2 WHERE rowid = ?1")?
                .execute(params![number, record])?;
        }
        Some(Claim::Nth) => {
            transaction
                .prepare_cached("UPDATE forgotten SET nth = ?2 WHERE rowid = ?1")?
                .execute(params![number, names.nth])?;
        }
    }
    Ok(true)
}

/// Reads a digest.
pub(super) fn key(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<TurnKey>> {
    let bytes = row.get_ref(column)?.as_blob_or_null()?;
    Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map(TurnKey::from_bytes))
}

/// The row of a query that begins with `seq, at, words, key, answer, nth`.
fn existing<S>(row: &Row<'_>, session: S) -> rusqlite::Result<ExistingTurn<TurnKey, S>> {
    let names = TurnNames {
        session,
        words: key(row, 2)?.unwrap_or(TurnKey::from_bytes([0; 32])),
        record: key(row, 3)?,
        answer: key(row, 4)?,
        nth: row.get(5)?,
    };
    Ok(ExistingTurn { number: row.get(0)?, at: row.get(1)?, names })
}
