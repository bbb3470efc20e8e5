//! Turns that come from another memory, with the numbers and all the names they had there. They are written as new
//! ones are.

use std::collections::{BTreeMap, HashMap};

use hob_domain::StoreError;
use hob_domain::memory::{Identity, NewTurn, ProjectLocation, RecordId, Tier, TurnRole};
use hob_index::terms;
use tokio_postgres::Error;

use super::cipher::Cipher;
use super::names::{Known, Names, Rows};
use super::postings::counts;
use super::rows::ask;
use super::store_turns::{Batch, Inserted, Numbers, Session, lock};
use crate::migrate::{Analysed, MovedTurn};
use crate::postgres::connections::{Client, Values};
use crate::values::{damaged, time};

/// A turn as it came, and as it is written.
pub(super) struct Arrived {
    moved: MovedTurn,
    turn: NewTurn,
}

impl Arrived {
    pub(super) fn new(mut moved: MovedTurn, analysed: Analysed) -> Result<Arrived, StoreError> {
        let wrong = || damaged("a turn on its way");
        let turn = NewTurn {
            // Its names are known already.
            identity: Identity::Nth(0),
            words: moved.words,
            session: String::new(),
            place: ProjectLocation {
                project: String::new(),
                worktree: std::mem::take(&mut moved.worktree),
            },
            role: TurnRole::parse(&moved.role).ok_or_else(wrong)?,
            tier: Tier::parse(&moved.tier).ok_or_else(wrong)?,
            text: std::mem::take(&mut moved.text),
            sealed: moved.sealed.take(),
            cue: moved.cue.take(),
            ts: time(moved.ts),
            at: time(moved.at),
            client: moved.client.clone(),
            source: std::mem::take(&mut moved.source).into(),
            terms: analysed.terms,
            vector: analysed.vector,
            rules: u32::try_from(moved.rules).map_err(|_| wrong())?,
        };
        Ok(Arrived { moved, turn })
    }
}

/// Stores turns whose sessions and projects are there. Returns the number of the newest turn then.
pub(super) async fn put(client: &Client, cipher: &Cipher, turns: &[Arrived]) -> Result<i64, Error> {
    let before = lock(client).await?;
    let newest = turns.iter().map(|turn| turn.moved.seq).max().unwrap_or_default().max(before.seq);
    let numbers = Numbers { seq: newest, ..before };
    let mut speakers: BTreeMap<&str, Vec<&Arrived>> = BTreeMap::new();
    for turn in turns {
        speakers.entry(&turn.moved.speaker).or_default().push(turn);
    }
    for (speaker, turns) in speakers {
        let names = |turn: &&Arrived| {
            let MovedTurn { id, words, key, answer, nth, .. } = &turn.moved;
            Names::known_as(cipher, id, words, key.as_ref(), answer.as_ref(), *nth)
        };
        let names: Vec<Names> = turns.iter().map(names).collect();
        let mut batch = Batch {
            cipher,
            speaker,
            numbers,
            turns: Rows::default(),
            forgotten: Rows::default(),
            forgotten_sessions: HashMap::new(),
            projects: HashMap::new(),
            sessions: sessions(client, &turns).await?,
            sums: BTreeMap::new(),
            inserted: Vec::new(),
        };
        for (arrived, names) in turns.iter().zip(&names) {
            add(&mut batch, arrived, names);
        }
        batch.write(client, before).await?;
    }
    link(client, cipher, turns).await?;
    Ok(newest)
}

/// The sessions of turns, by their numbers, which nothing of a batch is found by.
async fn sessions(client: &Client, turns: &[&Arrived]) -> Result<HashMap<Vec<u8>, Session>, Error> {
    let mut ids: Vec<i64> = turns.iter().map(|turn| turn.moved.session).collect();
    ids.sort_unstable();
    ids.dedup();
    let sql = "SELECT id, project, started, ended FROM hob.memory_sessions WHERE id = ANY($1)";
    let session = |row: &tokio_postgres::Row| {
        let session = Session { changed: true, ..Session::known(row) };
        (session.id.to_be_bytes().to_vec(), session)
    };
    Ok(ask(client, sql, &[&ids]).await?.iter().map(session).collect())
}

fn add<'a>(batch: &mut Batch<'a>, arrived: &'a Arrived, names: &'a Names) {
    let MovedTurn { seq, session, project, ts, at, nth, .. } = arrived.moved;
    let length = i64::from(terms::length(&counts(&arrived.turn)));
    if let Some(session) = batch.sessions.get_mut(&session.to_be_bytes()[..]) {
        session.turns += 1;
        session.length += length;
    }
    let sum = batch.sums.entry(project).or_default();
    *sum = [sum[0] + 1, sum[1] + length, sum[2]];
    let place = batch.turns.all.len();
    batch.turns.add(Known {
        number: seq,
        id: names.id.clone(),
        session: Vec::new(),
        words: names.words.clone(),
        key: names.key.clone(),
        key_kept: names.kept.key.clone(),
        answer: names.answer.clone(),
        nth,
        ts,
        at,
        client: arrived.moved.client.clone(),
        changed: false,
    });
    batch.inserted.push(Inserted { turn: &arrived.turn, names, place, seq, session, project });
}

/// Says which take the place of which.
async fn link(client: &Client, cipher: &Cipher, turns: &[Arrived]) -> Result<(), Error> {
    let name = |id: &Option<String>| -> Option<Vec<u8>> {
        id.as_ref().map(|id| cipher.record_name(&RecordId::new(id.as_str())))
    };
    let linked: Vec<&MovedTurn> = turns
        .iter()
        .map(|turn| &turn.moved)
        .filter(|turn| turn.superseded_by.is_some() || turn.supersedes.is_some())
        .collect();
    if linked.is_empty() {
        return Ok(());
    }
    let seqs: Vec<i64> = linked.iter().map(|turn| turn.seq).collect();
    let later: Vec<Option<Vec<u8>>> = linked.iter().map(|turn| name(&turn.superseded_by)).collect();
    let earlier: Vec<Option<Vec<u8>>> = linked.iter().map(|turn| name(&turn.supersedes)).collect();
    let sql = "UPDATE hob.memory_turns t SET superseded_by = u.later, supersedes = u.earlier
         FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) u (seq, later, earlier)
         WHERE t.seq = u.seq";
    let values: Values<'_> = &[&seqs, &later, &earlier];
    ask(client, sql, values).await.map(drop)
}
