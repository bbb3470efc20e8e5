//! Replacing the texts of turns after a rescan with newer masking rules.

use std::collections::BTreeMap;

use hob_domain::memory::Remask;
use hob_index::terms;
use tokio_postgres::Error;

use super::batch::{ProjectSums, lock};
use super::cipher::{Bits, Body, Cipher};
use super::forget::remove_model_vectors;
use super::postings::{RecentPostings, TurnNumbers, lock_posting_lists, remove};
use super::rows::{Opened, ask, body};
use super::sign_codes;
use super::write_turns::add_sums;
use crate::postgres::connections::{Client, Values};

/// Replaces texts, terms and vectors. Turns that were forgotten meanwhile stay forgotten. Returns
/// the number of the newest turn.
pub(super) async fn remask(
    client: &Client,
    cipher: &Cipher,
    changes: &[Remask],
) -> Result<i64, Error> {
    let newest = lock(client).await?.seq;
    lock_posting_lists(client).await?;
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
    let mut sums: BTreeMap<i64, ProjectSums> = BTreeMap::new();
    let mut recent = RecentPostings::default();
    let mut changed = Vec::new();
    for row in &rows {
        let (seq, project, session): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let speaker: &str = row.get(3);
        let change = changes[&seq];
        let counts = terms::frequencies(&change.terms);
        let length = terms::length(&counts) as i32;
        let longer = i64::from(length) - i64::from(row.get::<_, i32>(4));
        sums.entry(project).or_default().length += longer;
        // A body that does not decrypt any more is replaced all the same.
        let opened = Opened::new(cipher, speaker, seq, row.get(6));
        let worktree = opened.map(|opened| opened.worktree).unwrap_or_default();
        let plain = body(&worktree, change.cue.as_deref(), &change.text);
        let sealed_body = cipher.seal(Body::Turn(speaker, seq), &plain);
        let chars = change.text.chars().count() as i32;
        let rules = change.rules as i32;
        let terms = recent.add(cipher, TurnNumbers { seq, project, session }, &counts);
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
