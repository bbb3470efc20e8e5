//! Postings as they come, and as they go.

use std::collections::BTreeMap;

use hob_domain::memory::NewTurn;
use tokio_postgres::Error;

use super::cipher::Cipher;
use crate::index::{Header, Posting, counted, pack, posting, total, unpack};
use crate::postgres::connections::{Client, Values};

/// How often each term of a turn occurs.
pub(super) fn counts(turn: &NewTurn) -> Vec<(&str, u32)> {
    counted(&turn.terms)
}

/// The codes of the terms of a turn, as they are kept for its removal.
pub(super) fn packed_terms(cipher: &Cipher, counts: &[(&str, u32)]) -> Vec<u8> {
    counts.iter().flat_map(|(term, _)| cipher.term(term).to_be_bytes()).collect()
}

fn unpacked_terms(packed: &[u8]) -> impl Iterator<Item = i64> {
    packed.chunks_exact(8).map(|code| i64::from_be_bytes(code.try_into().unwrap_or_default()))
}

/// Postings that are not merged yet, column by column.
#[derive(Default)]
pub(super) struct Recent {
    projects: Vec<i64>,
    terms: Vec<i64>,
    seqs: Vec<i64>,
    sessions: Vec<i64>,
    times: Vec<i16>,
    lengths: Vec<i16>,
}

impl Recent {
    pub(super) fn add(
        &mut self,
        cipher: &Cipher,
        project: i64,
        session: i64,
        seq: i64,
        counts: &[(&str, u32)],
    ) {
        let length = total(counts);
        // Terms of one code, should there ever be two, are one term.
        let mut all: BTreeMap<i64, u32> = BTreeMap::new();
        for (term, times) in counts {
            *all.entry(cipher.term(term)).or_default() += times;
        }
        for (term, times) in all {
            let posting = posting(seq, session, times, length);
            self.projects.push(project);
            self.terms.push(term);
            self.seqs.push(seq);
            self.sessions.push(session);
            self.times.push(i16::from(posting.times));
            self.lengths.push(i16::from(posting.length));
        }
    }

    pub(super) async fn write(&self, client: &Client, speaker: &str) -> Result<(), Error> {
        let sql =
            "INSERT INTO hob.memory_recent (project, term, seq, session, times, length, speaker)
             SELECT u.*, $1 FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
                 $6::smallint[], $7::smallint[]) u";
        let Recent { projects, terms, seqs, sessions, times, lengths } = self;
        let values: Values<'_> = &[&speaker, projects, terms, seqs, sessions, times, lengths];
        client.execute(&client.prepare_cached(sql).await?, values).await?;
        Ok(())
    }
}

/// A posting of `memory_recent`, from columns that begin at one: seq, session, times, length.
pub(super) fn recent_posting(row: &tokio_postgres::Row, at: usize) -> Posting {
    Posting {
        seq: row.get(at),
        session: row.get(at + 1),
        times: row.get::<_, i16>(at + 2) as u8,
        length: row.get::<_, i16>(at + 3) as u8,
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
    let sql = "DELETE FROM hob.memory_recent r
         USING unnest($1::bigint[], $2::bigint[], $3::bigint[]) u (project, term, seq)
         WHERE r.project = u.project AND r.term = u.term AND r.seq = u.seq";
    client.execute(&client.prepare_cached(sql).await?, &[&projects, &terms, &seqs]).await?;
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
            unpack(row.get(3), row.get(4), |posting| postings.push(posting));
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
        let mut run = Vec::new();
        pack((*first, 0), postings, &mut run);
        written.add(*project, *term, *first, run);
    }
    for ((project, term), mut header) in headers(client, fewer.keys()).await? {
        header.turns = header.turns.saturating_sub(fewer[&(project, term)]);
        match header.turns {
            0 => empty.add(project, term, 0),
            _ => written.add(project, term, 0, header.packed()),
        }
    }
    written.replace(client).await?;
    empty.delete(client).await
}

/// How common terms are, by project and term.
pub(super) async fn headers(
    client: &Client,
    of: impl Iterator<Item = &(i64, i64)>,
) -> Result<BTreeMap<(i64, i64), Header>, Error> {
    let (projects, terms): (Vec<i64>, Vec<i64>) = of.copied().unzip();
    let sql = "SELECT r.project, r.term, r.run
         FROM unnest($1::bigint[], $2::bigint[]) u (project, term)
         JOIN hob.memory_runs r ON r.project = u.project AND r.term = u.term AND r.first = 0";
    let rows = client.query(&client.prepare_cached(sql).await?, &[&projects, &terms]).await?;
    let header = |row: &tokio_postgres::Row| {
        ((row.get(0), row.get(1)), Header::unpacked(row.get::<_, &[u8]>(2)))
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
        let sql = "INSERT INTO hob.memory_runs (project, term, first, run, speaker)
             SELECT u.project, u.term, u.first, u.run, p.speaker
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[])
                 u (project, term, first, run)
             JOIN hob.memory_projects p ON p.id = u.project
             ON CONFLICT (project, term, first) DO UPDATE SET run = excluded.run";
        let Places { projects, terms, firsts } = &self.places;
        let values: Values<'_> = &[projects, terms, firsts, &self.runs];
        client.execute(&client.prepare_cached(sql).await?, values).await?;
        Ok(())
    }
}

/// Rows of `memory_runs`.
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

    pub(super) async fn delete(&self, client: &Client) -> Result<(), Error> {
        if self.projects.is_empty() {
            return Ok(());
        }
        let sql = "DELETE FROM hob.memory_runs r
             USING unnest($1::bigint[], $2::bigint[], $3::bigint[]) u (project, term, first)
             WHERE r.project = u.project AND r.term = u.term AND r.first = u.first";
        let values: Values<'_> = &[&self.projects, &self.terms, &self.firsts];
        client.execute(&client.prepare_cached(sql).await?, values).await?;
        Ok(())
    }
}
