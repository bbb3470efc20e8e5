//! Writing turns: each one once, whatever way it comes.

use hob_domain::memory::{
    Forget, Identity, ImportMark, NewTurn, RecordId, Remask, Stored, TurnKey,
};
use hob_domain::{StoreError, Timestamp};
use rusqlite::{OptionalExtension, Transaction, params};

use super::failed;

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
    for turn in turns {
        match one(transaction, speaker, turn).map_err(failed)? {
            Outcome::Inserted(_) => stored.inserted += 1,
            Outcome::Duplicate(_) => stored.duplicates += 1,
            Outcome::Forgotten => stored.forgotten += 1,
        }
    }
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
) -> rusqlite::Result<Outcome> {
    let ts = turn.ts.as_microsecond();
    let until: Option<i64> = transaction
        .prepare_cached("SELECT until FROM forgotten_sessions WHERE speaker = ?1 AND session = ?2")?
        .query_row(params![speaker, turn.session], |row| row.get(0))
        .optional()?;
    if until.is_some_and(|until| ts <= until) {
        return Ok(Outcome::Forgotten);
    }
    match turn.identity {
        Identity::Record(key) => with_record_id(transaction, speaker, turn, ts, key),
        Identity::Nth { n, after } => without_record_id(transaction, speaker, turn, ts, n, after),
    }
}

fn with_record_id(
    transaction: &Transaction<'_>,
    speaker: &str,
    turn: &NewTurn,
    ts: i64,
    key: TurnKey,
) -> rusqlite::Result<Outcome> {
    let known: Option<String> = transaction
        .prepare_cached("SELECT id FROM turns WHERE speaker = ?1 AND key = ?2")?
        .query_row(params![speaker, key.bytes()], |row| row.get(0))
        .optional()?;
    if let Some(id) = known {
        return Ok(Outcome::Duplicate(RecordId::new(id)));
    }
    let forgotten = transaction
        .prepare_cached("SELECT 1 FROM forgotten WHERE speaker = ?1 AND key = ?2")?
        .exists(params![speaker, key.bytes()])?;
    if forgotten {
        return Ok(Outcome::Forgotten);
    }
    // The same words may have come before their record did: that turn is this one.
    let unclaimed: Option<(i64, String)> = transaction
        .prepare_cached(
            "SELECT t.seq, t.id FROM turns t JOIN sessions s ON s.id = t.session
             WHERE s.speaker = ?1 AND s.name = ?2 AND t.words = ?3 AND t.key IS NULL
             ORDER BY t.seq LIMIT 1",
        )?
        .query_row(params![speaker, turn.session, turn.words.bytes()], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    if let Some((seq, id)) = unclaimed {
        transaction
            .prepare_cached("UPDATE turns SET key = ?2 WHERE seq = ?1")?
            .execute(params![seq, key.bytes()])?;
        return Ok(Outcome::Duplicate(RecordId::new(id)));
    }
    let claimed = transaction
        .prepare_cached(
            "UPDATE forgotten SET key = ?4 WHERE rowid = (
                 SELECT rowid FROM forgotten
                 WHERE speaker = ?1 AND session = ?2 AND words = ?3 AND key IS NULL LIMIT 1)",
        )?
        .execute(params![speaker, turn.session, turn.words.bytes(), key.bytes()])?;
    if claimed > 0 {
        return Ok(Outcome::Forgotten);
    }
    let id = key.record_id();
    insert(transaction, speaker, turn, ts, &id, Some(key))?;
    Ok(Outcome::Inserted(id))
}

fn without_record_id(
    transaction: &Transaction<'_>,
    speaker: &str,
    turn: &NewTurn,
    ts: i64,
    n: u32,
    after: Option<TurnKey>,
) -> rusqlite::Result<Outcome> {
    let anchor: Option<(i64, i64)> = match after {
        None => None,
        Some(key) => transaction
            .prepare_cached("SELECT seq, ts FROM turns WHERE speaker = ?1 AND key = ?2")?
            .query_row(params![speaker, key.bytes()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?,
    };
    // Later by either measure: a clock may jump, and an import may come after the live capture.
    let (after_seq, after_ts) = anchor.unwrap_or((-1, i64::MIN));
    let there: Vec<String> = transaction
        .prepare_cached(
            "SELECT t.id FROM turns t JOIN sessions s ON s.id = t.session
             WHERE s.speaker = ?1 AND s.name = ?2 AND t.words = ?3 AND (t.seq > ?4 OR t.ts > ?5)
             ORDER BY t.seq LIMIT ?6",
        )?
        .query_map(
            params![speaker, turn.session, turn.words.bytes(), after_seq, after_ts, n],
            |row| row.get(0),
        )?
        .collect::<Result<_, _>>()?;
    if there.len() >= n as usize {
        let id = there.into_iter().next_back().unwrap_or_default();
        return Ok(Outcome::Duplicate(RecordId::new(id)));
    }
    let forgotten: i64 = transaction
        .prepare_cached(
            "SELECT count(*) FROM forgotten
             WHERE speaker = ?1 AND session = ?2 AND words = ?3 AND (seq > ?4 OR ts > ?5)",
        )?
        .query_row(
            params![speaker, turn.session, turn.words.bytes(), after_seq, after_ts],
            |row| row.get(0),
        )?;
    if there.len() as i64 + forgotten >= i64::from(n) {
        return Ok(Outcome::Forgotten);
    }
    let ts = if anchor.is_some() { ts.max(after_ts.saturating_add(1)) } else { ts };
    let all: i64 = transaction
        .prepare_cached(
            "SELECT (SELECT count(*) FROM turns t JOIN sessions s ON s.id = t.session
                     WHERE s.speaker = ?1 AND s.name = ?2 AND t.words = ?3)
                  + (SELECT count(*) FROM forgotten
                     WHERE speaker = ?1 AND session = ?2 AND words = ?3)",
        )?
        .query_row(params![speaker, turn.session, turn.words.bytes()], |row| row.get(0))?;
    let ordinal = (all + 1).to_string();
    let id = TurnKey::of(&["nth", &turn.session, &turn.words.to_hex(), &ordinal]).record_id();
    insert(transaction, speaker, turn, ts, &id, None)?;
    Ok(Outcome::Inserted(id))
}

fn insert(
    transaction: &Transaction<'_>,
    speaker: &str,
    turn: &NewTurn,
    ts: i64,
    id: &RecordId,
    key: Option<TurnKey>,
) -> rusqlite::Result<()> {
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
            "INSERT INTO turns (id, speaker, session, project, worktree, key, words, role, tier,
                 text, sealed, cue, ts, client, source, rules)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        )?
        .execute(params![
            id.as_str(),
            speaker,
            session,
            project,
            turn.place.worktree,
            key.as_ref().map(TurnKey::bytes),
            turn.words.bytes(),
            turn.role.as_str(),
            turn.tier.as_str(),
            turn.text,
            turn.sealed,
            turn.cue,
            ts,
            turn.client,
            turn.source,
            turn.rules,
        ])?;
    let seq = transaction.last_insert_rowid();
    transaction
        .prepare_cached("INSERT INTO term_index (rowid, terms, scope) VALUES (?1, ?2, ?3)")?
        .execute(params![seq, turn.terms, scope_terms(speaker, project, session)])?;
    transaction
        .prepare_cached("INSERT INTO vectors (project, seq, vector) VALUES (?1, ?2, ?3)")?
        .execute(params![project, seq, bytes(&turn.vector)])?;
    Ok(())
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

/// The terms by which the index keeps speakers, projects and sessions apart.
fn scope_terms(speaker: &str, project: i64, session: i64) -> String {
    format!("{} p{project} s{session}", speaker_term(speaker))
}

pub(super) fn speaker_term(speaker: &str) -> String {
    format!("o{}", hob_domain::secret::hex(speaker.as_bytes()))
}

pub(super) fn supersede(
    transaction: &Transaction<'_>,
    speaker: &str,
    old: &RecordId,
    turn: &NewTurn,
) -> Result<Option<RecordId>, StoreError> {
    let there = transaction
        .prepare_cached("SELECT 1 FROM turns WHERE speaker = ?1 AND id = ?2")
        .and_then(|mut s| s.exists(params![speaker, old.as_str()]))
        .map_err(failed)?;
    if !there {
        return Ok(None);
    }
    let id = match one(transaction, speaker, turn).map_err(failed)? {
        Outcome::Inserted(id) | Outcome::Duplicate(id) => id,
        Outcome::Forgotten => {
            return Err(StoreError::Failed("this correction was forgotten before".to_owned()));
        }
    };
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
    Ok(Some(id))
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
             WHERE t.speaker = ?1 AND {column} = ?2"
        ))?
        .query_map(params![speaker, name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_, _>>()?;
    for (seq, project, session) in &found {
        let run = |sql: &str| transaction.prepare_cached(sql)?.execute([seq]);
        run("INSERT INTO forgotten (speaker, session, words, key, seq, ts)
             SELECT t.speaker, s.name, t.words, t.key, t.seq, t.ts
             FROM turns t JOIN sessions s ON s.id = t.session WHERE t.seq = ?1")?;
        // What it corrected stands again; what corrected it stands alone.
        run("UPDATE turns SET superseded_by = NULL WHERE superseded_by =
                 (SELECT id FROM turns WHERE seq = ?1) AND speaker =
                 (SELECT speaker FROM turns WHERE seq = ?1)")?;
        run("UPDATE turns SET supersedes = NULL WHERE supersedes =
                 (SELECT id FROM turns WHERE seq = ?1) AND speaker =
                 (SELECT speaker FROM turns WHERE seq = ?1)")?;
        run("DELETE FROM term_index WHERE rowid = ?1")?;
        transaction
            .prepare_cached("DELETE FROM vectors WHERE project = ?1 AND seq = ?2")?
            .execute([project, seq])?;
        run("DELETE FROM turns WHERE seq = ?1")?;
        transaction
            .prepare_cached("UPDATE sessions SET turns = turns - 1 WHERE id = ?1")?
            .execute([session])?;
    }
    transaction.execute("DELETE FROM sessions WHERE turns <= 0", [])?;
    transaction.execute(
        "DELETE FROM projects WHERE id NOT IN (SELECT project FROM turns)
             AND id NOT IN (SELECT project FROM sessions)",
        [],
    )?;
    Ok(found.len())
}

pub(super) fn remask(transaction: &Transaction<'_>, change: &Remask) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("UPDATE turns SET text = ?2, sealed = ?3, rules = ?4 WHERE seq = ?1")?
        .execute(params![change.seq, change.text, change.sealed, change.rules])?;
    transaction
        .prepare_cached("UPDATE term_index SET terms = ?2 WHERE rowid = ?1")?
        .execute(params![change.seq, change.terms])?;
    transaction
        .prepare_cached("UPDATE vectors SET vector = ?2 WHERE seq = ?1 AND project = (SELECT project FROM turns WHERE seq = ?1)")?
        .execute(params![change.seq, bytes(&change.vector)])?;
    Ok(())
}

fn bytes(vector: &[i8]) -> Vec<u8> {
    vector.iter().map(|value| value.cast_unsigned()).collect()
}
