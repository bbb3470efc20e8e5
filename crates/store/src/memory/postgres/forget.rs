//! Forgetting turns: hiding them at once, and erasing them for good.

use std::collections::BTreeMap;

use hob_domain::memory::{Forget, Forgetting};
use hob_domain::{StoreError, Timestamp};
use tokio_postgres::{Error, Row};

use super::batch::{ProjectSums, lock};
use super::cipher::{Body, Cipher, Name};
use super::postings::{lock_posting_lists, remove};
use super::restore::restore;
use super::rows::{COLUMNS, TABLES, ask, record, session_id};
use super::sign_codes;
use super::write_turns::add_sums;
use crate::memory::hidden::HiddenTurn;
use crate::postgres::connections::Client;

/// This many turns are removed from the index with one set of statements.
const MAX_REMOVED_TURNS: usize = 500;
const MODEL_TABLE: &str = "hob.memory_model_vectors";

/// Takes a step of forgetting. Returns how many turns it changed.
pub(super) async fn forget(
    client: &Client,
    cipher: &Cipher,
    step: &Forgetting,
) -> Result<Result<usize, StoreError>, Error> {
    match step {
        Forgetting::Hide { principal, turns, now } => {
            hide(client, cipher, principal.as_str(), turns, *now).await.map(Ok)
        }
        Forgetting::Restore { principal, turns, hidden_since } => {
            restore(client, cipher, principal.as_str(), turns, *hidden_since).await
        }
        Forgetting::Erase { hidden_before } => erase(client, *hidden_before).await.map(Ok),
        Forgetting::RemovePrincipal(principal) => {
            remove_principal(client, principal.as_str()).await.map(Ok)
        }
    }
}

async fn hide(
    client: &Client,
    cipher: &Cipher,
    speaker: &str,
    turns: &Forget,
    now: Timestamp,
) -> Result<usize, Error> {
    lock(client).await?;
    lock_posting_lists(client).await?;
    let columns = "SELECT t.seq, t.project, t.session, s.length, t.terms FROM hob.memory_turns t
         JOIN hob.memory_standing s ON s.seq = t.seq WHERE t.speaker = $1 AND";
    let now = now.as_microsecond();
    let (rows, hidden_at) = match turns {
        Forget::Record(id) => {
            let key = cipher.hash_name(Name::Turn, id.as_str());
            let sql = format!("{columns} t.id_key = $2 ORDER BY t.seq");
            (ask(client, &sql, &[&speaker, &key]).await?, now)
        }
        Forget::Session(name) => {
            let hidden_at = hide_session(client, cipher, speaker, name, now).await?;
            let session = session_id(client, cipher, speaker, name).await?;
            let sql = format!("{columns} t.session = $2 ORDER BY t.seq");
            (ask(client, &sql, &[&speaker, &session]).await?, hidden_at)
        }
    };
    let mut sessions: BTreeMap<i64, [i64; 2]> = BTreeMap::new();
    let mut projects: BTreeMap<i64, ProjectSums> = BTreeMap::new();
    for row in &rows {
        let length = i64::from(row.get::<_, i32>(3));
        let session = sessions.entry(row.get(2)).or_default();
        *session = [session[0] - 1, session[1] - length];
        *projects.entry(row.get(1)).or_default() +=
            ProjectSums { turns: -1, length: -length, sessions: 0 };
    }
    for part in rows.chunks(MAX_REMOVED_TURNS) {
        let seqs: Vec<i64> = part.iter().map(|row| row.get(0)).collect();
        let turns: Vec<(i64, i64, Vec<u8>)> =
            part.iter().map(|row| (row.get(1), row.get(0), row.get(4))).collect();
        remove(client, &turns).await?;
        let gone: Vec<_> = turns.iter().map(|(project, seq, _)| (*project, *seq, None)).collect();
        sign_codes::change(client, &gone).await?;
        remove_turns(client, cipher, speaker, &seqs, hidden_at).await?;
    }
    subtract_from_sessions(client, &sessions, &mut projects).await?;
    add_sums(client, &projects).await?;
    let sql = "DELETE FROM hob.memory_projects WHERE id = ANY($1) AND turns <= 0 AND sessions <= 0";
    let ids: Vec<i64> = projects.keys().copied().collect();
    ask(client, sql, &[&ids]).await?;
    Ok(rows.len())
}

async fn remove_turns(
    client: &Client,
    cipher: &Cipher,
    speaker: &str,
    seqs: &Vec<i64>,
    hidden_at: i64,
) -> Result<(), Error> {
    let bodies = hidden_bodies(client, cipher, speaker, seqs).await?;
    let sql = "INSERT INTO hob.memory_forgotten (speaker, session, words, key, answer, nth, name,
             words_kept, key_kept, answer_kept, turn, hidden_at, body)
         SELECT t.speaker, s.name_key, t.words, t.key, t.answer, t.nth, s.name, t.words_kept,
             t.key_kept, t.answer_kept, t.id_key, $3, u.body
         FROM unnest($1::bigint[], $2::bytea[]) u (seq, body)
         JOIN hob.memory_turns t ON t.seq = u.seq
         JOIN hob.memory_sessions s ON s.id = t.session ORDER BY t.seq";
    ask(client, sql, &[seqs, &bodies, &hidden_at]).await?;
    // A turn that it superseded is valid again, unless a later correction supersedes both. Of a chain of corrections
    // several may be hidden.
    for column in ["superseded_by", "supersedes"] {
        let sql = format!(
            "UPDATE hob.memory_turns t SET {column} = h.{column} FROM hob.memory_turns h
             WHERE t.speaker = $1 AND h.speaker = $1 AND t.{column} = h.id AND h.seq = ANY($2)
                 AND t.seq <> ALL($2) RETURNING t.seq"
        );
        for _ in seqs {
            if ask(client, &sql, &[&speaker, seqs]).await?.is_empty() {
                break;
            }
        }
    }
    remove_model_vectors(client, seqs).await?;
    for table in ["memory_vectors", "memory_standing", "memory_turns"] {
        ask(client, &format!("DELETE FROM hob.{table} WHERE seq = ANY($1)"), &[seqs]).await?;
    }
    Ok(())
}

/// Marks a session as forgotten up to this time. Returns the time at which its turns count as hidden: that of the mark,
/// by which they are found again. Turns that were hidden with an earlier mark get the new one.
async fn hide_session(
    client: &Client,
    cipher: &Cipher,
    speaker: &str,
    name: &str,
    now: i64,
) -> Result<i64, Error> {
    let key = cipher.hash_name(Name::Session, name);
    let sql = "UPDATE hob.memory_forgotten SET hidden_at = greatest(hidden_at, $3)
         WHERE speaker = $1 AND session = $2 AND body IS NOT NULL AND hidden_at =
             (SELECT until FROM hob.memory_forgotten_sessions WHERE speaker = $1 AND session = $2)";
    ask(client, sql, &[&speaker, &key, &now]).await?;
    let sql = "INSERT INTO hob.memory_forgotten_sessions (speaker, session, until, name)
         VALUES ($1, $2, $3, $4) ON CONFLICT (speaker, session) DO UPDATE
         SET until = greatest(memory_forgotten_sessions.until, $3), name = $4 RETURNING until";
    let encrypted = cipher.encrypt_name(Name::Session, name);
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query_one(&statement, &[&speaker, &key, &now, &encrypted]).await?.get(0))
}

/// Returns what restores these turns, encrypted; `None` for a turn that cannot be restored.
async fn hidden_bodies(
    client: &Client,
    cipher: &Cipher,
    speaker: &str,
    seqs: &[i64],
) -> Result<Vec<Option<Vec<u8>>>, Error> {
    let sql = format!("SELECT {COLUMNS}, t.at FROM {TABLES} WHERE t.seq = ANY($1)");
    let rows = ask(client, &sql, &[&seqs]).await?;
    let body = |row: &Row| {
        let hidden = HiddenTurn::new(record(cipher, row).ok()?, row.get(14));
        let turn = cipher.hash_name(Name::Turn, hidden.id.as_str());
        Some(cipher.seal(Body::Hidden(speaker, &turn), &hidden.to_bytes()))
    };
    let bodies: BTreeMap<i64, Option<Vec<u8>>> =
        rows.iter().map(|row| (row.get(1), body(row))).collect();
    Ok(seqs.iter().map(|seq| bodies.get(seq).cloned().flatten()).collect())
}

/// Erases hidden turns. What is left recognises them when they come again, and cannot be read.
async fn erase(client: &Client, before: Timestamp) -> Result<usize, Error> {
    let sql = "UPDATE hob.memory_forgotten SET turn = NULL, hidden_at = NULL, body = NULL
         WHERE body IS NOT NULL AND hidden_at < $1";
    let statement = client.prepare_cached(sql).await?;
    Ok(client.execute(&statement, &[&before.as_microsecond()]).await? as usize)
}

/// Removes the models' vectors of turns.
pub(super) async fn remove_model_vectors(client: &Client, seqs: &Vec<i64>) -> Result<(), Error> {
    let sql = format!(
        "WITH gone AS (DELETE FROM {MODEL_TABLE} WHERE seq = ANY($1) RETURNING kind),
         sums AS (SELECT kind, count(*) AS fewer FROM gone GROUP BY kind)
         UPDATE hob.memory_kinds k SET embedded = k.embedded - s.fewer FROM sums s
         WHERE k.id = s.kind"
    );
    ask(client, &sql, &[seqs]).await.map(drop)
}

/// Subtracts turns and lengths from sessions. Sessions without turns are deleted, and their
/// projects have one less.
async fn subtract_from_sessions(
    client: &Client,
    sessions: &BTreeMap<i64, [i64; 2]>,
    projects: &mut BTreeMap<i64, ProjectSums>,
) -> Result<(), Error> {
    let ids: Vec<i64> = sessions.keys().copied().collect();
    let turns: Vec<i64> = sessions.values().map(|sum| sum[0]).collect();
    let lengths: Vec<i64> = sessions.values().map(|sum| sum[1]).collect();
    let sql = "UPDATE hob.memory_sessions s SET turns = s.turns + u.turns,
             length = s.length + u.length
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) u (id, turns, length)
         WHERE s.id = u.id";
    ask(client, sql, &[&ids, &turns, &lengths]).await?;
    let sql = "DELETE FROM hob.memory_sessions WHERE id = ANY($1) AND turns <= 0 RETURNING project";
    for row in ask(client, sql, &[&ids]).await? {
        projects.entry(row.get(0)).or_default().sessions -= 1;
    }
    Ok(())
}

/// Removes everything of a principal, including the names of forgotten turns: an app that gets the
/// name later is another app.
async fn remove_principal(client: &Client, speaker: &str) -> Result<usize, Error> {
    lock(client).await?;
    lock_posting_lists(client).await?;
    let sql = format!(
        "WITH gone AS (DELETE FROM {MODEL_TABLE} WHERE speaker = $1 RETURNING kind),
         sums AS (SELECT kind, count(*) AS fewer FROM gone GROUP BY kind)
         UPDATE hob.memory_kinds k SET embedded = k.embedded - s.fewer FROM sums s
         WHERE k.id = s.kind"
    );
    ask(client, &sql, &[&speaker]).await?;
    for table in ["memory_recent", "memory_runs", "memory_codes"] {
        let sql = format!(
            "DELETE FROM hob.{table} WHERE project IN
                 (SELECT id FROM hob.memory_projects WHERE speaker = $1)"
        );
        ask(client, &sql, &[&speaker]).await?;
    }
    let sql = "DELETE FROM hob.memory_vectors v USING hob.memory_turns t
         WHERE t.speaker = $1 AND v.seq = t.seq";
    ask(client, sql, &[&speaker]).await?;
    let mut count = 0;
    for table in [
        "memory_standing",
        "memory_sessions",
        "memory_projects",
        "memory_forgotten",
        "memory_forgotten_sessions",
        "memory_turns",
    ] {
        let sql = format!("DELETE FROM hob.{table} WHERE speaker = $1");
        count = client.execute(&client.prepare_cached(&sql).await?, &[&speaker]).await?;
    }
    Ok(count as usize)
}
