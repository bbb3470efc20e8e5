//! Turns from before there were postings: they stay where they were, in FTS5, until they have been
//! analysed anew, and are found there meanwhile.

use hob_domain::memory::{Candidate, Count, Probe, Scope};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::memory_index::counted;
use super::memory_rows::time;
use super::propose::{Range, bounds};
use super::store_turns;

/// The most promising of them. `None` when there are none left.
pub(super) fn candidates(
    connection: &Connection,
    speaker: &str,
    scope: &Scope,
    range: &Range,
    probe: &Probe,
) -> rusqlite::Result<Option<Vec<Candidate>>> {
    // The size of the first and only column's content: empty once all have moved.
    let left = connection.prepare_cached("SELECT 1 FROM term_index_content LIMIT 1")?.exists([])?;
    if !left {
        return Ok(None);
    }
    let mut within = vec![match (&scope.project, range.projects.first()) {
        (Some(_), Some(project)) => format!("p{project}"),
        _ => store_turns::speaker_term(speaker),
    }];
    within.extend(range.session.map(|session| format!("s{session}")));
    let within: Vec<String> = within.iter().map(|term| quoted(term)).collect();
    let any: Vec<String> = probe.terms.iter().map(|probed| quoted(&probed.term)).collect();
    if any.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let query = format!("scope : ({}) AND terms : ({})", within.join(" AND "), any.join(" OR "));
    let found: Vec<(i64, String)> = connection
        .prepare_cached(
            "SELECT rowid, terms FROM term_index WHERE term_index MATCH ?1
             ORDER BY bm25(term_index, 1.0, 0.0) LIMIT ?2",
        )?
        .query_map(params![query, probe.limit as i64], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let mut turn = connection
        .prepare_cached("SELECT session, ts FROM turns WHERE seq = ?1 AND speaker = ?2")?;
    let mut candidates = Vec::new();
    for (seq, terms) in found {
        let row: Option<(i64, i64)> = turn
            .query_row(params![seq, speaker], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((session, ts)) = row else { continue };
        let counts = counted(&terms);
        let count = |(term, probed): (usize, &hob_domain::memory::ProbeTerm)| {
            Some(Count { term, times: *counts.get(probed.term.as_str())? })
        };
        candidates.push(Candidate {
            seq,
            session,
            previous: None,
            ts: time(ts),
            length: counts.values().sum(),
            counts: probe.terms.iter().enumerate().filter_map(count).collect(),
            vector: Vec::new(),
            in_scope: bounds(scope).is_none_or(|(since, until)| (since..=until).contains(&ts)),
        });
    }
    Ok(Some(candidates))
}

/// Removes a turn from it; one that is not there is none.
pub(super) fn remove(transaction: &Transaction<'_>, seq: i64) -> rusqlite::Result<()> {
    transaction.prepare_cached("DELETE FROM term_index WHERE rowid = ?1")?.execute([seq])?;
    Ok(())
}

fn quoted(term: &str) -> String {
    // A NUL would end the query.
    format!("\"{}\"", term.replace('"', "\"\"").replace('\0', ""))
}
