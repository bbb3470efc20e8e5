//! Forgetting, for good and not to be stored again; and changing what a turn says.

use std::collections::BTreeMap;

use hob_domain::Timestamp;
use hob_domain::memory::{Forget, Remask};
use hob_index::terms;
use tokio_postgres::Error;

use super::cipher::{Bits, Body, Cipher, Name};
use super::postings::{Recent, lock_runs, remove};
use super::rows::{Opened, ask, body, session_id};
use super::sign_codes;
use super::store_turns::lock;
use super::write_turns::add_sums;
use crate::postgres::connections::{Client, Values};

/// So many turns are taken out of the index in one go.
const PART: usize = 500;
const MODEL_TABLE: &str = "hob.memory_model_vectors";

/// Forgets a turn or a session. Returns how many turns there were.
pub(super) async fn forget(
    client: &Client,
    cipher: &Cipher,
    speaker: &str,
    what: &Forget,
    now: Timestamp,
) -> Result<usize, Error> {
    lock(client).await?;
    lock_runs(client).await?;
    let columns = "SELECT t.seq, t.project, t.session, s.length, t.terms FROM hob.memory_turns t
         JOIN hob.memory_standing s ON s.seq = t.seq WHERE t.speaker = $1 AND";
    let rows = match what {
        Forget::Record(id) => {
            let key = cipher.name_key(Name::Turn, id.as_str());
            ask(client, &format!("{columns} t.id_key = $2"), &[&speaker, &key]).await?
        }
        Forget::Session(name) => {
            let key = cipher.name_key(Name::Session, name);
            let kept = cipher.name(Name::Session, name);
            let sql = "INSERT INTO hob.memory_forgotten_sessions (speaker, session, until, name)
                 VALUES ($1, $2, $3, $4) ON CONFLICT (speaker, session) DO UPDATE
                 SET until = greatest(memory_forgotten_sessions.until, $3), name = $4";
            ask(client, sql, &[&speaker, &key, &now.as_microsecond(), &kept]).await?;
            let session = session_id(client, cipher, speaker, name).await?;
            ask(client, &format!("{columns} t.session = $2"), &[&speaker, &session]).await?
        }
    };
    let mut sessions: BTreeMap<i64, [i64; 2]> = BTreeMap::new();
    let mut projects: BTreeMap<i64, [i64; 3]> = BTreeMap::new();
    for row in &rows {
        let length = i64::from(row.get::<_, i32>(3));
        let session = sessions.entry(row.get(2)).or_default();
        *session = [session[0] - 1, session[1] - length];
        let project = projects.entry(row.get(1)).or_default();
        *project = [project[0] - 1, project[1] - length, 0];
    }
    for part in rows.chunks(PART) {
        let seqs: Vec<i64> = part.iter().map(|row| row.get(0)).collect();
        let turns: Vec<(i64, i64, Vec<u8>)> =
            part.iter().map(|row| (row.get(1), row.get(0), row.get(4))).collect();
        remove(client, &turns).await?;
        let gone: Vec<_> = turns.iter().map(|(project, seq, _)| (*project, *seq, None)).collect();
        sign_codes::change(client, &gone).await?;
        remove_turns(client, speaker, &seqs).await?;
    }
    leave_sessions(client, &sessions, &mut projects).await?;
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
    // What it corrected stands again; what corrected it stands alone.
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

/// Removes what a model has made of turns.
async fn remove_model_vectors(client: &Client, seqs: &Vec<i64>) -> Result<(), Error> {
    let sql = format!(
        "WITH gone AS (DELETE FROM {MODEL_TABLE} WHERE seq = ANY($1) RETURNING kind),
         sums AS (SELECT kind, count(*) AS fewer FROM gone GROUP BY kind)
         UPDATE hob.memory_kinds k SET embedded = k.embedded - s.fewer FROM sums s
         WHERE k.id = s.kind"
    );
    ask(client, &sql, &[seqs]).await.map(drop)
}

/// Takes turns and terms from sessions; those that have none left go, and their projects have one less.
async fn leave_sessions(
    client: &Client,
    sessions: &BTreeMap<i64, [i64; 2]>,
    projects: &mut BTreeMap<i64, [i64; 3]>,
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
        projects.entry(row.get(0)).or_default()[2] -= 1;
    }
    Ok(())
}

/// Removes everything of a speaker, what was forgotten included: whoever has the name next is another one.
pub(super) async fn forget_principal(client: &Client, speaker: &str) -> Result<usize, Error> {
    lock(client).await?;
    lock_runs(client).await?;
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

/// Replaces what a rescan has made anew. Turns that were forgotten meanwhile stay so.
pub(super) async fn remask(
    client: &Client,
    cipher: &Cipher,
    changes: &[Remask],
) -> Result<i64, Error> {
    let newest = lock(client).await?.seq;
    lock_runs(client).await?;
    let changes: BTreeMap<i64, &Remask> =
        changes.iter().map(|change| (change.seq, change)).collect();
    let seqs: Vec<i64> = changes.keys().copied().collect();
    let sql = "SELECT t.seq, t.project, t.session, t.speaker, s.length, t.terms, t.body
         FROM hob.memory_turns t JOIN hob.memory_standing s ON s.seq = t.seq
         WHERE t.seq = ANY($1) ORDER BY t.seq";
    let rows = ask(client, sql, &[&seqs]).await?;
    let seqs: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    let old: Vec<(i64, i64, Vec<u8>)> =
        rows.iter().map(|row| (row.get(1), row.get(0), row.get(5))).collect();
    remove(client, &old).await?;
    remove_model_vectors(client, &seqs).await?;
    let mut sums: BTreeMap<i64, [i64; 3]> = BTreeMap::new();
    let mut recent = Recent::default();
    let mut changed = Vec::new();
    for row in &rows {
        let (seq, project, session): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let speaker: &str = row.get(3);
        let change = changes[&seq];
        let counts = terms::frequencies(&change.terms);
        let length = terms::length(&counts) as i32;
        let longer = i64::from(length) - i64::from(row.get::<_, i32>(4));
        sums.entry(project).or_default()[1] += longer;
        // Where a body does not open any more, what it said is replaced all the same.
        let opened = Opened::new(cipher, speaker, seq, row.get(6));
        let worktree = opened.map(|opened| opened.worktree).unwrap_or_default();
        let plain = body(&worktree, change.cue.as_deref(), &change.text);
        let sealed_body = cipher.seal(Body::Turn(speaker, seq), &plain);
        let chars = change.text.chars().count() as i32;
        let rules = change.rules as i32;
        let terms = recent.add(cipher, project, session, seq, &counts);
        let values: Values<'_> = &[&seq, &sealed_body, &change.sealed, &chars, &rules, &terms];
        let sql = "UPDATE hob.memory_turns SET body = $2, sealed = $3, chars = $4, rules = $5,
             terms = $6 WHERE seq = $1";
        ask(client, sql, values).await?;
        let sql = "UPDATE hob.memory_standing SET length = $2 WHERE seq = $1";
        ask(client, sql, &[&seq, &length]).await?;
        let sql = "UPDATE hob.memory_sessions SET length = length + $2 WHERE id = $1";
        ask(client, sql, &[&session, &longer]).await?;
        let code: Option<Bits> = cipher.table_code(&change.vector);
        let vector = cipher.seal_vector(Body::Vector(speaker, seq), &change.vector);
        let sql = "UPDATE hob.memory_vectors SET code = $2::varbit::bit(256), vector = $3
             WHERE seq = $1";
        ask(client, sql, &[&seq, &code, &vector]).await?;
        changed.push((project, seq, code));
    }
    recent.write(client).await?;
    sign_codes::change(client, &changed).await?;
    add_sums(client, &sums).await?;
    let sql = "UPDATE hob.memory_merge SET changed = changed + $1 WHERE id = 1";
    ask(client, sql, &[&(rows.len() as i64)]).await?;
    Ok(newest)
}
