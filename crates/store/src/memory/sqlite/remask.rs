//! Replacing the texts of turns after a rescan with newer masking rules.

use hob_domain::memory::Remask;
use hob_index::sign_codes::{TABLE_BYTES, sign_code};
use rusqlite::{OptionalExtension, Transaction, params};

use super::postings::{IndexChanges, IndexedTurn, note_change};
use super::vectors::{self, save_table_vector};

/// Replaces texts, terms and vectors. Returns whether a sign code has changed, so that cached ones
/// must be dropped.
pub(super) fn remask(transaction: &Transaction<'_>, changes: &[Remask]) -> rusqlite::Result<bool> {
    let mut index = IndexChanges::new(transaction)?;
    let mut has_other_code = false;
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
        // A turn that was forgotten meanwhile stays forgotten.
        let Some([project, session, ts, at]) = row else { continue };
        index.remove(transaction, *seq)?;
        let terms = &change.terms;
        index.add(transaction, &IndexedTurn { seq: *seq, project, session, ts, at, terms })?;
        note_change(transaction, *seq)?;
        let code: Option<Vec<u8>> = transaction
            .prepare_cached("DELETE FROM codes WHERE seq = ?1 RETURNING code")?
            .query_row([seq], |row| row.get(0))
            .optional()?;
        has_other_code |= code != sign_code(&change.vector, TABLE_BYTES);
        save_table_vector(transaction, project, *seq, &change.vector)?;
        // The model's vector is of the text before.
        vectors::remove(transaction, *seq)?;
    }
    index.write(transaction)?;
    Ok(has_other_code)
}
