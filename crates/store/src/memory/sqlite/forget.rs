//! Forgetting turns for good: they are not stored again.

use std::collections::BTreeSet;

use hob_domain::Timestamp;
use hob_domain::memory::Forget;
use rusqlite::{Transaction, params};

use super::postings::{EVERYTHING, IndexChanges, note_change};
use super::vectors;

/// Forgets a turn, a session or everything. Returns how many turns were removed.
pub(super) fn forget(
    transaction: &Transaction<'_>,
    speaker: &str,
    what: &Forget,
    now: Timestamp,
) -> rusqlite::Result<usize> {
    let (column, name) = match what {
        Forget::Everything => return forget_everything(transaction, speaker),
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
    let mut index = IndexChanges::new(transaction)?;
    for (seq, project, session) in &found {
        let run = |sql: &str| transaction.prepare_cached(sql)?.execute([seq]);
        run("INSERT INTO forgotten (speaker, session, words, key, answer, nth)
             SELECT t.speaker, s.name, t.words, t.key, t.answer, t.nth
             FROM turns t JOIN sessions s ON s.id = t.session WHERE t.seq = ?1")?;
        // A turn that it superseded is valid again; a turn that superseded it no longer supersedes
        // any.
        run("UPDATE turns SET superseded_by = NULL WHERE superseded_by =
                 (SELECT id FROM turns WHERE seq = ?1) AND speaker =
                 (SELECT speaker FROM turns WHERE seq = ?1)")?;
        run("UPDATE turns SET supersedes = NULL WHERE supersedes =
                 (SELECT id FROM turns WHERE seq = ?1) AND speaker =
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

/// Removes everything of a principal, including the names of forgotten turns: an app that gets the
/// name later is another app.
fn forget_everything(transaction: &Transaction<'_>, speaker: &str) -> rusqlite::Result<usize> {
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
