//! Answering a candidate query: from terms and vectors to the turns worth ranking.
//!
//! A query reads the posting lists of its terms, adds the recent turns that are not merged into
//! them yet, scores all turns with BM25, and takes the best. The nearest turns by vector are added,
//! then the neighbours of all of them in their sessions.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use hob_domain::memory::{
    Candidate, CandidateQuery, CandidateSet, DocumentFrequency, KindVector, Scope,
};
use hob_index::postings::{HEADER_SEQ, Posting, TermHeader, decode_block};
use hob_index::selection::{Collection, MAX_RARE_POSTINGS};
use rusqlite::{CachedStatement, Connection, params};

use super::cache::{CachedIndex, IndexCache};
use super::metadata::TurnMetadata;
use super::postings::MergeState;
use super::rows::time;
use super::scope::{self, CollectionSums};
use super::sign_codes::{CodeCaches, CodeSource};
use super::vectors;
use crate::memory::candidate_plan::{
    NEIGHBOURS, Neighbourhoods, QueryPostings, document_frequency,
};
use crate::memory::range::SearchRange;

/// A list's header may ask to reserve room for at most this many postings; it could be damaged.
const MAX_RESERVED_POSTINGS: usize = 1 << 20;
/// A query that came in the middle of a merge is repeated this many times before the cache is
/// dropped.
const MAX_ATTEMPTS: usize = 5;

/// The caches of a process.
#[derive(Clone, Copy)]
pub(super) struct Caches<'a> {
    pub(super) index: &'a IndexCache,
    pub(super) codes: &'a CodeCaches,
}

/// Reads everything in one transaction, so that the cache and the file are of one state.
pub(super) fn candidates(
    connection: &Connection,
    caches: Caches<'_>,
    speaker: &str,
    scope: &Scope,
    query: &CandidateQuery,
) -> rusqlite::Result<CandidateSet> {
    for attempt in 0.. {
        if attempt == MAX_ATTEMPTS {
            // The cache is newer than the file: an older file was put in its place.
            caches.index.clear();
        }
        let transaction = connection.unchecked_transaction()?;
        let state = MergeState::read(&transaction)?;
        let Some(cached) = caches.index.read(&transaction, &state)? else { continue };
        let Some(range) = scope::range(&transaction, &cached, speaker, scope)? else { break };
        let search =
            CandidateSearch { connection: &transaction, cached: &cached, state: &state, range };
        return search.candidates(caches.codes, query);
    }
    Ok(CandidateSet::default())
}

/// One query on one state of the index.
struct CandidateSearch<'a> {
    connection: &'a Connection,
    cached: &'a CachedIndex,
    state: &'a MergeState,
    range: SearchRange,
}

/// The postings of a term, or only their number if there are too many to read.
enum TermPostings {
    Read(Vec<Posting>),
    Counted(DocumentFrequency),
}

impl CandidateSearch<'_> {
    fn candidates(
        &self,
        codes: &CodeCaches,
        query: &CandidateQuery,
    ) -> rusqlite::Result<CandidateSet> {
        let (connection, range) = (self.connection, &self.range);
        let CollectionSums { turns, length, sessions } =
            CollectionSums::read(connection, &range.projects)?;
        let read = self.postings(query, turns)?;
        let collection = Collection { turns, length };
        let mut best = read.best_turns(query, collection, |seq| range.allows(seq), query.limit);
        let (source, vector) = (&CodeSource::TABLE, &query.vector);
        best.extend(codes.table.nearest(connection, source, range, vector, query.limit)?);
        if let Some(KindVector { kind, vector }) = &query.model_vector {
            let source = CodeSource::of(*kind);
            best.extend(codes.model.nearest(connection, &source, range, vector, query.limit)?);
        }
        let (mut candidates, session_lengths) = self.with_neighbours(&best)?;
        if let Some(KindVector { kind, .. }) = &query.model_vector {
            vectors::fill(connection, *kind, &mut candidates)?;
        }
        read.count_terms(&mut candidates);
        let session_statistics = read.session_statistics(session_lengths);
        Ok(CandidateSet {
            turns,
            length,
            sessions,
            document_frequencies: read.frequencies,
            candidates,
            session_statistics,
        })
    }

    /// Reads the postings of each term. Those that would cost more than they tell are only counted.
    fn postings(&self, query: &CandidateQuery, turns: u64) -> rusqlite::Result<QueryPostings> {
        let projects: HashSet<u32> = self.range.projects.iter().map(|id| *id as u32).collect();
        let mut read = QueryPostings::empty(query.terms.len());
        let mut common = Vec::new();
        let mut blocks = self
            .connection
            .prepare_cached("SELECT first, run FROM postings WHERE term = ?1 AND project = ?2")?;
        for (place, term) in query.terms.iter().enumerate() {
            match self.of_term(&mut blocks, &term.term, &projects, MAX_RARE_POSTINGS)? {
                TermPostings::Read(all) => {
                    read.frequencies[place] = document_frequency(&all);
                    read.postings[place] = all;
                }
                TermPostings::Counted(frequency) => {
                    read.frequencies[place] = frequency;
                    common.push(place);
                }
            }
        }
        let rare: u64 = read.postings.iter().map(|all| all.len() as u64).sum();
        for place in read.common_terms_to_read(query, turns, common, rare) {
            let term = &query.terms[place].term;
            if let TermPostings::Read(all) = self.of_term(&mut blocks, term, &projects, u64::MAX)? {
                read.frequencies[place] = document_frequency(&all);
                read.postings[place] = all;
            }
        }
        Ok(read)
    }

    /// Reads all postings of a term in the order of their turns, if they are at most `max`.
    fn of_term(
        &self,
        blocks: &mut CachedStatement<'_>,
        term: &str,
        projects: &HashSet<u32>,
        max: u64,
    ) -> rusqlite::Result<TermPostings> {
        let recent = self.cached.recent(term, self.state.merged_up_to(term), projects);
        let mut merged = DocumentFrequency::default();
        let mut all = Vec::new();
        for project in &self.range.projects {
            let mut rows = blocks.query(params![term, project])?;
            while let Some(row) = rows.next()? {
                let (first_seq, bytes) = (row.get(0)?, row.get_ref(1)?.as_blob()?);
                if first_seq > HEADER_SEQ {
                    decode_block(first_seq, bytes, |posting| all.push(posting));
                    continue;
                }
                let header = TermHeader::decode(bytes);
                merged.turns += header.turns;
                merged.sessions += header.sessions;
                if merged.turns > max {
                    break;
                }
                all.reserve((header.turns as usize).min(MAX_RESERVED_POSTINGS));
            }
        }
        if merged.turns > max {
            let recent = recent.iter().map(|some| some.len() as u64).sum::<u64>();
            merged.turns += recent;
            merged.sessions += recent;
            return Ok(TermPostings::Counted(merged));
        }
        recent.iter().for_each(|some| all.extend_from_slice(some));
        if self.range.projects.len() > 1 {
            all.sort_unstable_by_key(|posting| posting.seq);
        }
        Ok(TermPostings::Read(all))
    }

    /// Returns turns with their neighbours as candidates, in order, and the lengths of the turns'
    /// sessions.
    fn with_neighbours(
        &self,
        best: &[i64],
    ) -> rusqlite::Result<(Vec<Candidate>, BTreeMap<i64, u64>)> {
        let mut found = Neighbourhoods::with_capacity(best.len());
        let mut session_lengths = BTreeMap::new();
        for turn in best.iter().filter_map(|seq| self.cached.metadata(*seq)) {
            let length = || self.cached.session_length(turn.session);
            session_lengths.entry(i64::from(turn.session)).or_insert_with(length);
            found.add(self.cached.window(turn, NEIGHBOURS).map(|turn| (turn.seq, *turn)));
        }
        let found = found.into_turns();
        let candidate = |(seq, previous, turn): &(i64, Option<i64>, TurnMetadata)| Candidate {
            seq: *seq,
            session: i64::from(turn.session),
            previous: *previous,
            ts: time(turn.ts),
            length: turn.length,
            counts: Vec::new(),
            vector: Arc::default(),
            model_vector: Vec::new(),
            in_scope: self.range.has_project(i64::from(turn.project))
                && self.range.has_time(turn.ts),
        };
        let mut candidates: Vec<Candidate> = found.iter().map(candidate).collect();
        let turns = found.iter().map(|(_, _, turn)| turn);
        self.cached.fill_vectors(self.connection, turns, &mut candidates)?;
        Ok((candidates, session_lengths))
    }
}
