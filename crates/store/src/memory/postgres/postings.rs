//! Postings as they come, and as they go.

use std::collections::{BTreeMap, BTreeSet};

use hob_domain::memory::NewTurn;
use hob_index::postings::{HEADER_SEQ, Posting, PostingBlock, TermHeader, decode_block};
use hob_index::terms;
use tokio_postgres::Error;

use super::cipher::Cipher;
use crate::memory::block_limit::BLOCK_LIMIT;
use crate::postgres::connections::{Client, Values};

/// How often each term of a turn occurs.
pub(super) fn counts(turn: &NewTurn) -> Vec<(&str, u32)> {
    terms::frequencies(&turn.terms)
}

fn unpacked_terms(packed: &[u8]) -> impl Iterator<Item = i64> {
    packed.chunks_exact(8).map(|code| i64::from_be_bytes(code.try_into().unwrap_or_default()))
}

/// Postings that are not merged yet, by project and term. Each batch of turns makes runs of its own.
#[derive(Default)]
pub(super) struct Recent {
    postings: BTreeMap<(i64, i64), Vec<Posting>>,
}

impl Recent {
    /// Adds a turn; turns come in order. Returns the codes of its terms, as they are kept for its removal.
    pub(super) fn add(
        &mut self,
        cipher: &Cipher,
        project: i64,
        session: i64,
        seq: i64,
        counts: &[(&str, u32)],
    ) -> Vec<u8> {
        let length = terms::length(counts);
        // Terms of one code, should there ever be two, are one term.
        let mut all: BTreeMap<i64, u32> = BTreeMap::new();
        for (term, times) in counts {
            *all.entry(cipher.term(term)).or_default() += times;
        }
        for (term, times) in &all {
            let posting = Posting::new(seq, session, *times, length);
            self.postings.entry((project, *term)).or_default().push(posting);
        }
        all.keys().flat_map(|term| term.to_be_bytes()).collect()
    }

    pub(super) async fn write(&self, client: &Client) -> Result<(), Error> {
        let mut runs = Runs::default();
        for ((project, term), postings) in &self.postings {
            runs.add_all(*project, *term, postings);
        }
        runs.insert(client, "hob.memory_recent").await
    }
}

/// Locks the runs; whoever changes them does this first.
pub(super) async fn lock_runs(client: &Client) -> Result<(), Error> {
    let sql = "SELECT 1 FROM hob.memory_merge WHERE id = 1 FOR UPDATE";
    client.query_one(&client.prepare_cached(sql).await?, &[]).await.map(drop)
}

/// Takes turns out of the index: their projects, their numbers, and their packed terms. The runs must be locked.
pub(super) async fn remove(client: &Client, turns: &[(i64, i64, Vec<u8>)]) -> Result<(), Error> {
    let (mut projects, mut terms, mut seqs) = (Vec::new(), Vec::new(), Vec::new());
    for (project, seq, packed) in turns {
        for term in unpacked_terms(packed) {
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
    let mut runs: BTreeMap<(i64, i64, i64), (Vec<Posting>, usize)> = BTreeMap::new();
    for row in &found {
        let (place, seq) = ((row.get(0), row.get(1), row.get(3)), row.get::<_, i64>(2));
        let (postings, gone) = runs.entry(place).or_insert_with(|| {
            let mut postings = Vec::new();
            decode_block(row.get(3), row.get(4), |posting| postings.push(posting));
            (postings, 0)
        });
        let before = postings.len();
        postings.retain(|posting| posting.seq != seq);
        *gone += before - postings.len();
    }
    runs.retain(|_, (_, gone)| *gone > 0);
    if runs.is_empty() {
        return Ok(());
    }
    let mut fewer: BTreeMap<(i64, i64), u64> = BTreeMap::new();
    let mut written = Runs::default();
    let mut empty = Places::default();
    for ((project, term, first), (postings, gone)) in &runs {
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

/// The same for postings that are not merged yet. Runs of these may lie in each other: one that has changed came back
/// alone.
async fn remove_recent(client: &Client, turns: &[(i64, i64, Vec<u8>)]) -> Result<(), Error> {
    let mut gone: BTreeMap<(i64, i64), BTreeSet<i64>> = BTreeMap::new();
    for (project, seq, packed) in turns {
        for term in unpacked_terms(packed) {
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
    let (mut old, mut new) = (Places::default(), Runs::default());
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
            // It begins with what it holds: the turn that it began with may come back alone.
            new.add_all(project, term, &left);
        }
    }
    old.delete(client, "hob.memory_recent").await?;
    new.insert(client, "hob.memory_recent").await
}

/// How common terms are, by project and term.
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

/// Runs and headers to be written.
#[derive(Default)]
pub(super) struct Runs {
    places: Places,
    runs: Vec<Vec<u8>>,
}

impl Runs {
    pub(super) fn add(&mut self, project: i64, term: i64, first: i64, run: Vec<u8>) {
        self.places.add(project, term, first);
        self.runs.push(run);
    }

    /// Adds postings, in as many runs as they need.
    pub(super) fn add_all(&mut self, project: i64, term: i64, postings: &[Posting]) {
        for block in BLOCK_LIMIT.blocks(postings) {
            self.add(project, term, block.first_seq, block.bytes);
        }
    }

    /// Writes those of which none is there.
    async fn insert(&self, client: &Client, table: &str) -> Result<(), Error> {
        if self.runs.is_empty() {
            return Ok(());
        }
        self.write(client, table, "").await
    }

    async fn write(&self, client: &Client, table: &str, or_else: &str) -> Result<(), Error> {
        let sql = format!(
            "INSERT INTO {table} (project, term, first, run, speaker)
             SELECT u.project, u.term, u.first, u.run, p.speaker
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[])
                 u (project, term, first, run)
             JOIN hob.memory_projects p ON p.id = u.project {or_else}"
        );
        let Places { projects, terms, firsts } = &self.places;
        let values: Values<'_> = &[projects, terms, firsts, &self.runs];
        client.execute(&client.prepare_cached(&sql).await?, values).await?;
        Ok(())
    }

    /// Writes over those that are there.
    async fn replace(&self, client: &Client) -> Result<(), Error> {
        let sql = "UPDATE hob.memory_runs r SET run = u.run
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[])
                 u (project, term, first, run)
             WHERE r.project = u.project AND r.term = u.term AND r.first = u.first";
        let Places { projects, terms, firsts } = &self.places;
        let values: Values<'_> = &[projects, terms, firsts, &self.runs];
        client.execute(&client.prepare_cached(sql).await?, values).await?;
        Ok(())
    }

    /// Writes them whether they are there or not. They belong to whom their projects belong to.
    pub(super) async fn put(&self, client: &Client) -> Result<(), Error> {
        let replace = "ON CONFLICT (project, term, first) DO UPDATE SET run = excluded.run";
        self.write(client, "hob.memory_runs", replace).await
    }
}

/// Rows of `memory_runs` or `memory_recent`.
#[derive(Default)]
pub(super) struct Places {
    projects: Vec<i64>,
    terms: Vec<i64>,
    firsts: Vec<i64>,
}

impl Places {
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
