//! Forgetting turns for good: they are not stored again.

use std::collections::BTreeMap;

use hob_domain::Timestamp;
use hob_domain::memory::Forget;
use tokio_postgres::Error;

use super::batch::{ProjectSums, lock};
use super::cipher::{Cipher, Name};
use super::postings::{lock_posting_lists, remove};
use super::rows::{ask, session_id};
use super::sign_codes;
use super::write_turns::add_sums;
use crate::postgres::connections::Client;

/// This many turns are removed from the index with one set of statements.
const MAX_REMOVED_TURNS: usize = 500;
const MODEL_TABLE: &str = "hob.memory_model_vectors";

/// Forgets a turn, a session or everything. Returns how many turns were removed.
pub(super) async fn forget(
    client: &Client,
    cipher: &Cipher,
    speaker: &str,
    what: &Forget,
    now: Timestamp,
) -> Result<usize, Error> {
    lock(client).await?;
    lock_posting_lists(client).await?;
    let columns = "SELECT t.seq, t.project, t.session, s.length, t.terms FROM hob.memory_turns t
         JOIN hob.memory_standing s ON s.seq = t.seq WHERE t.speaker = $1 AND";
    let rows = match what {
        Forget::Everything => return forget_everything(client, speaker).await,
        Forget::Record(id) => {
            let key = cipher.hash_name(Name::Turn, id.as_str());
            ask(client, &format!("{columns} t.id_key = $2"), &[&speaker, &key]).await?
        }
        Forget::Session(name) => {
            let key = cipher.hash_name(Name::Session, name);
            let encrypted = cipher.encrypt_name(Name::Session, name);
            let sql = "INSERT INTO hob.memory_forgotten_sessions (speaker, session, until, name)
                 VALUES ($1, $2, $3, $4) ON CONFLICT (speaker, session) DO UPDATE
                 SET until = greatest(memory_forgotten_sessions.until, $3), name = $4";
            ask(client, sql, &[&speaker, &key, &now.as_microsecond(), &encrypted]).await?;
            let session = session_id(client, cipher, speaker, name).await?;
            ask(client, &format!("{columns} t.session = $2"), &[&speaker, &session]).await?
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
        remove_turns(client, speaker, &seqs).await?;
    }
    subtract_from_sessions(client, &sessions, &mut projects).await?;
    add_sums(client, &projects).await?;
    let sql = "DELETE FROM hob.memory_projects WHERE id = ANY($1) AND turns <= 0 AND sessions <= 0";
    let ids: Vec<i64> = projects.keys().copied().collect();
    ask(client, sql, &[&ids]).await?;
    Ok(rows.len())
}

async fn remove_turns(client: &Client, speaker: &str, seqs: &Vec<i64>) -> Result<(), Error> {
    let sql = "INSERT INTO hob.memory_forgotten (speaker, session, words, key, answer, nth, name,
             words_kept, key_kept, answer_kept)
         SELECT t.speaker, s.name_key, t.words, t.key, t.answer, t.nth, s.name, t.words_kept,
             t.key_kept, t.answer_kept
         FROM hob.memory_turns t JOIN hob.memory_sessions s ON s.id = t.session
         WHERE t.seq = ANY($1) ORDER BY t.seq";
    ask(client, sql, &[seqs]).await?;
    // A turn that it superseded is valid again; a turn that superseded it no longer supersedes any.
    for column in ["superseded_by", "supersedes"] {
        let sql = format!(
            "UPDATE hob.memory_turns SET {column} = NULL WHERE speaker = $1 AND {column} IN
                 (SELECT id FROM hob.memory_turns WHERE seq = ANY($2))"
        );
        ask(client, &sql, &[&speaker, seqs]).await?;
    }
    remove_model_vectors(client, seqs).await?;
    for table in ["memory_vectors", "memory_standing", "memory_turns"] {
        ask(client, &format!("DELETE FROM hob.{table} WHERE seq = ANY($1)"), &[seqs]).await?;
    }
    Ok(())
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

/// Removes everything of a principal, with the memory locked, including the names of forgotten
/// turns: an app that gets the name later is another app.
async fn forget_everything(client: &Client, speaker: &str) -> Result<usize, Error> {
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
