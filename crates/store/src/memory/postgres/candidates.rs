//! Reading the index: from the terms of a probe to the turns worth ranking. Nothing of it is kept between two questions;
//! all of one question is read in one snapshot.

use std::collections::{BTreeMap, HashMap, HashSet};

use hob_domain::StoreError;
use hob_domain::memory::{
    Candidate, CandidateQuery, CandidateSet, DocumentFrequency, KindVector, Scope,
};
use hob_index::postings::{Posting, TermHeader, decode_block};
use hob_index::selection::{Collection, MAX_RARE_POSTINGS};
use tokio_postgres::{Error, Row};

use super::cache::Held;
use super::cipher::{Body, Cipher, Name};
use super::nearest;
use super::rows::{ask, session_id};
use crate::memory::candidate_plan::{
    BESIDE, best_turns, bounds, common_terms_to_read, count_terms, document_frequency,
    session_statistics,
};
use crate::postgres::connections::{Client, Values};
use crate::values::time;

/// Of a session or a time with no more turns than this all are known before anything else is read.
const NARROW: i64 = 20_000;
/// Otherwise so many promising turns are looked at first, and then four times as many every time.
const FIRST_LOOK: usize = 512;

/// The part of the memory that a scope allows.
pub(super) struct Range {
    pub(super) projects: Vec<i64>,
    /// How many turns these have, and about how many there are of all speakers.
    pub(super) turns: u64,
    pub(super) of: u64,
    /// The turns of the session and the time asked for, in order, where they are not too many.
    pub(super) allowed: Option<Vec<i64>>,
    pub(super) session: Option<i64>,
    pub(super) times: Option<(i64, i64)>,
}

impl Range {
    fn has(&self, seq: i64) -> bool {
        self.allowed.as_ref().is_none_or(|all| all.binary_search(&seq).is_ok())
    }

    /// Whether more than the projects is asked for, and what that allows is not known.
    pub(super) fn is_open(&self) -> bool {
        self.allowed.is_none() && (self.session.is_some() || self.times.is_some())
    }
}

pub(super) async fn candidates(
    client: &Client,
    (cipher, held): (&Cipher, &Held),
    speaker: &str,
    scope: &Scope,
    probe: &CandidateQuery,
) -> Result<Result<CandidateSet, StoreError>, Error> {
    let question = Question { client, cipher, speaker, probe };
    let Some((range, sums)) = question.range(scope).await? else {
        return Ok(Ok(CandidateSet::default()));
    };
    // While the server reads words, what is near is looked for here.
    let (words, near) = tokio::join!(
        question.postings(&range, sums.turns),
        nearest::of_table(client, (cipher, held), &range, &probe.vector, probe.limit)
    );
    let ((index, frequencies), near) = (words?, near?);
    let has = |seq| range.has(seq);
    let most = if range.is_open() { usize::MAX } else { probe.limit };
    let collection = Collection { turns: sums.turns, length: sums.length };
    let mut best = best_turns(&index, &frequencies, probe, collection, has, most);
    if range.is_open() {
        best = allowed(client, &range, best, probe.limit).await?;
    }
    best.extend(near);
    if let Some(KindVector { kind, vector }) = &probe.model_vector {
        best.extend(nearest::of_model(client, cipher, *kind, &range, vector, probe.limit).await?);
    }
    let found = question.surroundings(&best).await?;
    let seqs: Vec<i64> = found.keys().copied().collect();
    let sessions: Vec<i64> =
        found.values().map(|(turn, _)| turn.session).collect::<HashSet<_>>().into_iter().collect();
    let kind = probe.model_vector.as_ref().map_or(-1, |finer| finer.kind.0);
    let (of_seqs, of_kind, of_sessions): (Values<'_>, Values<'_>, Values<'_>) =
        (&[&seqs], &[&kind, &seqs], &[&sessions]);
    let (vectors, finer, lengths) = tokio::try_join!(
        ask(client, "SELECT seq, vector FROM hob.memory_vectors WHERE seq = ANY($1)", of_seqs),
        ask(
            client,
            "SELECT seq, vector FROM hob.memory_model_vectors WHERE kind = $1 AND seq = ANY($2)",
            of_kind
        ),
        ask(client, "SELECT id, length FROM hob.memory_sessions WHERE id = ANY($1)", of_sessions),
    )?;
    let table = question.opened(&vectors, |seq| Body::Vector(speaker, seq));
    let finer = question.opened(&finer, |seq| Body::ModelVector(speaker, seq, kind));
    let (mut table, mut finer) = match table.and_then(|table| Ok((table, finer?))) {
        Ok(both) => both,
        Err(error) => return Ok(Err(error)),
    };
    let projects: HashSet<i64> = range.projects.iter().copied().collect();
    let candidate = |(seq, (turn, previous)): (i64, (Standing, Option<i64>))| Candidate {
        seq,
        session: turn.session,
        previous,
        ts: time(turn.ts),
        length: turn.length,
        counts: Vec::new(),
        vector: table.remove(&seq).unwrap_or_default().into(),
        model_vector: finer.remove(&seq).unwrap_or_default(),
        in_scope: projects.contains(&turn.project)
            && range.times.is_none_or(|(since, until)| (since..=until).contains(&turn.ts)),
    };
    let mut candidates: Vec<Candidate> = found.into_iter().map(candidate).collect();
    count_terms(&mut candidates, &index);
    let lengths: BTreeMap<i64, u64> =
        lengths.iter().map(|row| (row.get(0), row.get::<_, i64>(1).max(0) as u64)).collect();
    let session_statistics = session_statistics(lengths, &index);
    let Sums { turns, length, sessions } = sums;
    Ok(Ok(CandidateSet {
        turns,
        length,
        sessions,
        document_frequencies: frequencies,
        candidates,
        session_statistics,
    }))
}

/// What all turns of a scope's projects come to.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    turns: u64,
    length: u64,
    sessions: u64,
}

/// Where a turn stands.
#[derive(Debug, Clone, Copy)]
struct Standing {
    session: i64,
    project: i64,
    ts: i64,
    length: u32,
}

/// The first of these that the session and the time asked for allow.
pub(super) async fn allowed(
    client: &Client,
    range: &Range,
    promising: Vec<i64>,
    limit: usize,
) -> Result<Vec<i64>, Error> {
    let (since, until) = range.times.unwrap_or((i64::MIN, i64::MAX));
    let sql = "SELECT seq FROM hob.memory_standing WHERE seq = ANY($1)
         AND ts BETWEEN $2 AND $3 AND ($4::bigint IS NULL OR session = $4)";
    let (mut best, mut rest, mut look) = (Vec::new(), &promising[..], FIRST_LOOK);
    while !rest.is_empty() && best.len() < limit {
        let part;
        (part, rest) = rest.split_at(look.min(rest.len()));
        let rows = ask(client, sql, &[&part, &since, &until, &range.session]).await?;
        let allowed: HashSet<i64> = rows.iter().map(|row| row.get(0)).collect();
        best.extend(part.iter().filter(|seq| allowed.contains(seq)));
        look *= 4;
    }
    best.truncate(limit);
    Ok(best)
}

struct Question<'a> {
    client: &'a Client,
    cipher: &'a Cipher,
    speaker: &'a str,
    probe: &'a CandidateQuery,
}

impl Question<'_> {
    /// `None` when nothing can match.
    async fn range(&self, scope: &Scope) -> Result<Option<(Range, Sums)>, Error> {
        let root = scope.project.as_ref().map(|root| self.cipher.name_key(Name::Project, root));
        let sql = "SELECT id, turns, length, sessions,
                 (SELECT last_seq FROM hob.memory_state WHERE id = 1)
             FROM hob.memory_projects WHERE speaker = $1 AND ($2::bytea IS NULL OR root_key = $2) ORDER BY id";
        let rows = ask(self.client, sql, &[&self.speaker, &root]).await?;
        let session = match &scope.session {
            None => None,
            Some(name) => match session_id(self.client, self.cipher, self.speaker, name).await? {
                None => return Ok(None),
                found => found,
            },
        };
        if rows.is_empty() {
            return Ok(None);
        }
        let sum = |column: usize| -> u64 {
            rows.iter().map(|row| row.get::<_, i64>(column).max(0) as u64).sum()
        };
        let sums = Sums { turns: sum(1), length: sum(2), sessions: sum(3) };
        let mut range = Range {
            projects: rows.iter().map(|row| row.get(0)).collect(),
            turns: sums.turns,
            of: rows[0].get::<_, Option<i64>>(4).unwrap_or_default().max(0) as u64,
            allowed: None,
            session,
            times: bounds(scope),
        };
        if range.session.is_some() || range.times.is_some() {
            range.allowed = self.narrow(&range).await?;
        }
        Ok(Some((range, sums)))
    }

    /// All turns of the session and the time asked for; `None` when they are many.
    async fn narrow(&self, range: &Range) -> Result<Option<Vec<i64>>, Error> {
        let (since, until) = range.times.unwrap_or((i64::MIN, i64::MAX));
        let values: Values<'_> = &[&range.projects, &since, &until, &(NARROW + 1), &range.session];
        let sql = match range.session {
            Some(_) => {
                "SELECT seq FROM hob.memory_standing WHERE session = $5 AND project = ANY($1)
                 AND ts BETWEEN $2 AND $3 LIMIT $4"
            }
            None => {
                "SELECT seq FROM hob.memory_standing WHERE project = ANY($1)
                 AND ts BETWEEN $2 AND $3 AND $5::bigint IS NULL LIMIT $4"
            }
        };
        let rows = ask(self.client, sql, values).await?;
        let mut seqs: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        seqs.sort_unstable();
        Ok(Some(seqs).filter(|seqs| seqs.len() as i64 <= NARROW))
    }

    /// The postings of each term in order, and how common it is. Those that would cost more than they say are left
    /// out, and are only counted.
    async fn postings(
        &self,
        range: &Range,
        turns: u64,
    ) -> Result<(Vec<Vec<Posting>>, Vec<DocumentFrequency>), Error> {
        let codes: Vec<i64> =
            self.probe.terms.iter().map(|probed| self.cipher.term(&probed.term)).collect();
        let mut places: HashMap<i64, Vec<usize>> = HashMap::new();
        for (place, code) in codes.iter().enumerate() {
            places.entry(*code).or_default().push(place);
        }
        let mut index = vec![Vec::new(); codes.len()];
        let mut frequencies = vec![DocumentFrequency::default(); codes.len()];
        let values: Values<'_> = &[&range.projects, &codes];
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
        let of = |row: &Row| places.get(&row.get::<_, i64>(0)).into_iter().flatten();
        for row in &headers {
            let header = TermHeader::decode(row.get::<_, &[u8]>(1));
            for place in of(row) {
                frequencies[*place].turns += header.turns;
                frequencies[*place].sessions += header.sessions;
            }
        }
        let merged: Vec<u64> = frequencies.iter().map(|frequencies| frequencies.turns).collect();
        for row in &recent {
            for place in of(row) {
                let before = index[*place].len();
                decode_block(row.get(1), row.get(2), |posting| index[*place].push(posting));
                let more = document_frequency(&index[*place][before..]);
                frequencies[*place].turns += more.turns;
                frequencies[*place].sessions += more.sessions;
            }
        }
        let common: Vec<usize> =
            (0..codes.len()).filter(|place| merged[*place] > MAX_RARE_POSTINGS).collect();
        let few: Vec<usize> =
            (0..codes.len()).filter(|place| merged[*place] <= MAX_RARE_POSTINGS).collect();
        let read = few.iter().map(|place| frequencies[*place].turns).sum();
        let left_out: HashSet<usize> = common.iter().copied().collect();
        let mut chosen = common_terms_to_read(self.probe, turns, &frequencies, common, read);
        for place in left_out.iter().filter(|place| !chosen.contains(place)) {
            index[*place].clear();
        }
        chosen.extend(few);
        for place in &chosen {
            index[*place].reserve(merged[*place] as usize);
        }
        // Those of one run have no header.
        let wanted: Vec<i64> = chosen.iter().map(|place| codes[*place]).collect();
        let sql = "SELECT term, first, run FROM hob.memory_runs
             WHERE project = ANY($1) AND term = ANY($2) AND first > 0";
        for row in ask(self.client, sql, &[&range.projects, &wanted]).await? {
            for place in of(&row) {
                decode_block(row.get(1), row.get(2), |posting| index[*place].push(posting));
            }
        }
        for place in chosen {
            // Most are in order by now, and this one notices.
            index[place].sort_by_key(|posting| posting.seq);
            frequencies[place] = document_frequency(&index[place]);
        }
        Ok((index, frequencies))
    }

    /// The promising turns and those beside them, each with the one before it.
    async fn surroundings(
        &self,
        best: &[i64],
    ) -> Result<BTreeMap<i64, (Standing, Option<i64>)>, Error> {
        let sql = "SELECT w.seq, w.session, w.project, w.ts, w.length, b.place
             FROM unnest($1::bigint[]) WITH ORDINALITY b (seq, place)
             JOIN hob.memory_standing m ON m.seq = b.seq,
             LATERAL ((SELECT s.* FROM hob.memory_standing s WHERE s.session = m.session
                     AND (s.at, s.seq) <= (m.at, m.seq) ORDER BY s.at DESC, s.seq DESC LIMIT $2)
                 UNION ALL (SELECT s.* FROM hob.memory_standing s WHERE s.session = m.session
                     AND (s.at, s.seq) > (m.at, m.seq) ORDER BY s.at, s.seq LIMIT $3)) w
             WHERE m.speaker = $4 ORDER BY b.place, w.at, w.seq";
        let (before, behind) = (BESIDE as i64 + 1, BESIDE as i64);
        let rows = ask(self.client, sql, &[&best, &before, &behind, &self.speaker]).await?;
        let mut found: BTreeMap<i64, (Standing, Option<i64>)> = BTreeMap::new();
        let mut last: Option<(i64, i64)> = None;
        for row in &rows {
            let (seq, place): (i64, i64) = (row.get(0), row.get(5));
            let previous = last.filter(|(other, _)| *other == place).map(|(_, seq)| seq);
            let standing = Standing {
                session: row.get(1),
                project: row.get(2),
                ts: row.get(3),
                length: row.get::<_, i32>(4).max(0) as u32,
            };
            let known = found.entry(seq).or_insert((standing, None));
            known.1 = known.1.or(previous);
            last = Some((place, seq));
        }
        Ok(found)
    }

    fn opened<'s>(
        &self,
        rows: &[Row],
        of: impl Fn(i64) -> Body<'s>,
    ) -> Result<HashMap<i64, Vec<i8>>, StoreError> {
        let one = |row: &Row| {
            let seq = row.get(0);
            Ok((seq, self.cipher.open_vector(of(seq), row.get(1))?))
        };
        rows.iter().map(one).collect()
    }
}
