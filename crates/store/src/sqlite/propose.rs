//! Reading the index: from the terms of a probe to the turns worth ranking.

use std::collections::{BTreeMap, HashMap, HashSet};

use hob_domain::Timestamp;
use hob_domain::memory::{Candidate, Context, Count, KindVector, Probe, Proposal, Scope, Spread};
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use super::codes::{ModelCodes, Source, TableCodes};
use super::memory_rows::time;
use super::postings::{Posting, length_of, unpack};
use super::{earlier_index, model_vectors, store_turns};

/// How many turns before and behind a promising one come with it.
const BESIDE: usize = 2;
/// Which turns are promising is told by BM25 with these.
const SATURATION: f32 = 0.7;
const LENGTH_SHARE: f32 = 0.25;

/// The part of the index that a scope allows.
pub(super) struct Range {
    pub(super) projects: Vec<i64>,
    pub(super) session: Option<i64>,
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

pub(super) fn propose(
    connection: &Connection,
    codes: &AllCodes,
    speaker: &str,
    scope: &Scope,
    probe: &Probe,
) -> rusqlite::Result<Proposal> {
    let Some(range) = range(connection, speaker, scope)? else { return Ok(Proposal::default()) };
    let (turns, length, sessions) = sums(connection, &range.projects)?;
    let mut index = Vec::with_capacity(probe.terms.len());
    let mut spread = Vec::with_capacity(probe.terms.len());
    for probed in &probe.terms {
        let all = postings(connection, &probed.term, &range.projects)?;
        spread.push(spread_of(&all));
        index.push(all);
    }
    let mut best = promising(&index, &spread, probe, &range, (turns, length));
    let (table, vector) = (&Source::TABLE, &probe.vector);
    best.extend(codes.table.nearest(connection, table, &range, vector, probe.limit)?);
    if let Some(KindVector { kind, vector }) = &probe.finer {
        let source = Source::of(*kind);
        best.extend(codes.model.nearest(connection, &source, &range, vector, probe.limit)?);
    }
    let (mut candidates, in_sessions) = surroundings(connection, &best, scope, &range)?;
    if let Some(finer) = &probe.finer {
        model_vectors::fill(connection, finer.kind, &mut candidates)?;
    }
    for candidate in &mut candidates {
        candidate.counts = counts_of(&index, candidate.seq);
    }
    let contexts = contexts(connection, &index, &in_sessions)?;
    let earlier = earlier_index::candidates(connection, speaker, scope, &range, probe)?;
    let partial = earlier.is_some();
    for candidate in earlier.unwrap_or_default() {
        if let Err(place) = candidates.binary_search_by_key(&candidate.seq, |other| other.seq) {
            candidates.insert(place, candidate);
        }
    }
    Ok(Proposal { turns, length, sessions, spread, candidates, contexts, partial })
}

/// `None` when nothing can match.
fn range(connection: &Connection, speaker: &str, scope: &Scope) -> rusqlite::Result<Option<Range>> {
    let projects: Vec<i64> = connection
        .prepare_cached("SELECT id FROM projects WHERE speaker = ?1 AND (?2 IS NULL OR root = ?2)")?
        .query_map(params![speaker, scope.project], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let session = match &scope.session {
        None => None,
        Some(name) => {
            let found = store_turns::session_of(connection, speaker, name)?;
            if found.is_none() {
                return Ok(None);
            }
            found
        }
    };
    if projects.is_empty() {
        return Ok(None);
    }
    let allowed = match (session, bounds(scope)) {
        (None, None) => None,
        (Some(session), time) => {
            let (since, until) = time.unwrap_or((i64::MIN, i64::MAX));
            let sql = "SELECT i.seq FROM turns t JOIN indexed i ON i.seq = t.seq
                       WHERE t.session = ?1 AND i.ts BETWEEN ?2 AND ?3";
            Some(numbers(connection, sql, [&[session][..], &[since, until]].concat())?)
        }
        (None, Some((since, until))) => {
            let sql = "SELECT seq FROM indexed WHERE project = ?1 AND ts BETWEEN ?2 AND ?3";
            let mut all = Vec::new();
            for project in &projects {
                all.extend(numbers(connection, sql, vec![*project, since, until])?);
            }
            Some(all)
        }
    };
    let allowed = allowed.map(|mut all| {
        all.sort_unstable();
        all
    });
    Ok(Some(Range { projects, session, allowed }))
}

fn numbers(connection: &Connection, sql: &str, parameters: Vec<i64>) -> rusqlite::Result<Vec<i64>> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(params_from_iter(parameters), |row| row.get(0))?;
    rows.collect()
}

/// The time asked for, in microseconds.
pub(super) fn bounds(scope: &Scope) -> Option<(i64, i64)> {
    if scope.since.is_none() && scope.until.is_none() {
        return None;
    }
    Some((
        scope.since.map_or(i64::MIN, Timestamp::as_microsecond),
        scope.until.map_or(i64::MAX, Timestamp::as_microsecond),
    ))
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

/// All postings of a term in order.
fn postings(
    connection: &Connection,
    term: &str,
    projects: &[i64],
) -> rusqlite::Result<Vec<Posting>> {
    let mut all = Vec::new();
    let mut read = |first: i64, run: &[u8]| unpack(first, run, |posting| all.push(posting));
    if let [project] = projects {
        let mut statement = connection.prepare_cached(
            "SELECT first, run FROM postings WHERE term = ?1 AND project = ?2 ORDER BY first",
        )?;
        let mut rows = statement.query(params![term, project])?;
        while let Some(row) = rows.next()? {
            read(row.get(0)?, row.get_ref(1)?.as_blob()?);
        }
        return Ok(all);
    }
    let wanted: HashSet<i64> = projects.iter().copied().collect();
    let mut statement =
        connection.prepare_cached("SELECT first, run, project FROM postings WHERE term = ?1")?;
    let mut rows = statement.query(params![term])?;
    while let Some(row) = rows.next()? {
        if wanted.contains(&row.get(2)?) {
            read(row.get(0)?, row.get_ref(1)?.as_blob()?);
        }
    }
    all.sort_unstable_by_key(|posting| posting.seq);
    Ok(all)
}

fn spread_of(postings: &[Posting]) -> Spread {
    // Turns of one session follow each other, with few exceptions.
    let sessions = postings.chunk_by(|a, b| a.session == b.session).count();
    Spread { turns: postings.len() as u64, sessions: sessions as u64 }
}

/// The turns that have the most of what is looked for, best first.
fn promising(
    index: &[Vec<Posting>],
    spread: &[Spread],
    probe: &Probe,
    range: &Range,
    (turns, length): (u64, u64),
) -> Vec<i64> {
    let ends = |end: fn(&Vec<Posting>) -> Option<&Posting>| {
        index.iter().filter_map(end).map(|posting| posting.seq)
    };
    let (Some(low), Some(high)) = (ends(|p| p.first()).min(), ends(|p| p.last()).max()) else {
        return Vec::new();
    };
    let usual = length as f32 / (turns as f32).max(1.0);
    // One place for every turn between the first and the last: only what is touched costs memory.
    let mut scores = vec![0_f32; (high - low) as usize + 1];
    for ((postings, spread), probed) in index.iter().zip(spread).zip(&probe.terms) {
        let rarity = ((turns as f32 - spread.turns as f32 + 0.5) / (spread.turns as f32 + 0.5)
            + 1.0)
            .max(1.0)
            .ln();
        let weight = probed.weight * rarity * (SATURATION + 1.0);
        for posting in postings.iter().filter(|posting| range.has(posting.seq)) {
            let times = f32::from(posting.times);
            let share = length_of(posting.length) / usual.max(1.0);
            let damp = SATURATION * (1.0 - LENGTH_SHARE + LENGTH_SHARE * share);
            scores[(posting.seq - low) as usize] += weight * times / (times + damp);
        }
    }
    let mut found: Vec<(f32, i64)> = Vec::new();
    for posting in index.iter().flatten() {
        let score = std::mem::take(&mut scores[(posting.seq - low) as usize]);
        if score > 0.0 {
            found.push((score, posting.seq));
        }
    }
    let order = |a: &(f32, i64), b: &(f32, i64)| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1));
    if found.len() > probe.limit && probe.limit > 0 {
        found.select_nth_unstable_by(probe.limit - 1, order);
        found.truncate(probe.limit);
    }
    found.sort_unstable_by(order);
    found.into_iter().map(|(_, seq)| seq).collect()
}

/// How often each term occurs in a turn.
fn counts_of(index: &[Vec<Posting>], seq: i64) -> Vec<Count> {
    let count = |(term, postings): (usize, &Vec<Posting>)| {
        let place = postings.binary_search_by_key(&seq, |posting| posting.seq).ok()?;
        Some(Count { term, times: u32::from(postings[place].times) })
    };
    index.iter().enumerate().filter_map(count).collect()
}

/// The promising turns and those beside them, in order, and their sessions.
fn surroundings(
    connection: &Connection,
    best: &[i64],
    scope: &Scope,
    range: &Range,
) -> rusqlite::Result<(Vec<Candidate>, HashSet<i64>)> {
    let mut rows = Rows::new(connection)?;
    let mut found: BTreeMap<i64, Candidate> = BTreeMap::new();
    let mut sessions = HashSet::new();
    let mut add = |rows: &mut Rows<'_>, seq: i64| -> rusqlite::Result<Option<(i64, i64)>> {
        let Some(row) = rows.row(seq)? else { return Ok(None) };
        let timely = bounds(scope).is_none_or(|(since, until)| (since..=until).contains(&row.ts));
        let place = (row.session, row.at);
        let candidate = Candidate {
            seq,
            session: row.session,
            previous: None,
            ts: time(row.ts),
            length: row.length,
            counts: Vec::new(),
            vector: row.vector,
            finer: Vec::new(),
            in_scope: timely && range.projects.contains(&row.project),
        };
        found.insert(seq, candidate);
        Ok(Some(place))
    };
    let mut known: HashMap<i64, Option<(i64, i64)>> = HashMap::new();
    let mut links = Vec::new();
    for seq in best {
        let place = match known.get(seq) {
            Some(place) => *place,
            None => *known.entry(*seq).or_insert(add(&mut rows, *seq)?),
        };
        let Some((session, at)) = place else { continue };
        sessions.insert(session);
        let window = rows.window(session, at, *seq)?;
        for beside in &window {
            if !known.contains_key(beside) {
                known.insert(*beside, add(&mut rows, *beside)?);
            }
        }
        links.extend(window.windows(2).map(|pair| (pair[0], pair[1])));
    }
    for (before, seq) in links {
        if let Some(candidate) = found.get_mut(&seq) {
            candidate.previous = Some(before);
        }
    }
    Ok((found.into_values().collect(), sessions))
}

struct Row {
    project: i64,
    session: i64,
    ts: i64,
    at: i64,
    length: u32,
    vector: Vec<i8>,
}

/// Reads what the index knows of turns.
struct Rows<'a> {
    row: rusqlite::CachedStatement<'a>,
    before: rusqlite::CachedStatement<'a>,
    behind: rusqlite::CachedStatement<'a>,
}

impl<'a> Rows<'a> {
    fn new(connection: &'a Connection) -> rusqlite::Result<Rows<'a>> {
        let beside = |sign: &str, order: &str| {
            connection.prepare_cached(&format!(
                "SELECT seq FROM turns WHERE session = ?1 AND (at, seq) {sign} (?2, ?3)
                 ORDER BY at {order}, seq {order} LIMIT {BESIDE}"
            ))
        };
        Ok(Rows {
            row: connection.prepare_cached(
                "SELECT i.project, i.session, i.ts, i.at, i.length, v.vector FROM indexed i
                 LEFT JOIN vectors v ON v.project = i.project AND v.seq = i.seq WHERE i.seq = ?1",
            )?,
            before: beside("<", "DESC")?,
            behind: beside(">", "ASC")?,
        })
    }

    fn row(&mut self, seq: i64) -> rusqlite::Result<Option<Row>> {
        let read = |row: &rusqlite::Row<'_>| {
            let vector = row.get_ref(5)?.as_blob_or_null()?.unwrap_or_default();
            Ok(Row {
                project: row.get(0)?,
                session: row.get(1)?,
                ts: row.get(2)?,
                at: row.get(3)?,
                length: row.get(4)?,
                vector: vector.iter().map(|byte| byte.cast_signed()).collect(),
            })
        };
        self.row.query_row([seq], read).optional()
    }

    /// A turn between those beside it, in the order they were said.
    fn window(&mut self, session: i64, at: i64, seq: i64) -> rusqlite::Result<Vec<i64>> {
        let mut window = Vec::with_capacity(2 * BESIDE + 1);
        let mut rows = self.before.query([session, at, seq])?;
        while let Some(row) = rows.next()? {
            window.push(row.get(0)?);
        }
        window.reverse();
        window.push(seq);
        let mut rows = self.behind.query([session, at, seq])?;
        while let Some(row) = rows.next()? {
            window.push(row.get(0)?);
        }
        Ok(window)
    }
}

/// What the sessions of candidates have as a whole.
fn contexts(
    connection: &Connection,
    index: &[Vec<Posting>],
    sessions: &HashSet<i64>,
) -> rusqlite::Result<Vec<Context>> {
    let mut contexts: BTreeMap<i64, Context> = BTreeMap::new();
    let mut statement =
        connection.prepare_cached("SELECT length FROM index_sessions WHERE session = ?1")?;
    for session in sessions {
        let length: Option<i64> = statement.query_row([session], |row| row.get(0)).optional()?;
        let length = length.unwrap_or_default() as u64;
        contexts.insert(*session, Context { session: *session, length, counts: Vec::new() });
    }
    for (term, postings) in index.iter().enumerate() {
        for part in postings.chunk_by(|a, b| a.session == b.session) {
            let Some(context) = contexts.get_mut(&part[0].session) else { continue };
            let times: u32 = part.iter().map(|posting| u32::from(posting.times)).sum();
            match context.counts.last_mut() {
                Some(last) if last.term == term => last.times += times,
                _ => context.counts.push(Count { term, times }),
            }
        }
    }
    Ok(contexts.into_values().collect())
}
