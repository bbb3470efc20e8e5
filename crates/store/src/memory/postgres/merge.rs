//! Merging recent postings into the posting lists, many at once.
//!
//! A posting moves from `memory_recent` to `memory_runs` in one transaction, so that a query, which
//! reads both in one snapshot, finds it once however far a merge has come. There is no background
//! task: a process that has stored turns takes a step of the merge, unless another process is
//! taking one. How far the merge has come is in `memory_merge`.

use std::collections::BTreeMap;

use hob_index::merge_policy::{MergeBacklog, MergePolicy};
use hob_index::postings::{HEADER_SEQ, Posting, PostingBlock, TermHeader, decode_block};
use tokio_postgres::Error;

use super::postings::{BlockKeys, BlockRows, headers};
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
/// A step moves this many rows for every turn that was stored before it. A turn makes fewer, so
/// that a merge ends while turns come.
const ROWS_PER_TURN: i64 = 160;

/// A posting list: a project and a hashed term.
type ListKey = (i64, i64);

/// The progress of a merge.
struct MergeState {
    /// All postings of the turns up to this one are merged.
    merged: i64,
    /// The turn up to which the merge in progress goes.
    next: i64,
    /// The last list that is merged. Lists are merged in the order of their keys; `(0, 0)` if no
    /// merge is in progress.
    done: ListKey,
    /// The number of merged turns that have changed since and wait again.
    changed: i64,
}

const NOT_MERGING: ListKey = (0, 0);
const BEFORE_ALL: ListKey = (i64::MIN, i64::MIN);
const AFTER_ALL: ListKey = (i64::MAX, i64::MAX);

/// Takes a step, if a merge is due and no other process is taking one. `stored` turns have just
/// been stored, and `newest` is the newest turn.
pub(super) async fn step(client: &Client, stored: usize, newest: i64) -> Result<(), Error> {
    let sql = "SELECT merged, next, done_project, done_term, changed, coded, stamp
         FROM hob.memory_merge WHERE id = 1 FOR UPDATE SKIP LOCKED";
    let row = client.query_opt(&client.prepare_cached(sql).await?, &[]).await?;
    let Some(row) = row else { return Ok(()) };
    pack_codes(client, row.get(5), row.get(6), newest).await?;
    let mut state = MergeState {
        merged: row.get(0),
        next: row.get(1),
        done: (row.get(2), row.get(3)),
        changed: row.get(4),
    };
    let waiting = newest - state.merged + state.changed;
    let is_merging = state.done != NOT_MERGING;
    if !POLICY.is_due_for_batch(MergeBacklog { newest, waiting, is_merging, stored }) {
        return Ok(());
    }
    if !is_merging {
        state = MergeState { next: newest, done: BEFORE_ALL, changed: 0, ..state };
    }
    let rows = MIN_STEP_ROWS.max(ROWS_PER_TURN * stored as i64);
    let end = last_list(client, state.done, rows).await?;
    let recent = take_recent(client, state.done, end.unwrap_or(AFTER_ALL), state.next).await?;
    append(client, recent).await?;
    match end {
        Some(end) => state.done = end,
        None => (state.merged, state.done) = (state.next, NOT_MERGING),
    }
    state.write(client).await
}

/// Packs waiting sign codes, if there are enough of them.
async fn pack_codes(client: &Client, coded: i64, stamp: i64, newest: i64) -> Result<(), Error> {
    let stamp = stamp + 1;
    let packed = sign_codes::pack(client, coded, newest, stamp).await?;
    if packed > coded {
        let sql = "UPDATE hob.memory_merge SET coded = $1, stamp = $2 WHERE id = 1";
        ask(client, sql, &[&packed, &stamp]).await?;
    }
    Ok(())
}

/// Returns the last list of a step of about this many rows, or `None` if it takes all that are
/// left. A list is merged as a whole.
async fn last_list(client: &Client, after: ListKey, rows: i64) -> Result<Option<ListKey>, Error> {
    let sql = "SELECT project, term FROM hob.memory_recent WHERE (project, term) > ($1, $2)
         ORDER BY project, term OFFSET $3 LIMIT 1";
    let end = ask(client, sql, &[&after.0, &after.1, &rows]).await?;
    Ok(end.first().map(|row| (row.get(0), row.get(1))))
}

/// Deletes the recent postings of lists after one and up to another, and returns them.
async fn take_recent(
    client: &Client,
    after: ListKey,
    to: ListKey,
    newest: i64,
) -> Result<BTreeMap<ListKey, Vec<Posting>>, Error> {
    let sql = "DELETE FROM hob.memory_recent
         WHERE (project, term) > ($1, $2) AND (project, term) <= ($3, $4) AND first <= $5
         RETURNING project, term, first, run";
    let rows = ask(client, sql, &[&after.0, &after.1, &to.0, &to.1, &newest]).await?;
    let mut recent: BTreeMap<ListKey, Vec<Posting>> = BTreeMap::new();
    for row in &rows {
        let postings = recent.entry((row.get(0), row.get(1))).or_default();
        decode_block(row.get(2), row.get(3), |posting| postings.push(posting));
    }
    Ok(recent)
}

impl MergeState {
    async fn write(&self, client: &Client) -> Result<(), Error> {
        let sql =
            "UPDATE hob.memory_merge SET merged = $1, next = $2, done_project = $3, done_term = $4,
                 changed = $5 WHERE id = 1";
        let values: Values<'_> =
            &[&self.merged, &self.next, &self.done.0, &self.done.1, &self.changed];
        ask(client, sql, values).await.map(drop)
    }
}

/// Appends postings to their lists.
async fn append(client: &Client, recent: BTreeMap<ListKey, Vec<Posting>>) -> Result<(), Error> {
    if recent.is_empty() {
        return Ok(());
    }
    let mut headers = headers(client, recent.keys()).await?;
    let mut last_blocks = last_blocks(client, recent.keys()).await?;
    let mut written = BlockRows::default();
    let mut deleted = BlockKeys::default();
    for (list, mut postings) in recent {
        let (project, term) = list;
        postings.sort_unstable_by_key(|posting| posting.seq);
        let last_block = last_blocks.remove(&list);
        let mut old = last_block.as_ref().map(PostingBlock::decode).unwrap_or_default();
        let last = old.last().copied();
        // A turn that has changed comes back to where it was.
        let is_between = last.is_some_and(|last| last.seq >= postings[0].seq);
        let fitting = match &last_block {
            Some(block) if !is_between => {
                BLOCK_LIMIT.capacity_after(block.bytes.len()).min(postings.len())
            }
            _ => 0,
        };
        let is_one_block = match is_between {
            true => old.len() + postings.len() <= BLOCK_LIMIT.capacity(),
            false if last_block.is_some() => fitting == postings.len(),
            false => postings.len() <= BLOCK_LIMIT.capacity(),
        };
        match headers.remove(&list) {
            Some(mut header) => {
                header += TermHeader::of(last.map(|last| last.session), &postings);
                written.add(project, term, HEADER_SEQ, header.encode());
            }
            None if is_one_block => {}
            None => {
                old.extend(&postings);
                old.sort_unstable_by_key(|posting| posting.seq);
                written.add(project, term, HEADER_SEQ, TermHeader::of(None, &old).encode());
            }
        }
        if is_between {
            insert_between(client, list, &postings, &mut written, &mut deleted).await?;
            continue;
        }
        let (fitting, rest) = postings.split_at(fitting);
        if let (Some(mut block), Some(last), false) = (last_block, last, fitting.is_empty()) {
            block.append(Some(last), fitting);
            written.add(project, term, block.first_seq, block.bytes);
        }
        written.add_postings(project, term, rest);
    }
    deleted.delete(client, "hob.memory_runs").await?;
    written.put(client).await
}

/// Reads the last block of each list.
async fn last_blocks(
    client: &Client,
    lists: impl Iterator<Item = &ListKey>,
) -> Result<BTreeMap<ListKey, PostingBlock>, Error> {
    let (projects, terms): (Vec<i64>, Vec<i64>) = lists.copied().unzip();
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

/// Inserts postings into the blocks that they belong to, between others.
async fn insert_between(
    client: &Client,
    (project, term): ListKey,
    postings: &[Posting],
    written: &mut BlockRows,
    deleted: &mut BlockKeys,
) -> Result<(), Error> {
    let sql = "SELECT first FROM hob.memory_runs WHERE project = $1 AND term = $2 AND first > 0
         ORDER BY first";
    let rows = ask(client, sql, &[&project, &term]).await?;
    let firsts: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    let mut blocks: BTreeMap<i64, Vec<Posting>> = BTreeMap::new();
    for posting in postings {
        let place = firsts.partition_point(|first| *first <= posting.seq).saturating_sub(1);
        let first = firsts.get(place).copied().unwrap_or(posting.seq);
        blocks.entry(first).or_default().push(*posting);
    }
    let touched: Vec<i64> = blocks.keys().copied().collect();
    let sql = "SELECT first, run FROM hob.memory_runs
         WHERE project = $1 AND term = $2 AND first = ANY($3)";
    for row in ask(client, sql, &[&project, &term, &touched]).await? {
        let first: i64 = row.get(0);
        deleted.add(project, term, first);
        let block = blocks.entry(first).or_default();
        decode_block(first, row.get(1), |posting| block.push(posting));
    }
    for block in blocks.values_mut() {
        block.sort_unstable_by_key(|posting| posting.seq);
        written.add_postings(project, term, block);
    }
    Ok(())
}
