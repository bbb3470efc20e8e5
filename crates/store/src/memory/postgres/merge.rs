//! Merging postings into runs, many at once. A posting is moved in one transaction, so that whoever reads both in one
//! snapshot finds it once, however far a merge has come. There is no background task: who stores turns merges some.

use std::collections::BTreeMap;

use hob_index::merge_policy::{MergeBacklog, MergePolicy};
use hob_index::postings::{HEADER_SEQ, Posting, PostingBlock, TermHeader, decode_block};
use tokio_postgres::Error;

use super::postings::{Places, Runs, headers};
use super::rows::ask;
use super::sign_codes;
use crate::memory::block_limit::BLOCK_LIMIT;
use crate::postgres::connections::{Client, Values};

/// In this crate's own tests a merge is always due.
const POLICY: MergePolicy = MergePolicy {
    share: 16,
    min_turns: if cfg!(test) { 12 } else { 4096 },
    max_turns: 16_384,
    min_stored: if cfg!(test) { 2 } else { 16 },
};
/// A step moves at least about this many rows.
const MIN_STEP_ROWS: i64 = if cfg!(test) { 20 } else { 4000 };
/// A step moves this many rows for every turn that was stored before it: more than a turn makes, so that a merge ends while
/// turns come.
const ROWS_PER_TURN: i64 = 160;

/// Merges some, where it is time for it and nobody else is at it. `stored` turns have just been stored, and the newest
/// turn there is has this number.
pub(super) async fn step(client: &Client, stored: usize, newest: i64) -> Result<(), Error> {
    let sql = "SELECT merged, next, done_project, done_term, changed, coded, stamp
         FROM hob.memory_merge WHERE id = 1 FOR UPDATE SKIP LOCKED";
    let state = client.query_opt(&client.prepare_cached(sql).await?, &[]).await?;
    let Some(state) = state else { return Ok(()) };
    let (was_coded, stamp): (i64, i64) = (state.get(5), state.get::<_, i64>(6) + 1);
    let coded = sign_codes::pack(client, was_coded, newest, stamp).await?;
    if coded > was_coded {
        let sql = "UPDATE hob.memory_merge SET coded = $1, stamp = $2 WHERE id = 1";
        ask(client, sql, &[&coded, &stamp]).await?;
    }
    let (merged, mut next): (i64, i64) = (state.get(0), state.get(1));
    let mut done: (i64, i64) = (state.get(2), state.get(3));
    let mut changed: i64 = state.get(4);
    let waiting = newest - merged + changed;
    let backlog = MergeBacklog { newest, waiting, is_merging: done != (0, 0), stored };
    if !POLICY.is_due_for_batch(backlog) {
        return Ok(());
    }
    if !backlog.is_merging {
        (next, changed) = (newest, 0);
        done = (i64::MIN, i64::MIN);
    }
    let rows = MIN_STEP_ROWS.max(ROWS_PER_TURN * stored as i64);
    // A term of a project is merged whole.
    let sql = "SELECT project, term FROM hob.memory_recent WHERE (project, term) > ($1, $2)
         ORDER BY project, term OFFSET $3 LIMIT 1";
    let end = ask(client, sql, &[&done.0, &done.1, &rows]).await?;
    let end: Option<(i64, i64)> = end.first().map(|row| (row.get(0), row.get(1)));
    let to = end.unwrap_or((i64::MAX, i64::MAX));
    let sql = "DELETE FROM hob.memory_recent
         WHERE (project, term) > ($1, $2) AND (project, term) <= ($3, $4) AND first <= $5
         RETURNING project, term, first, run";
    let statement = client.prepare_cached(sql).await?;
    let rows = client.query(&statement, &[&done.0, &done.1, &to.0, &to.1, &next]).await?;
    let mut moved: BTreeMap<(i64, i64), Vec<Posting>> = BTreeMap::new();
    for row in &rows {
        let postings = moved.entry((row.get(0), row.get(1))).or_default();
        decode_block(row.get(2), row.get(3), |posting| postings.push(posting));
    }
    append(client, moved).await?;
    let (merged, next, done) = match end {
        Some(end) => (merged, next, end),
        None => (next, next, (0, 0)),
    };
    let sql =
        "UPDATE hob.memory_merge SET merged = $1, next = $2, done_project = $3, done_term = $4,
             changed = $5 WHERE id = 1";
    let values: Values<'_> = &[&merged, &next, &done.0, &done.1, &changed];
    client.execute(&client.prepare_cached(sql).await?, values).await?;
    Ok(())
}

/// Adds postings to the runs of their projects and terms.
async fn append(client: &Client, moved: BTreeMap<(i64, i64), Vec<Posting>>) -> Result<(), Error> {
    if moved.is_empty() {
        return Ok(());
    }
    let mut headers = headers(client, moved.keys()).await?;
    let mut last = last_runs(client, moved.keys()).await?;
    let mut runs = Runs::default();
    let mut gone = Places::default();
    for ((project, term), mut postings) in moved {
        postings.sort_unstable_by_key(|posting| posting.seq);
        let place = (project, term);
        let header = headers.remove(&place);
        let run = last.remove(&place);
        let mut old = run.as_ref().map(PostingBlock::decode).unwrap_or_default();
        let before = old.last().copied();
        let is_between = before.is_some_and(|last| last.seq >= postings[0].seq);
        let here = match &run {
            Some(block) if !is_between => {
                BLOCK_LIMIT.capacity_after(block.bytes.len()).min(postings.len())
            }
            _ => 0,
        };
        let is_one_run = match is_between {
            true => old.len() + postings.len() <= BLOCK_LIMIT.capacity(),
            false if run.is_some() => here == postings.len(),
            false => postings.len() <= BLOCK_LIMIT.capacity(),
        };
        match header {
            Some(header) => {
                let mut sum = header;
                sum += TermHeader::of(before.map(|last| last.session), &postings);
                runs.add(project, term, HEADER_SEQ, sum.encode());
            }
            // How common a term of one run is, is told by the run.
            None if is_one_run => {}
            None => {
                old.extend(&postings);
                old.sort_unstable_by_key(|posting| posting.seq);
                runs.add(project, term, HEADER_SEQ, TermHeader::of(None, &old).encode());
            }
        }
        if is_between {
            // A turn that has changed comes back to where it stood.
            put_between(client, place, &postings, &mut runs, &mut gone).await?;
            continue;
        }
        let (here, rest) = postings.split_at(here);
        if let (Some(mut block), Some(last), false) = (run, before, here.is_empty()) {
            block.append(Some(last), here);
            runs.add(project, term, block.first_seq, block.bytes);
        }
        runs.add_all(project, term, rest);
    }
    gone.delete(client, "hob.memory_runs").await?;
    runs.put(client).await
}

/// The last run of each term of each project.
async fn last_runs(
    client: &Client,
    of: impl Iterator<Item = &(i64, i64)>,
) -> Result<BTreeMap<(i64, i64), PostingBlock>, Error> {
    let (projects, terms): (Vec<i64>, Vec<i64>) = of.copied().unzip();
    let sql = "SELECT u.project, u.term, r.first, r.run
         FROM unnest($1::bigint[], $2::bigint[]) u (project, term),
         LATERAL (SELECT first, run FROM hob.memory_runs r WHERE r.project = u.project
             AND r.term = u.term AND r.first > 0 ORDER BY r.first DESC LIMIT 1) r";
    let rows = client.query(&client.prepare_cached(sql).await?, &[&projects, &terms]).await?;
    let block = |row: &tokio_postgres::Row| {
        let block = PostingBlock { first_seq: row.get(2), bytes: row.get(3) };
        ((row.get(0), row.get(1)), block)
    };
    Ok(rows.iter().map(block).collect())
}

/// Puts postings into the runs that they belong to, between others.
async fn put_between(
    client: &Client,
    (project, term): (i64, i64),
    postings: &[Posting],
    runs: &mut Runs,
    gone: &mut Places,
) -> Result<(), Error> {
    let sql = "SELECT first FROM hob.memory_runs WHERE project = $1 AND term = $2 AND first > 0
         ORDER BY first";
    let rows = client.query(&client.prepare_cached(sql).await?, &[&project, &term]).await?;
    let firsts: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    let mut parts: BTreeMap<i64, Vec<Posting>> = BTreeMap::new();
    for posting in postings {
        let place = firsts.partition_point(|first| *first <= posting.seq).saturating_sub(1);
        let first = firsts.get(place).copied().unwrap_or(posting.seq);
        parts.entry(first).or_default().push(*posting);
    }
    let touched: Vec<i64> = parts.keys().copied().collect();
    let sql = "SELECT first, run FROM hob.memory_runs
         WHERE project = $1 AND term = $2 AND first = ANY($3)";
    let statement = client.prepare_cached(sql).await?;
    for row in client.query(&statement, &[&project, &term, &touched]).await? {
        let first: i64 = row.get(0);
        gone.add(project, term, first);
        let part = parts.entry(first).or_default();
        decode_block(first, row.get(1), |posting| part.push(posting));
    }
    for part in parts.values_mut() {
        part.sort_unstable_by_key(|posting| posting.seq);
        runs.add_all(project, term, part);
    }
    Ok(())
}
