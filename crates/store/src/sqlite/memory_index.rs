//! Writing the index: what a transaction brings is gathered and written term by term.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, Transaction, params};

use super::postings::{LONGEST_RUN, Posting, length_class, pack, unpack};

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

/// What is to be written, until [`Gathered::write`].
#[derive(Default)]
pub(super) struct Gathered {
    postings: BTreeMap<(String, i64), Vec<Posting>>,
    projects: BTreeMap<i64, (i64, i64)>,
    sessions: BTreeMap<i64, (i64, i64)>,
}

impl Gathered {
    pub(super) fn add(
        &mut self,
        transaction: &Transaction<'_>,
        entry: &Entry<'_>,
    ) -> rusqlite::Result<()> {
        let counts = counted(entry.terms);
        let length = counts.values().sum::<u32>();
        for (term, times) in counts {
            let times = u8::try_from(times).unwrap_or(u8::MAX);
            let Entry { seq, session, .. } = *entry;
            let posting = Posting { seq, session, times, length: length_class(length) };
            self.postings.entry((term.to_owned(), entry.project)).or_default().push(posting);
        }
        self.count(entry.project, entry.session, 1, i64::from(length));
        transaction
            .prepare_cached(
                "INSERT INTO indexed (seq, project, session, ts, at, length, terms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                entry.seq,
                entry.project,
                entry.session,
                entry.ts,
                entry.at,
                length,
                entry.terms
            ])?;
        Ok(())
    }

    /// Takes a turn out of the index. One that was never in it is none.
    pub(super) fn remove(
        &mut self,
        transaction: &Transaction<'_>,
        seq: i64,
    ) -> rusqlite::Result<()> {
        let row: Option<(i64, i64, i64, String)> = transaction
            .prepare_cached(
                "DELETE FROM indexed WHERE seq = ?1 RETURNING project, session, length, terms",
            )?
            .query_row([seq], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
            .optional()?;
        let Some((project, session, length, terms)) = row else { return Ok(()) };
        // What was gathered before must be there to be taken out.
        self.write(transaction)?;
        for term in counted(&terms).keys() {
            without(transaction, term, project, seq)?;
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

    /// Writes all that was gathered.
    pub(super) fn write(&mut self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        for ((term, project), postings) in std::mem::take(&mut self.postings) {
            insert(transaction, &term, project, postings)?;
        }
        let sums = [
            ("index_projects", "project", std::mem::take(&mut self.projects)),
            ("index_sessions", "session", std::mem::take(&mut self.sessions)),
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

/// How often each term occurs.
pub(super) fn counted(terms: &str) -> BTreeMap<&str, u32> {
    let mut counts = BTreeMap::new();
    for term in terms.split(' ').filter(|term| !term.is_empty()) {
        *counts.entry(term).or_default() += 1;
    }
    counts
}

/// The run that a turn belongs to: the last one that does not begin behind it.
fn run_of(
    transaction: &Transaction<'_>,
    term: &str,
    project: i64,
    seq: i64,
) -> rusqlite::Result<Option<(i64, Vec<u8>)>> {
    transaction
        .prepare_cached(
            "SELECT first, run FROM postings WHERE term = ?1 AND project = ?2 AND first <= ?3
             ORDER BY first DESC LIMIT 1",
        )?
        .query_row(params![term, project, seq], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

/// Adds postings, in order, to the runs of a term.
fn insert(
    transaction: &Transaction<'_>,
    term: &str,
    project: i64,
    postings: Vec<Posting>,
) -> rusqlite::Result<()> {
    let Some(lowest) = postings.first().map(|posting| posting.seq) else { return Ok(()) };
    let later = transaction
        .prepare_cached(
            "SELECT 1 FROM postings WHERE term = ?1 AND project = ?2 AND first > ?3 LIMIT 1",
        )?
        .exists(params![term, project, lowest])?;
    if later {
        // An old turn is indexed again: each posting goes to its own place.
        return postings
            .into_iter()
            .try_for_each(|posting| merge(transaction, term, project, posting));
    }
    let Some((first, mut run)) = run_of(transaction, term, project, lowest)? else {
        return save(transaction, term, project, postings);
    };
    let mut last = (first, 0);
    unpack(first, &run, |posting| last = (posting.seq, posting.session));
    if last.0 >= lowest {
        return postings
            .into_iter()
            .try_for_each(|posting| merge(transaction, term, project, posting));
    }
    // The usual way: the turns are newer than all before.
    let fit = LONGEST_RUN.saturating_sub(run.len()) / 6;
    let (here, rest) = postings.split_at(fit.min(postings.len()));
    if !here.is_empty() {
        pack(last, here, &mut run);
        put(transaction, term, project, first, &run)?;
    }
    save(transaction, term, project, rest.to_vec())
}

/// Puts one posting into the middle of a run.
fn merge(
    transaction: &Transaction<'_>,
    term: &str,
    project: i64,
    posting: Posting,
) -> rusqlite::Result<()> {
    let found = run_of(transaction, term, project, posting.seq)?;
    let Some((first, run)) = found else { return save(transaction, term, project, vec![posting]) };
    let mut all = Vec::new();
    unpack(first, &run, |other| all.push(other));
    all.retain(|other| other.seq != posting.seq);
    let place = all.partition_point(|other| other.seq < posting.seq);
    all.insert(place, posting);
    delete(transaction, term, project, first)?;
    save(transaction, term, project, all)
}

/// Takes a turn out of the runs of a term.
fn without(
    transaction: &Transaction<'_>,
    term: &str,
    project: i64,
    seq: i64,
) -> rusqlite::Result<()> {
    let Some((first, run)) = run_of(transaction, term, project, seq)? else { return Ok(()) };
    let mut rest = Vec::new();
    unpack(first, &run, |posting| rest.push(posting));
    rest.retain(|posting| posting.seq != seq);
    delete(transaction, term, project, first)?;
    save(transaction, term, project, rest)
}

/// Writes postings as runs of their own.
fn save(
    transaction: &Transaction<'_>,
    term: &str,
    project: i64,
    postings: Vec<Posting>,
) -> rusqlite::Result<()> {
    for part in postings.chunks(LONGEST_RUN / 6) {
        let first = part[0].seq;
        let mut run = Vec::new();
        pack((first, 0), part, &mut run);
        put(transaction, term, project, first, &run)?;
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
