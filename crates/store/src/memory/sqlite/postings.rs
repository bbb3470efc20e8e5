//! Writing the index: a new turn is noted with its terms, and is merged into the postings later, with
//! thousands of others (see `merge`).

use std::collections::BTreeMap;

use hob_index::postings::{HEADER_SEQ, Posting, PostingBlock, TermHeader, decode_block};
use hob_index::terms;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use crate::memory::block_limit::BLOCK_LIMIT;

/// So many changes are kept for those who hold turns in memory; one that has missed more reads all anew.
const CHANGES: i64 = 50_000;

/// A turn as the index takes it.
pub(super) struct Entry<'a> {
    pub(super) seq: i64,
    pub(super) project: i64,
    pub(super) session: i64,
    pub(super) ts: i64,
    pub(super) at: i64,
    /// Separated by blanks.
    pub(super) terms: &'a str,
}

/// How far turns have been merged into the postings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) merged: i64,
    /// The terms up to `done` are merged up to here.
    pub(super) next: i64,
    pub(super) done: String,
    /// Another one after every step of a merge.
    pub(super) token: i64,
}

impl State {
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<State> {
        connection.prepare_cached("SELECT merged, next, done, token FROM index_state")?.query_row(
            [],
            |row| {
                let (merged, next) = (row.get(0)?, row.get(1)?);
                Ok(State { merged, next, done: row.get(2)?, token: row.get(3)? })
            },
        )
    }

    pub(super) fn write(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        transaction
            .prepare_cached("UPDATE index_state SET merged = ?1, next = ?2, done = ?3, token = ?4")?
            .execute(params![self.merged, self.next, self.done, self.token])?;
        Ok(())
    }

    /// The last turn that a term's postings have, where it has the term.
    pub(super) fn covers(&self, term: &str) -> i64 {
        if term <= self.done.as_str() { self.next } else { self.merged }
    }
}

/// What a transaction does to the index, until [`Gathered::write`].
pub(super) struct Gathered {
    state: State,
    projects: BTreeMap<i64, (i64, i64)>,
    sessions: BTreeMap<i64, (i64, i64)>,
}

impl Gathered {
    pub(super) fn new(transaction: &Transaction<'_>) -> rusqlite::Result<Gathered> {
        let state = State::read(transaction)?;
        Ok(Gathered { state, projects: BTreeMap::new(), sessions: BTreeMap::new() })
    }

    pub(super) fn add(
        &mut self,
        transaction: &Transaction<'_>,
        entry: &Entry<'_>,
    ) -> rusqlite::Result<()> {
        let Entry { seq, project, session, ts, at, terms } = *entry;
        let counts = terms::frequencies(terms);
        let length = terms::length(&counts);
        // Those behind it are merged when their time comes.
        for (term, times) in counts.iter().filter(|(term, _)| seq <= self.state.covers(term)) {
            merge(transaction, term, project, Posting::new(seq, session, *times, length))?;
        }
        self.count(project, session, 1, i64::from(length));
        transaction
            .prepare_cached(
                "INSERT INTO indexed (seq, project, session, ts, at, length)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![seq, project, session, ts, at, length])?;
        transaction
            .prepare_cached("INSERT INTO terms (seq, terms) VALUES (?1, ?2)")?
            .execute(params![seq, terms])?;
        Ok(())
    }

    /// Takes a turn out of the index. One that was never in it is none.
    pub(super) fn remove(
        &mut self,
        transaction: &Transaction<'_>,
        seq: i64,
    ) -> rusqlite::Result<()> {
        let row: Option<(i64, i64, i64)> = transaction
            .prepare_cached(
                "DELETE FROM indexed WHERE seq = ?1 RETURNING project, session, length",
            )?
            .query_row([seq], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let Some((project, session, length)) = row else { return Ok(()) };
        let terms: Option<String> = transaction
            .prepare_cached("DELETE FROM terms WHERE seq = ?1 RETURNING terms")?
            .query_row([seq], |row| row.get(0))
            .optional()?;
        for (term, _) in terms::frequencies(&terms.unwrap_or_default()) {
            if seq <= self.state.covers(term) {
                without(transaction, term, project, seq)?;
            }
        }
        self.count(project, session, -1, -length);
        Ok(())
    }

    fn count(&mut self, project: i64, session: i64, turns: i64, length: i64) {
        for sum in
            [self.projects.entry(project).or_default(), self.sessions.entry(session).or_default()]
        {
            sum.0 += turns;
            sum.1 += length;
        }
    }

    /// Writes what was summed up.
    pub(super) fn write(self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let sums = [
            ("index_projects", "project", self.projects),
            ("index_sessions", "session", self.sessions),
        ];
        for (table, column, sums) in sums {
            let sql = format!(
                "INSERT INTO {table} ({column}, turns, length) VALUES (?1, ?2, ?3)
                 ON CONFLICT ({column}) DO UPDATE SET turns = turns + ?2, length = length + ?3"
            );
            let mut statement = transaction.prepare_cached(&sql)?;
            let empty = format!("DELETE FROM {table} WHERE {column} = ?1 AND turns <= 0");
            for (key, (turns, length)) in sums {
                statement.execute([key, turns, length])?;
                if turns < 0 {
                    transaction.prepare_cached(&empty)?.execute([key])?;
                }
            }
        }
        Ok(())
    }
}

/// Says that a turn of the index is not what it was.
pub(super) fn note_change(transaction: &Transaction<'_>, seq: i64) -> rusqlite::Result<()> {
    transaction.prepare_cached("INSERT INTO index_changes (seq) VALUES (?1)")?.execute([seq])?;
    let revision = transaction.last_insert_rowid();
    transaction
        .prepare_cached("DELETE FROM index_changes WHERE revision <= ?1")?
        .execute([revision - CHANGES])?;
    Ok(())
}

/// The number of the last change of the index.
pub(super) fn revision(connection: &Connection) -> rusqlite::Result<i64> {
    connection
        .prepare_cached("SELECT coalesce(max(revision), 0) FROM index_changes")?
        .query_row([], |row| row.get(0))
}

/// Whether changes since then are not told any more.
pub(super) fn has_missed(connection: &Connection, since: i64) -> rusqlite::Result<bool> {
    let oldest: Option<i64> = connection
        .prepare_cached("SELECT min(revision) FROM index_changes")?
        .query_row([], |row| row.get(0))?;
    Ok(oldest.is_some_and(|oldest| oldest > since + 1))
}

/// The newest turn of the index.
pub(super) fn newest(connection: &Connection) -> rusqlite::Result<i64> {
    connection
        .prepare_cached("SELECT coalesce(max(seq), 0) FROM indexed")?
        .query_row([], |row| row.get(0))
}

/// Adds postings that are newer than all before, in order, to the runs of a term.
pub(super) fn append(
    transaction: &Transaction<'_>,
    term: &str,
    project: i64,
    postings: &[Posting],
) -> rusqlite::Result<()> {
    let (header, last) = ends(transaction, term, project)?;
    let mut header = header.unwrap_or_default();
    let mut before = None;
    let mut rest = postings;
    if header.turns > 0
        && let Some(mut block) = last
    {
        let mut last = None;
        decode_block(block.first_seq, &block.bytes, |posting| last = Some(posting));
        let here;
        let capacity = BLOCK_LIMIT.capacity_after(block.bytes.len());
        (here, rest) = postings.split_at(capacity.min(postings.len()));
        if !here.is_empty() {
            block.append(last, here);
            replace(transaction, term, project, block.first_seq, &block.bytes)?;
        }
        before = Some(last.map_or(0, |last| last.session));
    }
    save(transaction, term, project, rest)?;
    let is_new = header.turns == 0;
    header += TermHeader::of(before, postings);
    if !is_new && replace(transaction, term, project, HEADER_SEQ, &header.encode())? {
        return Ok(());
    }
    put(transaction, term, project, HEADER_SEQ, &header.encode())
}

/// How common a term is, where it is written, and its last run. Most terms have but one, right behind their header.
fn ends(
    transaction: &Transaction<'_>,
    term: &str,
    project: i64,
) -> rusqlite::Result<(Option<TermHeader>, Option<PostingBlock>)> {
    let mut statement = transaction.prepare_cached(
        "SELECT first, run FROM postings WHERE term = ?1 AND project = ?2
         ORDER BY first DESC LIMIT 2",
    )?;
    let mut rows = statement.query(params![term, project])?;
    let mut last = None;
    while let Some(row) = rows.next()? {
        let (first_seq, bytes) = (row.get(0)?, row.get_ref(1)?.as_blob()?);
        match last {
            _ if first_seq == HEADER_SEQ => return Ok((Some(TermHeader::decode(bytes)), last)),
            None => last = Some(PostingBlock { first_seq, bytes: bytes.to_vec() }),
            Some(_) => return Ok((header(transaction, term, project)?, last)),
        }
    }
    Ok((None, last))
}

fn header(
    transaction: &Transaction<'_>,
    term: &str,
    project: i64,
) -> rusqlite::Result<Option<TermHeader>> {
    transaction
        .prepare_cached("SELECT run FROM postings WHERE term = ?1 AND project = ?2 AND first = 0")?
        .query_row(params![term, project], |row| Ok(TermHeader::decode(row.get_ref(0)?.as_blob()?)))
        .optional()
}

/// The run that a turn belongs to: the last one that does not begin behind it.
fn run_of(
    transaction: &Transaction<'_>,
    term: &str,
    project: i64,
    seq: i64,
) -> rusqlite::Result<Option<PostingBlock>> {
    transaction
        .prepare_cached(
            "SELECT first, run FROM postings
             WHERE term = ?1 AND project = ?2 AND first > 0 AND first <= ?3
             ORDER BY first DESC LIMIT 1",
        )?
        .query_row(params![term, project, seq], |row| {
            Ok(PostingBlock { first_seq: row.get(0)?, bytes: row.get(1)? })
        })
        .optional()
}

/// Puts one posting into its place among older and newer ones.
fn merge(
    transaction: &Transaction<'_>,
    term: &str,
    project: i64,
    posting: Posting,
) -> rusqlite::Result<()> {
    let mut header = header(transaction, term, project)?.unwrap_or_default();
    let found = run_of(transaction, term, project, posting.seq)?;
    let mut all = Vec::new();
    if let Some(block) = found {
        all = block.decode();
        delete(transaction, term, project, block.first_seq)?;
    }
    let place = all.partition_point(|other| other.seq < posting.seq);
    all.insert(place, posting);
    save(transaction, term, project, &all)?;
    header.turns += 1;
    put(transaction, term, project, HEADER_SEQ, &header.encode())
}

/// Takes a turn out of the runs of a term.
fn without(
    transaction: &Transaction<'_>,
    term: &str,
    project: i64,
    seq: i64,
) -> rusqlite::Result<()> {
    let mut header = header(transaction, term, project)?.unwrap_or_default();
    let Some(block) = run_of(transaction, term, project, seq)? else { return Ok(()) };
    let mut rest = block.decode();
    let before = rest.len();
    rest.retain(|posting| posting.seq != seq);
    header.turns = header.turns.saturating_sub((before - rest.len()) as u64);
    delete(transaction, term, project, block.first_seq)?;
    save(transaction, term, project, &rest)?;
    match header.turns {
        0 => delete(transaction, term, project, HEADER_SEQ),
        _ => put(transaction, term, project, HEADER_SEQ, &header.encode()),
    }
}

/// Writes postings as runs of their own.
fn save(
    transaction: &Transaction<'_>,
    term: &str,
    project: i64,
    postings: &[Posting],
) -> rusqlite::Result<()> {
    for block in BLOCK_LIMIT.blocks(postings) {
        put(transaction, term, project, block.first_seq, &block.bytes)?;
    }
    Ok(())
}

fn put(
    transaction: &Transaction<'_>,
    term: &str,
    project: i64,
    first: i64,
    run: &[u8],
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO postings (term, project, first, run) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (term, project, first) DO UPDATE SET run = ?4",
        )?
        .execute(params![term, project, first, run])?;
    Ok(())
}

/// Writes a row that is there; `false` when it is not. Cheaper than [`put`] where it is.
fn replace(
    transaction: &Transaction<'_>,
    term: &str,
    project: i64,
    first: i64,
    run: &[u8],
) -> rusqlite::Result<bool> {
    let changed = transaction
        .prepare_cached(
            "UPDATE postings SET run = ?4 WHERE term = ?1 AND project = ?2 AND first = ?3",
        )?
        .execute(params![term, project, first, run])?;
    Ok(changed > 0)
}

fn delete(
    transaction: &Transaction<'_>,
    term: &str,
    project: i64,
    first: i64,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("DELETE FROM postings WHERE term = ?1 AND project = ?2 AND first = ?3")?
        .execute(params![term, project, first])?;
    Ok(())
}
