//! Reading the index: from the terms of a probe to the turns worth ranking.

use std::collections::{BTreeMap, HashMap, HashSet};

use hob_domain::Timestamp;
use hob_domain::memory::{Candidate, Context, Count, KindVector, Probe, Proposal, Scope, Spread};
use rusqlite::{Connection, OptionalExtension, params};

use super::codes::{ModelCodes, Source, TableCodes};
use super::held::{Held, Read, Standing};
use super::memory_index::State;
use super::memory_rows::time;
use super::postings::{Header, Posting, length_of, unpack};
use super::{earlier_index, model_vectors, store_turns};

/// How many turns before and behind a promising one come with it.
const BESIDE: usize = 2;
/// Which turns are promising is told by BM25 with these.
const SATURATION: f32 = 0.7;
const LENGTH_SHARE: f32 = 0.25;
/// So many postings are read for a probe; terms that say less than others are left out for it. The
/// most telling ones are read however common they are.
const MOST_READ: u64 = 150_000;
const MOST_TELLING: usize = 3;
/// A term that is in no more turns than this is read at once.
const FEW: u64 = 2000;

/// So often a question that came while turns were merged begins again.
const ROUNDS: usize = 5;

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

/// Works in one transaction, so that what is held in memory and what is read from the file are of one
/// time.
pub(super) fn propose(
    connection: &Connection,
    held: &Held,
    codes: &AllCodes,
    speaker: &str,
    scope: &Scope,
    probe: &Probe,
) -> rusqlite::Result<Proposal> {
    for round in 0.. {
        if round == ROUNDS {
            // The file is not the one that was read: somebody has put an older one in its place.
            held.forget();
        }
        let transaction = connection.unchecked_transaction()?;
        let state = State::read(&transaction)?;
        if let Some(read) = held.read(&transaction, &state)? {
            let index = Index { connection: &transaction, read: &read, state: &state };
            return index.propose(codes, speaker, scope, probe);
        }
    }
    Ok(Proposal::default())
}

/// The index as one question sees it.
struct Index<'a> {
    connection: &'a Connection,
    read: &'a Read,
    state: &'a State,
}

impl Index<'_> {
    fn propose(
        &self,
        codes: &AllCodes,
        speaker: &str,
        scope: &Scope,
        probe: &Probe,
    ) -> rusqlite::Result<Proposal> {
        let connection = self.connection;
        let Some(range) = self.range(speaker, scope)? else { return Ok(Proposal::default()) };
        let (turns, length, sessions) = sums(connection, &range.projects)?;
        let (index, spread) = self.postings(probe, &range, turns)?;
        let mut best = promising(&index, &spread, probe, &range, (turns, length));
        let (table, vector) = (&Source::TABLE, &probe.vector);
        best.extend(codes.table.nearest(connection, table, &range, vector, probe.limit)?);
        if let Some(KindVector { kind, vector }) = &probe.finer {
            let source = Source::of(*kind);
            best.extend(codes.model.nearest(connection, &source, &range, vector, probe.limit)?);
        }
        let (mut candidates, in_sessions) = self.surroundings(&best, scope, &range)?;
        if let Some(finer) = &probe.finer {
            model_vectors::fill(connection, finer.kind, &mut candidates)?;
        }
        count_terms(&mut candidates, &index);
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
        Ok(Some(Range { projects, session, allowed }))
    }

    /// The postings of each term, and how common it is. Those that would cost more than they say are
    /// left out, and are only counted.
    fn postings(
        &self,
        probe: &Probe,
        range: &Range,
        turns: u64,
    ) -> rusqlite::Result<(Vec<Vec<Posting>>, Vec<Spread>)> {
        let projects: HashSet<u32> = range.projects.iter().map(|one| *one as u32).collect();
        let mut index = vec![Vec::new(); probe.terms.len()];
        let mut spread = vec![Spread::default(); probe.terms.len()];
        let mut common = Vec::new();
        for (term, probed) in probe.terms.iter().enumerate() {
            match self.of_term(&probed.term, range, &projects, FEW)? {
                Ok(all) => {
                    spread[term] = spread_of(&all);
                    index[term] = all;
                }
                Err(many) => {
                    spread[term] = many;
                    common.push(term);
                }
            }
        }
        let tells = |term: usize| probe.terms[term].weight * rarity(turns, spread[term].turns);
        common.sort_by(|a, b| tells(*b).total_cmp(&tells(*a)).then(a.cmp(b)));
        let mut read: u64 = index.iter().map(|all| all.len() as u64).sum();
        for (place, term) in common.into_iter().enumerate() {
            if place < MOST_TELLING || read + spread[term].turns <= MOST_READ {
                read += spread[term].turns;
                let all = self.of_term(&probe.terms[term].term, range, &projects, u64::MAX)?;
                index[term] = all.unwrap_or_default();
                spread[term] = spread_of(&index[term]);
            }
        }
        Ok((index, spread))
    }

    /// All postings of a term in order; where there are more than `most`, how many.
    fn of_term(
        &self,
        term: &str,
        range: &Range,
        projects: &HashSet<u32>,
        most: u64,
    ) -> rusqlite::Result<Result<Vec<Posting>, Spread>> {
        let recent = self.read.recent(term, self.state.covers(term)).iter();
        let recent = recent.filter(|(project, _)| projects.contains(project));
        let mut spread = Spread::default();
        let mut all = Vec::new();
        let mut statement = self
            .connection
            .prepare_cached("SELECT first, run FROM postings WHERE term = ?1 AND project = ?2")?;
        for project in &range.projects {
            let mut rows = statement.query(params![term, project])?;
            while let Some(row) = rows.next()? {
                let (first, run) = (row.get(0)?, row.get_ref(1)?.as_blob()?);
                if first > 0 {
                    unpack(first, run, |posting| all.push(posting));
                    continue;
                }
                let header = Header::unpacked(run);
                spread.turns += header.turns;
                spread.sessions += header.sessions;
                if spread.turns > most {
                    break;
                }
            }
        }
        if spread.turns > most {
            let recent = recent.count() as u64;
            spread.turns += recent;
            spread.sessions += recent;
            return Ok(Err(spread));
        }
        if range.projects.len() > 1 {
            all.sort_unstable_by_key(|posting| posting.seq);
        }
        all.extend(recent.map(|(_, posting)| *posting));
        Ok(Ok(all))
    }

    /// The promising turns and those beside them, in order, and their sessions.
    fn surroundings(
        &self,
        best: &[i64],
        scope: &Scope,
        range: &Range,
    ) -> rusqlite::Result<(Vec<Candidate>, HashSet<i64>)> {
        let projects: HashSet<u32> = range.projects.iter().map(|one| *one as u32).collect();
        let mut found: BTreeMap<i64, (Standing, Option<i64>)> = BTreeMap::new();
        let mut sessions = HashSet::new();
        for standing in best.iter().filter_map(|seq| self.read.standing(*seq)) {
            sessions.insert(i64::from(standing.session));
            let mut previous = None;
            for turn in self.read.window(standing, BESIDE) {
                let known = found.entry(turn.seq).or_insert((turn, None));
                known.1 = known.1.or(previous);
                previous = Some(turn.seq);
            }
        }
        let mut vectors = self.vectors(found.values().map(|(turn, _)| turn))?;
        let times = bounds(scope);
        let candidate = |(seq, (turn, previous)): (i64, (Standing, Option<i64>))| Candidate {
            seq,
            session: i64::from(turn.session),
            previous,
            ts: time(turn.ts),
            length: turn.length,
            counts: Vec::new(),
            vector: vectors.remove(&seq).unwrap_or_default(),
            finer: Vec::new(),
            in_scope: projects.contains(&turn.project)
                && times.is_none_or(|(since, until)| (since..=until).contains(&turn.ts)),
        };
        Ok((found.into_iter().map(candidate).collect(), sessions))
    }

    /// The vectors of turns, which come in order. Neighbours lie side by side and are read together.
    fn vectors<'t>(
        &self,
        turns: impl Iterator<Item = &'t Standing>,
    ) -> rusqlite::Result<HashMap<i64, Vec<i8>>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT seq, vector FROM vectors WHERE project = ?1 AND seq BETWEEN ?2 AND ?3",
        )?;
        let turns: Vec<&Standing> = turns.collect();
        let mut vectors = HashMap::with_capacity(turns.len());
        let near = |a: &&Standing, b: &&Standing| a.project == b.project && b.seq - a.seq <= 2;
        for part in turns.chunk_by(near) {
            let (first, last) = (part[0], part[part.len() - 1]);
            let mut rows = statement.query([i64::from(first.project), first.seq, last.seq])?;
            while let Some(row) = rows.next()? {
                let bytes = row.get_ref(1)?.as_blob()?;
                let vector = bytes.iter().map(|byte| byte.cast_signed()).collect();
                vectors.insert(row.get(0)?, vector);
            }
        }
        Ok(vectors)
    }
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

fn spread_of(postings: &[Posting]) -> Spread {
    // Turns of one session follow each other, with few exceptions.
    let sessions = postings.chunk_by(|a, b| a.session == b.session).count();
    Spread { turns: postings.len() as u64, sessions: sessions as u64 }
}

/// What a term that so many of all turns have is worth.
fn rarity(turns: u64, having: u64) -> f32 {
    let (turns, having) = (turns as f32, having as f32);
    ((turns - having + 0.5) / (having + 0.5) + 1.0).max(1.0).ln()
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
        let weight = probed.weight * rarity(turns, spread.turns) * (SATURATION + 1.0);
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

/// Notes how often each term occurs in each candidate; they are in order, as postings are.
fn count_terms(candidates: &mut [Candidate], index: &[Vec<Posting>]) {
    let Some(low) = candidates.first().map(|first| first.seq) else { return };
    let high = candidates.last().map_or(low, |last| last.seq);
    // The place of every turn between the first and the last, 0 for none.
    let mut places = vec![0_u32; (high - low) as usize + 1];
    for (place, candidate) in candidates.iter().enumerate() {
        places[(candidate.seq - low) as usize] = place as u32 + 1;
    }
    for (term, postings) in index.iter().enumerate() {
        let begin = postings.partition_point(|posting| posting.seq < low);
        for posting in postings[begin..].iter().take_while(|posting| posting.seq <= high) {
            if let Some(place) = places[(posting.seq - low) as usize].checked_sub(1) {
                let times = u32::from(posting.times);
                candidates[place as usize].counts.push(Count { term, times });
            }
        }
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
