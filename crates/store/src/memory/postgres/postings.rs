//! Posting lists in PostgreSQL.
//!
//! Every batch of turns writes its postings as blocks into `memory_recent`. Later a merge moves
//! them into the posting lists in `memory_runs` (see the module `merge`). A query reads both
//! tables. Terms are keyed hashes (see [`Cipher::term`]). A list of one block has no header: the
//! block itself says how long the list is.

use std::collections::{BTreeMap, BTreeSet};

use hob_domain::memory::NewTurn;
use hob_index::postings::{HEADER_SEQ, Posting, PostingBlock, TermHeader, decode_block};
use hob_index::terms;
use tokio_postgres::Error;

use super::cipher::Cipher;
use crate::memory::block_limit::BLOCK_LIMIT;
use crate::postgres::connections::{Client, Values};

/// Returns how often each term of a turn occurs.
pub(super) fn counts(turn: &NewTurn) -> Vec<(&str, u32)> {
    terms::frequencies(&turn.terms)
}

/// Reads the hashed terms of a turn, as [`RecentPostings::add`] returns them.
fn decode_terms(bytes: &[u8]) -> impl Iterator<Item = i64> {
    bytes.chunks_exact(8).map(|code| i64::from_be_bytes(code.try_into().unwrap_or_default()))
}

/// The postings of a batch of turns, by project and term.
#[derive(Default)]
pub(super) struct RecentPostings {
    postings: BTreeMap<(i64, i64), Vec<Posting>>,
}

/// The numbers of a turn, its project and its session.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnNumbers {
    pub(super) seq: i64,
    pub(super) project: i64,
    pub(super) session: i64,
}

impl RecentPostings {
    /// Adds a turn. Turns come in order. Returns the turn's hashed terms, which are stored with it
    /// for its removal.
    pub(super) fn add(
        &mut self,
        cipher: &Cipher,
        turn: TurnNumbers,
        counts: &[(&str, u32)],
    ) -> Vec<u8> {
        let length = terms::length(counts);
        // Two terms with the same hash, should there ever be any, are one term.
        let mut all: BTreeMap<i64, u32> = BTreeMap::new();
        for (term, frequency) in counts {
            *all.entry(cipher.term(term)).or_default() += frequency;
        }
        for (term, frequency) in &all {
            let posting = Posting::new(turn.seq, turn.session, *frequency, length);
            self.postings.entry((turn.project, *term)).or_default().push(posting);
        }
        all.keys().flat_map(|term| term.to_be_bytes()).collect()
    }

    pub(super) async fn write(&self, client: &Client) -> Result<(), Error> {
        let mut blocks = BlockRows::default();
        for ((project, term), postings) in &self.postings {
            blocks.add_postings(*project, *term, postings);
        }
        blocks.insert(client, "hob.memory_recent").await
    }
}

/// Locks the posting lists. Every transaction that changes them does this first.
pub(super) async fn lock_posting_lists(client: &Client) -> Result<(), Error> {
    let sql = "SELECT 1 FROM hob.memory_merge WHERE id = 1 FOR UPDATE";
    client.query_one(&client.prepare_cached(sql).await?, &[]).await.map(drop)
}

/// Removes turns from the index, given by their projects, their numbers and their hashed terms. The
/// caller has locked the posting lists.
pub(super) async fn remove(client: &Client, turns: &[(i64, i64, Vec<u8>)]) -> Result<(), Error> {
    let (mut projects, mut terms, mut seqs) = (Vec::new(), Vec::new(), Vec::new());
    for (project, seq, hashed) in turns {
        for term in decode_terms(hashed) {
            projects.push(*project);
            terms.push(term);
            seqs.push(*seq);
        }
    }
    remove_recent(client, turns).await?;
    let sql = "SELECT u.project, u.term, u.seq, r.first, r.run
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) u (project, term, seq),
         LATERAL (SELECT first, run FROM hob.memory_runs r WHERE r.project = u.project
             AND r.term = u.term AND r.first > 0 AND r.first <= u.seq ORDER BY r.first DESC LIMIT 1) r";
    let found =
        client.query(&client.prepare_cached(sql).await?, &[&projects, &terms, &seqs]).await?;
    let mut blocks: BTreeMap<(i64, i64, i64), (Vec<Posting>, usize)> = BTreeMap::new();
    for row in &found {
        let (key, seq) = ((row.get(0), row.get(1), row.get(3)), row.get::<_, i64>(2));
        let (postings, gone) = blocks.entry(key).or_insert_with(|| {
            let mut postings = Vec::new();
            decode_block(row.get(3), row.get(4), |posting| postings.push(posting));
            (postings, 0)
        });
        let before = postings.len();
        postings.retain(|posting| posting.seq != seq);
        *gone += before - postings.len();
    }
    blocks.retain(|_, (_, gone)| *gone > 0);
    if blocks.is_empty() {
        return Ok(());
    }
    let mut fewer: BTreeMap<(i64, i64), u64> = BTreeMap::new();
    let mut written = BlockRows::default();
    let mut empty = BlockKeys::default();
    for ((project, term, first), (postings, gone)) in &blocks {
        *fewer.entry((*project, *term)).or_default() += *gone as u64;
        if postings.is_empty() {
            empty.add(*project, *term, *first);
            continue;
        }
        let block = PostingBlock::encode_from(*first, postings);
        written.add(*project, *term, *first, block.bytes);
    }
    for ((project, term), mut header) in headers(client, fewer.keys()).await? {
        header.turns = header.turns.saturating_sub(fewer[&(project, term)]);
        match header.turns {
            0 => empty.add(project, term, HEADER_SEQ),
            _ => written.add(project, term, HEADER_SEQ, header.encode()),
        }
    }
    written.replace(client).await?;
    empty.delete(client, "hob.memory_runs").await
}

/// Removes the postings of turns that are not merged yet. Here the blocks of a list may overlap,
/// since a turn that has changed comes back in a block of its own.
async fn remove_recent(client: &Client, turns: &[(i64, i64, Vec<u8>)]) -> Result<(), Error> {
    let mut gone: BTreeMap<(i64, i64), BTreeSet<i64>> = BTreeMap::new();
    for (project, seq, hashed) in turns {
        for term in decode_terms(hashed) {
            gone.entry((*project, term)).or_default().insert(*seq);
        }
    }
    let (projects, terms): (Vec<i64>, Vec<i64>) = gone.keys().copied().unzip();
    let newest: Vec<i64> = gone.values().map(|seqs| seqs.last().copied().unwrap_or(0)).collect();
    let sql = "SELECT r.project, r.term, r.first, r.run
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) u (project, term, newest)
         JOIN hob.memory_recent r ON r.project = u.project AND r.term = u.term
             AND r.first <= u.newest";
    let statement = client.prepare_cached(sql).await?;
    let (mut old, mut new) = (BlockKeys::default(), BlockRows::default());
    for row in client.query(&statement, &[&projects, &terms, &newest]).await? {
        let (project, term, first): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let seqs = &gone[&(project, term)];
        let (mut left, mut is_changed) = (Vec::new(), false);
        decode_block(first, row.get(3), |posting| match seqs.contains(&posting.seq) {
            true => is_changed = true,
            false => left.push(posting),
        });
        if is_changed {
            old.add(project, term, first);
            // The rest gets a key of its own: the turn that the block began with may come back
            // alone.
            new.add_postings(project, term, &left);
        }
    }
    old.delete(client, "hob.memory_recent").await?;
    new.insert(client, "hob.memory_recent").await
}

/// Reads the headers of posting lists, by project and term.
pub(super) async fn headers(
    client: &Client,
    of: impl Iterator<Item = &(i64, i64)>,
) -> Result<BTreeMap<(i64, i64), TermHeader>, Error> {
    let (projects, terms): (Vec<i64>, Vec<i64>) = of.copied().unzip();
    let sql = "SELECT r.project, r.term, r.run
         FROM unnest($1::bigint[], $2::bigint[]) u (project, term)
         JOIN hob.memory_runs r ON r.project = u.project AND r.term = u.term AND r.first = 0";
    let rows = client.query(&client.prepare_cached(sql).await?, &[&projects, &terms]).await?;
    let header = |row: &tokio_postgres::Row| {
        ((row.get(0), row.get(1)), TermHeader::decode(row.get::<_, &[u8]>(2)))
    };
    Ok(rows.iter().map(header).collect())
}

/// Blocks and headers to be written.
#[derive(Default)]
pub(super) struct BlockRows {
    keys: BlockKeys,
    blocks: Vec<Vec<u8>>,
}

impl BlockRows {
    pub(super) fn add(&mut self, project: i64, term: i64, first_seq: i64, bytes: Vec<u8>) {
        self.keys.add(project, term, first_seq);
        self.blocks.push(bytes);
    }

    /// Adds postings, in as many blocks as they need.
    pub(super) fn add_postings(&mut self, project: i64, term: i64, postings: &[Posting]) {
        for block in BLOCK_LIMIT.blocks(postings) {
            self.add(project, term, block.first_seq, block.bytes);
        }
    }

    /// Inserts rows that do not exist yet.
    async fn insert(&self, client: &Client, table: &str) -> Result<(), Error> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        self.write(client, table, "").await
    }

    /// Inserts the rows. They belong to the principals of their projects.
    async fn write(&self, client: &Client, table: &str, on_conflict: &str) -> Result<(), Error> {
        let sql = format!(
            "INSERT INTO {table} (project, term, first, run, speaker)
             SELECT u.project, u.term, u.first, u.run, p.speaker
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[])
                 u (project, term, first, run)
             JOIN hob.memory_projects p ON p.id = u.project {on_conflict}"
        );
        let BlockKeys { projects, terms, firsts } = &self.keys;
        let values: Values<'_> = &[projects, terms, firsts, &self.blocks];
        client.execute(&client.prepare_cached(&sql).await?, values).await?;
        Ok(())
    }

    /// Updates rows that exist.
    async fn replace(&self, client: &Client) -> Result<(), Error> {
        let sql = "UPDATE hob.memory_runs r SET run = u.run
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[])
                 u (project, term, first, run)
             WHERE r.project = u.project AND r.term = u.term AND r.first = u.first";
        let BlockKeys { projects, terms, firsts } = &self.keys;
        let values: Values<'_> = &[projects, terms, firsts, &self.blocks];
        client.execute(&client.prepare_cached(sql).await?, values).await?;
        Ok(())
    }

    /// Writes rows of `memory_runs`, whether they exist or not.
    pub(super) async fn put(&self, client: &Client) -> Result<(), Error> {
        let replace = "ON CONFLICT (project, term, first) DO UPDATE SET run = excluded.run";
        self.write(client, "hob.memory_runs", replace).await
    }
}

/// Keys of rows in `memory_runs` or `memory_recent`.
#[derive(Default)]
pub(super) struct BlockKeys {
    projects: Vec<i64>,
    terms: Vec<i64>,
    firsts: Vec<i64>,
}

impl BlockKeys {
    pub(super) fn add(&mut self, project: i64, term: i64, first: i64) {
        self.projects.push(project);
        self.terms.push(term);
        self.firsts.push(first);
    }

    pub(super) async fn delete(&self, client: &Client, table: &str) -> Result<(), Error> {
        if self.projects.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "DELETE FROM {table} r
             USING unnest($1::bigint[], $2::bigint[], $3::bigint[]) u (project, term, first)
             WHERE r.project = u.project AND r.term = u.term AND r.first = u.first"
        );
        let values: Values<'_> = &[&self.projects, &self.terms, &self.firsts];
        client.execute(&client.prepare_cached(&sql).await?, values).await?;
        Ok(())
    }
}
