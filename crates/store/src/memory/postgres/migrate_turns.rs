//! Writing the turns of a migration. They keep their numbers and their names, and are written like
//! new ones.

use std::collections::{BTreeMap, HashMap};

use hob_domain::StoreError;
use hob_domain::memory::{Identity, NewTurn, ProjectLocation, RecordId, Tier, TurnRole};
use hob_index::terms;
use tokio_postgres::Error;

use super::batch::{BatchSession, InsertedTurn, LastNumbers, ProjectSums, TurnBatch, lock};
use super::cipher::Cipher;
use super::names::{ExistingRow, StoredNames};
use super::postings::counts;
use super::rows::ask;
use crate::memory::identity::{ExistingTurn, TurnNames};
use crate::migrate::{Analysed, MigratedTurn};
use crate::postgres::connections::{Client, Values};
use crate::values::{damaged, time};

/// A turn as it has arrived, and as it is written.
pub(super) struct Arrived {
    moved: MigratedTurn,
    turn: NewTurn,
}

impl Arrived {
    pub(super) fn new(mut moved: MigratedTurn, analysed: Analysed) -> Result<Arrived, StoreError> {
        let wrong = || damaged("a turn on its way");
        let turn = NewTurn {
            // The names that it had are written, not this one.
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

/// Stores turns whose sessions and projects exist. Returns the number of the newest turn
/// afterwards.
pub(super) async fn put(client: &Client, cipher: &Cipher, turns: &[Arrived]) -> Result<i64, Error> {
    let before = lock(client).await?;
    let newest = turns.iter().map(|turn| turn.moved.seq).max().unwrap_or_default().max(before.seq);
    let numbers = LastNumbers { seq: newest, ..before };
    let mut speakers: BTreeMap<&str, Vec<&Arrived>> = BTreeMap::new();
    for turn in turns {
        speakers.entry(&turn.moved.speaker).or_default().push(turn);
    }
    for (speaker, turns) in speakers {
        let names = |turn: &&Arrived| {
            let MigratedTurn { id, words, key, answer, nth, .. } = &turn.moved;
            let names = TurnNames {
                session: Vec::new(),
                words: *words,
                record: *key,
                answer: *answer,
                nth: *nth,
            };
            StoredNames::new(cipher, id, &names)
        };
        let names: Vec<StoredNames> = turns.iter().map(names).collect();
        let mut batch = TurnBatch::empty(cipher, speaker, numbers);
        batch.sessions = sessions(client, &turns).await?;
        for (arrived, names) in turns.iter().zip(&names) {
            add(&mut batch, arrived, names);
        }
        batch.write(client, before).await?;
    }
    link(client, cipher, turns).await?;
    Ok(newest)
}

/// Reads the sessions of turns. They are keyed by their numbers, since these turns are not looked
/// up by name.
async fn sessions(
    client: &Client,
    turns: &[&Arrived],
) -> Result<HashMap<Vec<u8>, BatchSession>, Error> {
    let mut ids: Vec<i64> = turns.iter().map(|turn| turn.moved.session).collect();
    ids.sort_unstable();
    ids.dedup();
    let sql = "SELECT id, project, started, ended FROM hob.memory_sessions WHERE id = ANY($1)";
    let session = |row: &tokio_postgres::Row| {
        let session = BatchSession { changed: true, ..BatchSession::existing(row) };
        (session.id.to_be_bytes().to_vec(), session)
    };
    Ok(ask(client, sql, &[&ids]).await?.iter().map(session).collect())
}

fn add<'a>(batch: &mut TurnBatch<'a>, arrived: &'a Arrived, names: &'a StoredNames) {
    let MigratedTurn { seq, session, project, ts, at, .. } = arrived.moved;
    let length = i64::from(terms::length(&counts(&arrived.turn)));
    if let Some(session) = batch.sessions.get_mut(&session.to_be_bytes()[..]) {
        session.turns += 1;
        session.length += length;
    }
    batch.sum(project, ProjectSums { turns: 1, length, sessions: 0 });
    let place = batch.turns.add(ExistingRow {
        turn: ExistingTurn { number: seq, at, names: names.hashed.clone() },
        id: names.id.clone(),
        sealed_record: names.sealed.record.clone(),
        ts,
        client: arrived.moved.client.clone(),
        is_claimed: false,
    });
    let turn = &arrived.turn;
    batch.inserted.push(InsertedTurn { turn, names, place, seq, session, project, length });
}

/// Links corrections with the turns that they supersede.
async fn link(client: &Client, cipher: &Cipher, turns: &[Arrived]) -> Result<(), Error> {
    let name = |id: &Option<String>| -> Option<Vec<u8>> {
        id.as_ref().map(|id| cipher.encrypt_id(&RecordId::new(id.as_str())))
    };
    let linked: Vec<&MigratedTurn> = turns
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
