//! Answering a candidate query: from terms and vectors to the turns worth ranking.
//!
//! The plan is that of the SQLite store. A query reads the posting lists of its terms, scores all
//! turns with BM25, and takes the best. The nearest turns by vector are added, then the neighbours
//! of all of them in their sessions. Everything is read in one snapshot; nothing but sign codes is
//! kept between two queries.

use std::collections::{BTreeMap, HashMap, HashSet};

use hob_domain::StoreError;
use hob_domain::memory::{Candidate, CandidateQuery, CandidateSet, Scope};
use hob_index::postings::{TermHeader, decode_block};
use hob_index::selection::{Collection, MAX_RARE_POSTINGS};
use tokio_postgres::{Error, Row};

use super::cache::CodeCache;
use super::cipher::{Body, Cipher};
use super::nearest::{NearestSearch, by_model, by_table};
use super::rows::ask;
use super::scope::{self, CollectionSums};
use crate::memory::candidate_plan::{
    NEIGHBOURS, Neighbourhoods, QueryPostings, document_frequency,
};
use crate::memory::range::SearchRange;
use crate::postgres::connections::{Client, Values};
use crate::values::time;

/// One query in one snapshot.
#[derive(Clone, Copy)]
pub(super) struct CandidateSearch<'a> {
    pub(super) client: &'a Client,
    pub(super) cipher: &'a Cipher,
    pub(super) codes: &'a CodeCache,
    pub(super) speaker: &'a str,
    pub(super) query: &'a CandidateQuery,
}

/// The metadata of a turn.
#[derive(Debug, Clone, Copy)]
struct TurnMetadata {
    session: i64,
    project: i64,
    ts: i64,
    length: u32,
}

/// The vectors of candidates, by turn.
struct CandidateVectors {
    table: HashMap<i64, Vec<i8>>,
    model: HashMap<i64, Vec<i8>>,
}

impl CandidateSearch<'_> {
    pub(super) async fn candidates(
        self,
        scope: &Scope,
    ) -> Result<Result<CandidateSet, StoreError>, Error> {
        let CandidateSearch { client, cipher, query, .. } = self;
        let Some((range, sums)) = scope::range(client, cipher, self.speaker, scope).await? else {
            return Ok(Ok(CandidateSet::default()));
        };
        let CollectionSums { turns, length, sessions, .. } = sums;
        let nearest = NearestSearch { client, cipher, range: &range, limit: query.limit };
        // While the server reads postings, this process compares sign codes.
        let (read, near) = tokio::join!(
            self.postings(&range, turns),
            by_table(nearest, self.codes, &query.vector)
        );
        let (read, near) = (read?, near?);
        let limit = if range.is_unlisted() { usize::MAX } else { query.limit };
        let collection = Collection { turns, length };
        let mut best = read.best_turns(query, collection, |seq| range.allows(seq), limit);
        if range.is_unlisted() {
            best = scope::first_allowed(client, &range, &best, query.limit).await?;
        }
        best.extend(near);
        if let Some(vector) = &query.model_vector {
            best.extend(by_model(nearest, sums, vector).await?);
        }
        let found = self.with_neighbours(&best).await?;
        let (vectors, session_lengths) = self.details(&found).await?;
        let mut candidates = match vectors {
            Ok(vectors) => candidates(found, vectors, &range),
            Err(error) => return Ok(Err(error)),
        };
        read.count_terms(&mut candidates);
        let session_statistics = read.session_statistics(session_lengths);
        Ok(Ok(CandidateSet {
            turns,
            length,
            sessions,
            document_frequencies: read.frequencies,
            candidates,
            session_statistics,
        }))
    }

    /// Reads the postings of each term in order. Those that would cost more than they tell are only
    /// counted.
    async fn postings(&self, range: &SearchRange, turns: u64) -> Result<QueryPostings, Error> {
        let terms: Vec<i64> =
            self.query.terms.iter().map(|term| self.cipher.term(&term.term)).collect();
        let mut places: HashMap<i64, Vec<usize>> = HashMap::new();
        for (place, term) in terms.iter().enumerate() {
            places.entry(*term).or_default().push(place);
        }
        let places_of = |row: &Row| places.get(&row.get::<_, i64>(0)).into_iter().flatten();
        let mut read = QueryPostings::empty(terms.len());
        let merged = self.recent_postings(range, &terms, &mut read, places_of).await?;
        let (common, rare): (Vec<usize>, Vec<usize>) =
            (0..terms.len()).partition(|place| merged[*place] > MAX_RARE_POSTINGS);
        let rare_turns = rare.iter().map(|place| read.frequencies[*place].turns).sum();
        let mut chosen = read.common_terms_to_read(self.query, turns, common.clone(), rare_turns);
        for place in common.iter().filter(|place| !chosen.contains(place)) {
            read.postings[*place].clear();
        }
        chosen.extend(rare);
        for place in &chosen {
            read.postings[*place].reserve(merged[*place] as usize);
        }
        // A list of one block has no header, so it is read here without having been counted.
        let chosen_terms: Vec<i64> = chosen.iter().map(|place| terms[*place]).collect();
        let sql = "SELECT term, first, run FROM hob.memory_runs
             WHERE project = ANY($1) AND term = ANY($2) AND first > 0";
        for row in ask(self.client, sql, &[&range.projects, &chosen_terms]).await? {
            for place in places_of(&row) {
                let postings = &mut read.postings[*place];
                decode_block(row.get(1), row.get(2), |posting| postings.push(posting));
            }
        }
        for place in chosen {
            // Most lists are in order by now, which makes this sort cheap.
            read.postings[place].sort_by_key(|posting| posting.seq);
            read.frequencies[place] = document_frequency(&read.postings[place]);
        }
        Ok(read)
    }

    /// Reads the headers of terms and their postings that are not merged yet. Returns how many
    /// merged postings the headers count for each term.
    async fn recent_postings<'p, I: Iterator<Item = &'p usize>>(
        &self,
        range: &SearchRange,
        terms: &Vec<i64>,
        read: &mut QueryPostings,
        places_of: impl Fn(&Row) -> I,
    ) -> Result<Vec<u64>, Error> {
        let values: Values<'_> = &[&range.projects, terms];
        let (headers, recent) = tokio::try_join!(
            ask(
                self.client,
                "SELECT term, run FROM hob.memory_runs
                 WHERE project = ANY($1) AND term = ANY($2) AND first = 0",
                values
            ),
            ask(
                self.client,
                "SELECT term, first, run FROM hob.memory_recent
                 WHERE project = ANY($1) AND term = ANY($2)",
                values
            ),
        )?;
        for row in &headers {
            let header = TermHeader::decode(row.get::<_, &[u8]>(1));
            for place in places_of(row) {
                read.frequencies[*place].turns += header.turns;
                read.frequencies[*place].sessions += header.sessions;
            }
        }
        let merged = read.frequencies.iter().map(|frequency| frequency.turns).collect();
        for row in &recent {
            for place in places_of(row) {
                let postings = &mut read.postings[*place];
                let before = postings.len();
                decode_block(row.get(1), row.get(2), |posting| postings.push(posting));
                let more = document_frequency(&postings[before..]);
                read.frequencies[*place].turns += more.turns;
                read.frequencies[*place].sessions += more.sessions;
            }
        }
        Ok(merged)
    }

    /// Returns turns with their neighbours, in order, each with the turn before it.
    async fn with_neighbours(
        &self,
        best: &[i64],
    ) -> Result<Vec<(i64, Option<i64>, TurnMetadata)>, Error> {
        let sql = "SELECT w.seq, w.session, w.project, w.ts, w.length, b.place
             FROM unnest($1::bigint[]) WITH ORDINALITY b (seq, place)
             JOIN hob.memory_standing m ON m.seq = b.seq,
             LATERAL ((SELECT s.* FROM hob.memory_standing s WHERE s.session = m.session
                     AND (s.at, s.seq) <= (m.at, m.seq) ORDER BY s.at DESC, s.seq DESC LIMIT $2)
                 UNION ALL (SELECT s.* FROM hob.memory_standing s WHERE s.session = m.session
                     AND (s.at, s.seq) > (m.at, m.seq) ORDER BY s.at, s.seq LIMIT $3)) w
             WHERE m.speaker = $4 ORDER BY b.place, w.at, w.seq";
        let (before, after) = (NEIGHBOURS as i64 + 1, NEIGHBOURS as i64);
        let rows = ask(self.client, sql, &[&best, &before, &after, &self.speaker]).await?;
        let turn = |row: &Row| {
            let metadata = TurnMetadata {
                session: row.get(1),
                project: row.get(2),
                ts: row.get(3),
                length: row.get::<_, i32>(4).max(0) as u32,
            };
            (row.get(0), metadata)
        };
        let mut found = Neighbourhoods::with_capacity(best.len());
        for window in rows.chunk_by(|a, b| a.get::<_, i64>(5) == b.get::<_, i64>(5)) {
            found.add(window.iter().map(turn));
        }
        Ok(found.into_turns())
    }

    /// Reads the vectors of turns and the lengths of their sessions.
    async fn details(
        &self,
        turns: &[(i64, Option<i64>, TurnMetadata)],
    ) -> Result<(Result<CandidateVectors, StoreError>, BTreeMap<i64, u64>), Error> {
        let seqs: Vec<i64> = turns.iter().map(|(seq, ..)| *seq).collect();
        let sessions: HashSet<i64> = turns.iter().map(|(.., turn)| turn.session).collect();
        let sessions: Vec<i64> = sessions.into_iter().collect();
        let kind = self.query.model_vector.as_ref().map_or(-1, |vector| vector.kind.0);
        let (of_seqs, of_kind, of_sessions): (Values<'_>, Values<'_>, Values<'_>) =
            (&[&seqs], &[&kind, &seqs], &[&sessions]);
        let (table, model, lengths) = tokio::try_join!(
            ask(
                self.client,
                "SELECT seq, vector FROM hob.memory_vectors WHERE seq = ANY($1)",
                of_seqs
            ),
            ask(
                self.client,
                "SELECT seq, vector FROM hob.memory_model_vectors
                 WHERE kind = $1 AND seq = ANY($2)",
                of_kind
            ),
            ask(
                self.client,
                "SELECT id, length FROM hob.memory_sessions WHERE id = ANY($1)",
                of_sessions
            ),
        )?;
        let table = self.decrypt(&table, |seq| Body::Vector(self.speaker, seq));
        let model = self.decrypt(&model, |seq| Body::ModelVector(self.speaker, seq, kind));
        let vectors = table.and_then(|table| Ok(CandidateVectors { table, model: model? }));
        let lengths =
            lengths.iter().map(|row| (row.get(0), row.get::<_, i64>(1).max(0) as u64)).collect();
        Ok((vectors, lengths))
    }

    fn decrypt<'s>(
        &self,
        rows: &[Row],
        body: impl Fn(i64) -> Body<'s>,
    ) -> Result<HashMap<i64, Vec<i8>>, StoreError> {
        let vector = |row: &Row| {
            let seq = row.get(0);
            Ok((seq, self.cipher.open_vector(body(seq), row.get(1))?))
        };
        rows.iter().map(vector).collect()
    }
}

fn candidates(
    turns: Vec<(i64, Option<i64>, TurnMetadata)>,
    mut vectors: CandidateVectors,
    range: &SearchRange,
) -> Vec<Candidate> {
    let candidate = |(seq, previous, turn): (i64, Option<i64>, TurnMetadata)| Candidate {
        seq,
        session: turn.session,
        previous,
        ts: time(turn.ts),
        length: turn.length,
        counts: Vec::new(),
        vector: vectors.table.remove(&seq).unwrap_or_default().into(),
        model_vector: vectors.model.remove(&seq).unwrap_or_default(),
        in_scope: range.has_project(turn.project) && range.has_time(turn.ts),
    };
    turns.into_iter().map(candidate).collect()
}
