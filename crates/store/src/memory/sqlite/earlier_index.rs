//! Turns from before there were postings: they stay where they were, in FTS5, until they have been
//! analysed anew, and are found there meanwhile.

use std::sync::Arc;

use hob_domain::memory::{Candidate, Count, Probe, Scope};
use hob_index::terms;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::candidates::Range;
use super::rows::time;
use super::store_turns;
use crate::memory::candidate_plan::bounds;

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
        let counts = terms::frequencies(&terms);
        let count = |(term, probed): (usize, &hob_domain::memory::ProbeTerm)| {
            let place =
                counts.binary_search_by_key(&probed.term.as_str(), |(term, _)| term).ok()?;
            Some(Count { term, times: counts[place].1 })
        };
        candidates.push(Candidate {
            seq,
            session,
            previous: None,
            ts: time(ts),
            length: terms::length(&counts),
            counts: probe.terms.iter().enumerate().filter_map(count).collect(),
            vector: Arc::default(),
            finer: Vec::new(),
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hob_domain::DataKey;
    use hob_domain::memory::{MemoryStore, Principal, ProbeTerm, Proposal, Remask};
    use rusqlite::OpenFlags;

    use super::*;
    use crate::Memory;
    use crate::sqlite::{connect, migrations};

    async fn asked(memory: &Memory, term: &str) -> Proposal {
        let terms = vec![ProbeTerm { term: term.to_owned(), weight: 1.0 }];
        let probe = Probe { terms, vector: Vec::new(), finer: None, limit: 10 };
        memory.propose(&Principal::Owner, &Scope::default(), probe).await.unwrap()
    }

    /// What an older Hob has stored is found at once, and is like the rest when it was analysed anew.
    #[tokio::test]
    async fn what_was_there_is_found_and_comes_along() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.db");
        let key = DataKey::from_bytes([5; 32]);
        let busy = Duration::from_secs(5);
        let mut old = connect(&path, &key, OpenFlags::SQLITE_OPEN_CREATE, busy).unwrap();
        migrations::run(&mut old, &path, &migrations::MEMORY[..1]).unwrap();
        old.execute_batch(
            "INSERT INTO projects VALUES (1, '', '/p');
             INSERT INTO sessions VALUES (1, '', 's', 'claude', 1, 5, 5, 1);
             INSERT INTO turns VALUES (1, 'a', '', 1, 1, '/p', NULL, NULL, 1, x'00', 'user',
                 'episodic', 'the port', NULL, NULL, 5, 5, 'claude', 'hook', NULL, NULL, 1);
             INSERT INTO term_index (rowid, terms, scope) VALUES (1, 'the port', 'o p1 s1');
             INSERT INTO vectors VALUES (1, 1, x'0102');",
        )
        .unwrap();
        drop(old);
        let memory = Memory::open(&path, &key, busy).unwrap();
        let found = asked(&memory, "port").await;
        assert!(found.partial);
        assert_eq!((found.candidates.len(), found.candidates[0].counts[0].times), (1, 1));
        let change = Remask {
            seq: 1,
            text: "the port".to_owned(),
            sealed: None,
            cue: None,
            terms: "the port port".to_owned(),
            vector: vec![1, -2],
            rules: 2,
        };
        memory.remask(vec![change]).await.unwrap();
        let found = asked(&memory, "port").await;
        assert!(!found.partial);
        assert_eq!((found.turns, found.candidates.len()), (1, 1));
        assert_eq!(found.candidates[0].counts[0].times, 2);
        assert_eq!(found.candidates[0].vector[..], [1, -2]);
    }
}
