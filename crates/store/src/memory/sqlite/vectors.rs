//! The vectors of turns: every turn has one of the built-in table, and gets one of the user's model
//! in time.

use hob_domain::memory::{Candidate, Embedded, Unembedded, UnembeddedPage, VectorKind};
use hob_index::sign_codes::{MODEL_BYTES, TABLE_BYTES, sign_code};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

/// One page of turns without a vector looks at this many turns.
const PAGE_TURNS: i64 = 2048;

/// Returns the kind of this name, which is created if there is none.
pub(super) fn kind(
    transaction: &Transaction<'_>,
    name: &str,
    width: usize,
) -> rusqlite::Result<VectorKind> {
    transaction.query_row(
        "INSERT INTO vector_kinds (name, width) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET width = ?2 RETURNING id",
        params![name, width as i64],
        |row| row.get(0).map(VectorKind),
    )
}

/// Counts the turns that have a vector of a kind, and all turns.
pub(super) fn embedded(connection: &Connection, kind: VectorKind) -> rusqlite::Result<Embedded> {
    connection.query_row(
        "SELECT coalesce((SELECT embedded FROM vector_kinds WHERE id = ?1), 0),
                (SELECT coalesce(sum(turns), 0) FROM sessions),
                (SELECT coalesce(max(seq), 0) FROM turns)",
        [kind.0],
        |row| {
            Ok(Embedded {
                done: row.get::<_, i64>(0)?.max(0) as u64,
                turns: row.get::<_, i64>(1)?.max(0) as u64,
                newest: row.get(2)?,
            })
        },
    )
}

/// Returns a page of turns without a vector of a kind, newest first.
pub(super) fn unembedded(
    connection: &Connection,
    kind: VectorKind,
    below: i64,
    above: i64,
    limit: usize,
) -> rusqlite::Result<UnembeddedPage> {
    // After the newest turn there is nothing to look at.
    let highest: i64 = connection
        .prepare_cached("SELECT coalesce(max(seq), 0) FROM turns")?
        .query_row([], |row| row.get(0))?;
    let below = below.min(highest.saturating_add(1));
    let from = (below - PAGE_TURNS).max(above.saturating_add(1));
    let turns: Vec<Unembedded> = connection
        .prepare_cached(
            "SELECT t.seq, t.text, t.cue FROM turns t
             WHERE t.seq >= ?1 AND t.seq < ?2 AND NOT EXISTS
                 (SELECT 1 FROM model_vectors v WHERE v.seq = t.seq AND v.kind = ?3)
             ORDER BY t.seq DESC LIMIT ?4",
        )?
        .query_map(params![from, below, kind.0, limit as i64], |row| {
            Ok(Unembedded { seq: row.get(0)?, text: row.get(1)?, cue: row.get(2)? })
        })?
        .collect::<Result<_, _>>()?;
    let seen = match turns.last() {
        Some(last) if turns.len() >= limit => last.seq,
        _ => from,
    };
    Ok(UnembeddedPage { turns, below: Some(seen).filter(|seen| *seen > above.saturating_add(1)) })
}

/// Writes the vector of the built-in table, which every turn has, and its sign code.
pub(super) fn save_table_vector(
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

/// Writes a model's vector of a turn, and its sign code.
pub(super) fn save(
    transaction: &Transaction<'_>,
    kind: VectorKind,
    seq: i64,
    vector: &[i8],
) -> rusqlite::Result<()> {
    let project: Option<i64> = transaction
        .prepare_cached("SELECT project FROM turns WHERE seq = ?1")?
        .query_row([seq], |row| row.get(0))
        .optional()?;
    // A turn that was forgotten meanwhile stays forgotten.
    let Some(project) = project else { return Ok(()) };
    remove_of(transaction, seq, Some(kind))?;
    let code = sign_code(vector, MODEL_BYTES).unwrap_or_default();
    transaction
        .prepare_cached(
            "INSERT INTO model_codes (kind, seq, project, code) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![kind.0, seq, project, code])?;
    let bytes: Vec<u8> = vector.iter().map(|value| value.cast_unsigned()).collect();
    transaction
        .prepare_cached(
            "INSERT INTO model_vectors (seq, kind, code, vector) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![seq, kind.0, transaction.last_insert_rowid(), bytes])?;
    count(transaction, kind.0, 1)
}

/// Removes the models' vectors of a turn. The caller must clear the cached codes afterwards.
pub(super) fn remove(transaction: &Transaction<'_>, seq: i64) -> rusqlite::Result<()> {
    remove_of(transaction, seq, None)
}

fn remove_of(
    transaction: &Transaction<'_>,
    seq: i64,
    kind: Option<VectorKind>,
) -> rusqlite::Result<()> {
    let gone: Vec<(i64, i64)> = transaction
        .prepare_cached(
            "DELETE FROM model_vectors WHERE seq = ?1 AND (?2 IS NULL OR kind = ?2)
             RETURNING kind, code",
        )?
        .query_map(params![seq, kind.map(|kind| kind.0)], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (kind, code) in gone {
        transaction.prepare_cached("DELETE FROM model_codes WHERE id = ?1")?.execute([code])?;
        count(transaction, kind, -1)?;
    }
    Ok(())
}

fn count(transaction: &Transaction<'_>, kind: i64, more: i64) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("UPDATE vector_kinds SET embedded = embedded + ?2 WHERE id = ?1")?
        .execute([kind, more])?;
    Ok(())
}

/// Removes the models' vectors of all turns of a principal, before the turns are removed.
pub(super) fn remove_of_principal(
    transaction: &Transaction<'_>,
    speaker: &str,
) -> rusqlite::Result<()> {
    let seqs: Vec<i64> = transaction
        .prepare(
            "SELECT DISTINCT v.seq FROM turns t JOIN model_vectors v ON v.seq = t.seq
             WHERE t.speaker = ?1",
        )?
        .query_map([speaker], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    seqs.into_iter().try_for_each(|seq| remove(transaction, seq))
}

/// Removes at most `limit` vectors of other kinds, and the kinds themselves when no vector is left.
pub(super) fn drop_others(
    transaction: &Transaction<'_>,
    kind: VectorKind,
    limit: usize,
) -> rusqlite::Result<usize> {
    let has_others = transaction
        .prepare_cached("SELECT 1 FROM vector_kinds WHERE id <> ?1")?
        .exists([kind.0])?;
    if !has_others {
        return Ok(0);
    }
    let some: Vec<(i64, i64)> = transaction
        .prepare_cached("SELECT seq, kind FROM model_codes WHERE kind <> ?1 LIMIT ?2")?
        .query_map(params![kind.0, limit as i64], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (seq, other) in &some {
        remove_of(transaction, *seq, Some(VectorKind(*other)))?;
    }
    if some.is_empty() {
        transaction.execute("DELETE FROM vector_kinds WHERE id <> ?1", [kind.0])?;
    }
    Ok(some.len())
}

/// Gives candidates their vectors of a model.
pub(super) fn fill(
    connection: &Connection,
    kind: VectorKind,
    candidates: &mut [Candidate],
) -> rusqlite::Result<()> {
    let mut statement = connection
        .prepare_cached("SELECT vector FROM model_vectors WHERE seq = ?1 AND kind = ?2")?;
    for candidate in candidates {
        let mut rows = statement.query([candidate.seq, kind.0])?;
        if let Some(row) = rows.next()? {
            let bytes = row.get_ref(0)?.as_blob()?;
            candidate.model_vector = bytes.iter().map(|byte| byte.cast_signed()).collect();
        }
    }
    Ok(())
}
