//! Reading the index: from the terms of a probe to the turns worth ranking.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use hob_domain::memory::{
    Candidate, CandidateQuery, CandidateSet, DocumentFrequency, KindVector, Scope,
};
use hob_index::postings::{HEADER_SEQ, Posting, TermHeader, decode_block};
use hob_index::selection::{Collection, MAX_RARE_POSTINGS};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::cache::{Held, Read, Standing};
use super::postings::State;
use super::rows::time;
use super::sign_codes::{ModelCodes, Source, TableCodes};
use super::{store_turns, vectors};
use crate::memory::candidate_plan::{
    BESIDE, best_turns, bounds, common_terms_to_read, count_terms, document_frequency,
    session_statistics,
};

/// Room is made for so many postings at most before they are read.
const MOST_AT_ONCE: usize = 1 << 20;
/// So often a question that came while turns were merged begins again.
const ROUNDS: usize = 5;

/// The part of the index that a scope allows.
pub(super) struct Range {
    pub(super) projects: Vec<i64>,
    /// The turns of the session and the time asked for, in order. `None` is all.
    allowed: Option<Vec<i64>>,
}

impl Range {
    pub(super) fn has(&self, seq: i64) -> bool {
        self.allowed.as_ref().is_none_or(|all| all.binary_search(&seq).is_ok())
    }
}

/// What is known of vectors in memory.
#[derive(Default)]
pub(super) struct AllCodes {
    pub(super) table: TableCodes,
    pub(super) model: ModelCodes,
}

/// Works in one transaction, so that what is held in memory and what is read from the file are of one
/// time.
pub(super) fn candidates(
    connection: &Connection,
    held: &Held,
    codes: &AllCodes,
    speaker: &str,
    scope: &Scope,
    probe: &CandidateQuery,
) -> rusqlite::Result<CandidateSet> {
    for round in 0.. {
        if round == ROUNDS {
            // The file is not the one that was read: somebody has put an older one in its place.
            held.forget();
        }
        let transaction = connection.unchecked_transaction()?;
        let state = State::read(&transaction)?;
        if let Some(read) = held.read(&transaction, &state)? {
            let index = Index { connection: &transaction, read: &read, state: &state };
            return index.candidates(codes, speaker, scope, probe);
        }
    }
    Ok(CandidateSet::default())
}

/// The index as one question sees it.
struct Index<'a> {
    connection: &'a Connection,
    read: &'a Read,
    state: &'a State,
}

impl Index<'_> {
    fn candidates(
        &self,
        codes: &AllCodes,
        speaker: &str,
        scope: &Scope,
        probe: &CandidateQuery,
    ) -> rusqlite::Result<CandidateSet> {
        let connection = self.connection;
        let Some(range) = self.range(speaker, scope)? else { return Ok(CandidateSet::default()) };
        let (turns, length, sessions) = sums(connection, &range.projects)?;
        let (index, frequencies) = self.postings(probe, &range, turns)?;
        let has = |seq| range.has(seq);
        let collection = Collection { turns, length };
        let mut best = best_turns(&index, &frequencies, probe, collection, has, probe.limit);
        let (table, vector) = (&Source::TABLE, &probe.vector);
        best.extend(codes.table.nearest(connection, table, &range, vector, probe.limit)?);
        if let Some(KindVector { kind, vector }) = &probe.model_vector {
            let source = Source::of(*kind);
            best.extend(codes.model.nearest(connection, &source, &range, vector, probe.limit)?);
        }
        let (mut candidates, in_sessions) = self.surroundings(&best, scope, &range)?;
        if let Some(finer) = &probe.model_vector {
            vectors::fill(connection, finer.kind, &mut candidates)?;
        }
        count_terms(&mut candidates, &index);
        let session_statistics = session_statistics(in_sessions, &index);
        Ok(CandidateSet {
            turns,
            length,
            sessions,
            document_frequencies: frequencies,
            candidates,
            session_statistics,
        })
    }

    /// `None` when nothing can match.
    fn range(&self, speaker: &str, scope: &Scope) -> rusqlite::Result<Option<Range>> {
        let projects: Vec<i64> = self
            .connection
            .prepare_cached(
                "SELECT id FROM projects WHERE speaker = ?1 AND (?2 IS NULL OR root = ?2)",
            )?
            .query_map(params![speaker, scope.project], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        let session = match &scope.session {
            None => None,
            Some(name) => {
                let found = store_turns::session_of(self.connection, speaker, name)?;
                if found.is_none() {
                    return Ok(None);
                }
                found
            }
        };
        if projects.is_empty() {
            return Ok(None);
        }
        let times = bounds(scope);
        let wanted = |turn: &Standing| {
            session.is_none_or(|session| session == i64::from(turn.session))
                && times.is_none_or(|(since, until)| (since..=until).contains(&turn.ts))
        };
        let narrow = session.is_some() || times.is_some();
        let allowed = narrow.then(|| self.read.those(wanted));
        Ok(Some(Range { projects, allowed }))
    }

    /// The postings of each term, and how common it is. Those that would cost more than they say are
    /// left out, and are only counted.
    fn postings(
        &self,
        probe: &CandidateQuery,
        range: &Range,
        turns: u64,
    ) -> rusqlite::Result<(Vec<Vec<Posting>>, Vec<DocumentFrequency>)> {
        let projects: HashSet<u32> = range.projects.iter().map(|one| *one as u32).collect();
        let mut index = vec![Vec::new(); probe.terms.len()];
        let mut frequencies = vec![DocumentFrequency::default(); probe.terms.len()];
        let mut common = Vec::new();
        let mut runs = self
            .connection
            .prepare_cached("SELECT first, run FROM postings WHERE term = ?1 AND project = ?2")?;
        for (term, probed) in probe.terms.iter().enumerate() {
            match self.of_term(&mut runs, &probed.term, range, &projects, MAX_RARE_POSTINGS)? {
                Ok(all) => {
                    frequencies[term] = document_frequency(&all);
                    index[term] = all;
                }
                Err(many) => {
                    frequencies[term] = many;
                    common.push(term);
                }
            }
        }
        let read: u64 = index.iter().map(|all| all.len() as u64).sum();
        for term in common_terms_to_read(probe, turns, &frequencies, common, read) {
            let term_itself = &probe.terms[term].term;
            let all = self.of_term(&mut runs, term_itself, range, &projects, u64::MAX)?;
            index[term] = all.unwrap_or_default();
            frequencies[term] = document_frequency(&index[term]);
        }
        Ok((index, frequencies))
    }

    /// All postings of a term in order; where there are more than `most`, how many.
    fn of_term(
        &self,
        runs: &mut CachedStatement<'_>,
        term: &str,
        range: &Range,
        projects: &HashSet<u32>,
        most: u64,
    ) -> rusqlite::Result<Result<Vec<Posting>, DocumentFrequency>> {
        let recent = self.read.recent(term, self.state.covers(term), projects);
        let mut frequencies = DocumentFrequency::default();
        let mut all = Vec::new();
        for project in &range.projects {
            let mut rows = runs.query(params![term, project])?;
            while let Some(row) = rows.next()? {
                let (first, run) = (row.get(0)?, row.get_ref(1)?.as_blob()?);
                if first > HEADER_SEQ {
                    decode_block(first, run, |posting| all.push(posting));
                    continue;
                }
                let header = TermHeader::decode(run);
                frequencies.turns += header.turns;
                frequencies.sessions += header.sessions;
                if frequencies.turns > most {
                    break;
                }
                all.reserve((header.turns as usize).min(MOST_AT_ONCE));
            }
        }
        if frequencies.turns > most {
            let recent = recent.iter().map(|some| some.len() as u64).sum::<u64>();
            frequencies.turns += recent;
            frequencies.sessions += recent;
            return Ok(Err(frequencies));
        }
        recent.iter().for_each(|some| all.extend_from_slice(some));
        if range.projects.len() > 1 {
            all.sort_unstable_by_key(|posting| posting.seq);
        }
        Ok(Ok(all))
    }

    /// The promising turns and those beside them, in order, and their sessions.
    fn surroundings(
        &self,
        best: &[i64],
        scope: &Scope,
        range: &Range,
    ) -> rusqlite::Result<(Vec<Candidate>, BTreeMap<i64, u64>)> {
        let mut found: Vec<(Standing, Option<i64>)> = Vec::with_capacity(best.len() * 5);
        let mut sessions = BTreeMap::new();
        for standing in best.iter().filter_map(|seq| self.read.standing(*seq)) {
            let length = || self.read.length_of(standing.session);
            sessions.entry(i64::from(standing.session)).or_insert_with(length);
            let mut previous = None;
            for turn in self.read.window(standing, BESIDE) {
                found.push((*turn, previous));
                previous = Some(turn.seq);
            }
        }
        // Where one is found twice, it is known at the second place what stands before it.
        found.sort_unstable_by_key(|(turn, previous)| (turn.seq, previous.is_none()));
        found.dedup_by_key(|(turn, _)| turn.seq);
        let times = bounds(scope);
        let candidate = |(turn, previous): &(Standing, Option<i64>)| Candidate {
            seq: turn.seq,
            session: i64::from(turn.session),
            previous: *previous,
            ts: time(turn.ts),
            length: turn.length,
            counts: Vec::new(),
            vector: Arc::default(),
            model_vector: Vec::new(),
            in_scope: range.projects.contains(&i64::from(turn.project))
                && times.is_none_or(|(since, until)| (since..=until).contains(&turn.ts)),
        };
        let mut candidates: Vec<Candidate> = found.iter().map(candidate).collect();
        let turns = found.iter().map(|(turn, _)| turn);
        self.read.vectors(self.connection, turns, &mut candidates)?;
        Ok((candidates, sessions))
    }
}

/// Turns, terms and sessions of projects.
fn sums(connection: &Connection, projects: &[i64]) -> rusqlite::Result<(u64, u64, u64)> {
    let mut sum = (0, 0, 0);
    for project in projects {
        let row: Option<(i64, i64)> = connection
            .prepare_cached("SELECT turns, length FROM index_projects WHERE project = ?1")?
            .query_row([project], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let sessions: i64 = connection
            .prepare_cached("SELECT count(*) FROM sessions WHERE project = ?1")?
            .query_row([project], |row| row.get(0))?;
        let (turns, length) = row.unwrap_or_default();
        sum = (sum.0 + turns as u64, sum.1 + length as u64, sum.2 + sessions as u64);
    }
    Ok(sum)
}
