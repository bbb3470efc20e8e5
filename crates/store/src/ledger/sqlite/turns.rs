//! Turns and events of sessions in SQLite: accepting, starting, appending, ending.

use hob_domain::session::{
    Accepted, IdempotencyKey, NewEvent, Repeat, Session, SessionEvent, SessionId, TurnEnding,
    TurnRequest, TurnState, TurnUsage,
};
use hob_domain::turn_rules::{TurnFacts, UnansweredEnd, decide_turn};
use hob_domain::{StoreError, Timestamp};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::fences::fence;
use crate::sqlite::failed;
use crate::values::{UsageColumns, day, files_to_json, hashed_key, key_by_hash, micros, time};

const SESSION_CLOSED: UnansweredEnd = UnansweredEnd::SESSION_CLOSED;
const INTERRUPTED: UnansweredEnd = UnansweredEnd::INTERRUPTED;

/// The first condition on the state repeats that of the index, which has few rows.
pub(super) const QUEUED: &str = "SELECT number FROM turns INDEXED BY turns_under_way
     WHERE session = ?1 AND state IN ('queued', 'running') AND state = 'queued' ORDER BY number";
pub(super) const RUNNING: &str = "SELECT number FROM turns INDEXED BY turns_under_way
     WHERE session = ?1 AND state IN ('queued', 'running') AND state = 'running' ORDER BY number";
pub(super) const LAST_EVENT: &str = "SELECT coalesce(max(seq), 0) FROM events WHERE session = ?1";

/// Accepts a turn, or says why not.
pub(super) fn accept(
    transaction: &Transaction<'_>,
    session: &Session,
    request: &TurnRequest,
    now: Timestamp,
) -> Result<Accepted, StoreError> {
    let id = session.id.as_str();
    let key = request.idempotency.as_ref();
    let same_key = match key {
        Some(key) => turn_of_key(transaction, &session.id, &key.key)?,
        None => None,
    };
    let facts = TurnFacts {
        same_key: same_key.as_ref().map(|(number, digest)| (*number, digest.as_str())),
        is_closed: session.closed_at.is_some(),
        turn_count: session.turn_count,
        queued: queued(transaction, &session.id)?.len(),
    };
    let (key, digest) = key.map(|key| (key.key.as_str(), key.digest.as_str())).unzip();
    let decision = decide_turn(facts, digest, request.queue);
    let Accepted::Queued(number) = decision else { return Ok(decision) };
    transaction
        .prepare_cached(
            "INSERT INTO turns (session, number, state, prompt, text, queued_at, idempotency_key,
                 request_digest, input_tokens, output_tokens, cached_read_tokens,
                 cached_write_tokens, cost_usd, files)
             VALUES (?1, ?2, 'queued', ?3, '', ?4, ?5, ?6, 0, 0, 0, 0, 0.0, ?7)",
        )
        .and_then(|mut s| {
            let files = files_to_json(&request.files);
            s.execute(params![id, number, request.prompt, micros(now), key, digest, files])
        })
        .and_then(|_| {
            transaction
                .prepare_cached(
                    "UPDATE sessions SET turn_count = ?2, last_turn_at = ?3 WHERE id = ?1",
                )?
                .execute(params![id, number, micros(now)])
        })
        .map_err(failed)?;
    Ok(decision)
}

/// Finds the turn that was accepted under this idempotency key, and says whether its request was the same.
pub(super) fn repeat(
    connection: &Connection,
    id: &SessionId,
    key: &IdempotencyKey,
) -> Result<Option<Repeat>, StoreError> {
    Ok(turn_of_key(connection, id, &key.key)?.map(|(number, known)| match known == key.digest {
        true => Repeat::Same(number),
        false => Repeat::OtherRequest,
    }))
}

/// Returns the turn with this idempotency key and the digest of its request.
fn turn_of_key(
    connection: &Connection,
    id: &SessionId,
    key: &str,
) -> Result<Option<(u32, String)>, StoreError> {
    connection
        .prepare_cached(
            "SELECT number, request_digest FROM turns
             WHERE session = ?1 AND idempotency_key IN (?2, ?3)",
        )
        .and_then(|mut s| {
            let migrated = key_by_hash(&hashed_key(key));
            let values = [id.as_str(), key, &migrated];
            s.query_row(values, |row| Ok((row.get(0)?, row.get(1)?))).optional()
        })
        .map_err(failed)
}

/// Returns the numbers of the queued turns of a session, in order.
pub(super) fn queued(connection: &Connection, id: &SessionId) -> Result<Vec<u32>, StoreError> {
    connection
        .prepare_cached(QUEUED)
        .and_then(|mut s| s.query_map([id.as_str()], |row| row.get(0))?.collect())
        .map_err(failed)
}

pub(super) fn start(
    transaction: &Transaction<'_>,
    id: &SessionId,
    index: u32,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let changed = transaction
        .prepare_cached(
            "UPDATE turns SET state = 'running', started_at = ?3, first_event =
                 1 + coalesce((SELECT max(seq) FROM events WHERE session = ?1), 0)
             WHERE session = ?1 AND number = ?2 AND state = 'queued'",
        )
        .and_then(|mut s| s.execute(params![id.as_str(), index, micros(now)]))
        .map_err(failed)?;
    Ok(changed > 0)
}

/// Numbers events and stores them.
pub(super) fn append(
    transaction: &Transaction<'_>,
    id: &SessionId,
    events: Vec<NewEvent>,
    now: Timestamp,
) -> Result<Vec<SessionEvent>, StoreError> {
    let last: i64 = transaction
        .prepare_cached(LAST_EVENT)
        .and_then(|mut s| s.query_row([id.as_str()], |row| row.get(0)))
        .map_err(failed)?;
    let fence = fence(transaction, id)?.ok_or(StoreError::Lost)?;
    // Rounded as stored, so that followers see the same time now and later.
    let at = time(micros(now));
    let mut stored = Vec::with_capacity(events.len());
    for (seq, event) in (last + 1..).zip(events) {
        transaction
            .prepare_cached(
                "INSERT INTO events (session, seq, at, kind, turn, body, fence)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )
            .and_then(|mut s| {
                let (id, at) = (id.as_str(), micros(now));
                let kind = event.kind.as_str();
                s.execute(params![id, seq, at, kind, event.turn, event.body, fence as i64])
            })
            .map_err(failed)?;
        stored.push(SessionEvent { seq: seq as u64, at, event });
    }
    Ok(stored)
}

pub(super) fn end(
    transaction: &Transaction<'_>,
    id: &SessionId,
    index: u32,
    ending: TurnEnding,
    now: Timestamp,
) -> Result<Option<Vec<SessionEvent>>, StoreError> {
    let state: Option<String> = transaction
        .prepare_cached("SELECT state FROM turns WHERE session = ?1 AND number = ?2")
        .and_then(|mut s| s.query_row(params![id.as_str(), index], |row| row.get(0)).optional())
        .map_err(failed)?;
    let state = state.as_deref().and_then(TurnState::parse);
    if !state.is_some_and(|state| state.may_become(ending.state)) {
        return Ok(None);
    }
    let used = UsageColumns::of(&ending.usage);
    transaction
        .prepare_cached(
            "UPDATE turns SET state = ?3, text = ?4, stop_reason = ?5, error = ?6, ended_at = ?7,
                 input_tokens = ?8, output_tokens = ?9, cached_read_tokens = ?10,
                 cached_write_tokens = ?11, cost_usd = ?12
             WHERE session = ?1 AND number = ?2",
        )
        .and_then(|mut s| {
            s.execute(params![
                id.as_str(),
                index,
                ending.state.as_str(),
                ending.text,
                ending.stop_reason,
                ending.error,
                micros(now),
                used.input,
                used.output,
                used.cached_read,
                used.cached_write,
                used.cost,
            ])
        })
        .and_then(|_| {
            transaction
                .prepare_cached(
                    "UPDATE sessions SET last_turn_at = ?2,
                         agent_session = coalesce(?3, agent_session) WHERE id = ?1",
                )?
                .execute(params![id.as_str(), micros(now), ending.agent_session])
        })
        .map_err(failed)?;
    if ending.usage != TurnUsage::default() {
        add_usage(transaction, id, &used).map_err(failed)?;
    }
    count_turn(transaction, id, ending.state, &used, now).map_err(failed)?;
    if let Some(turn) = ending.outbox {
        transaction
            .prepare_cached(
                "INSERT INTO outbox (app, body) SELECT app, ?2 FROM sessions WHERE id = ?1",
            )
            .and_then(|mut s| s.execute(params![id.as_str(), turn.to_json()]))
            .map_err(failed)?;
    }
    append(transaction, id, ending.events, now).map(Some)
}

/// Cancels the queued turns of a session that is being closed. Returns their events.
pub(super) fn cancel_queued(
    transaction: &Transaction<'_>,
    id: &SessionId,
    now: Timestamp,
) -> Result<Vec<NewEvent>, StoreError> {
    let queued = queued(transaction, id)?.into_iter();
    queued.map(|index| end_unanswered(transaction, id, index, SESSION_CLOSED, now)).collect()
}

/// Ends the turns of a session that ran when its lease holder stopped. Returns their numbers.
pub(super) fn interrupt(
    transaction: &Transaction<'_>,
    id: &SessionId,
    now: Timestamp,
) -> Result<Vec<u32>, StoreError> {
    let running: Vec<u32> = transaction
        .prepare_cached(RUNNING)
        .and_then(|mut s| s.query_map([id.as_str()], |row| row.get(0))?.collect())
        .map_err(failed)?;
    for index in &running {
        let event = end_unanswered(transaction, id, *index, INTERRUPTED, now)?;
        append(transaction, id, vec![event], now)?;
    }
    Ok(running)
}

/// Ends a turn without an answer. Returns its event.
fn end_unanswered(
    transaction: &Transaction<'_>,
    id: &SessionId,
    index: u32,
    end: UnansweredEnd,
    now: Timestamp,
) -> Result<NewEvent, StoreError> {
    let at = micros(now);
    transaction
        .prepare_cached(
            "UPDATE turns SET state = ?3, error = ?4, ended_at = ?5, stop_reason = ?6
             WHERE session = ?1 AND number = ?2",
        )
        .and_then(|mut s| {
            let (state, error, reason) = (end.state.as_str(), end.error, end.stop_reason);
            s.execute(params![id.as_str(), index, state, error, at, reason])
        })
        .and_then(|_| {
            transaction
                .prepare_cached("UPDATE sessions SET last_turn_at = ?2 WHERE id = ?1")?
                .execute(params![id.as_str(), at])
        })
        .and_then(|_| {
            let nothing = UsageColumns::of(&TurnUsage::default());
            count_turn(transaction, id, end.state, &nothing, now)
        })
        .map_err(failed)?;
    Ok(end.event(index))
}

/// Adds a cost to a turn that has ended, to its session and to its app's day.
pub(super) fn add_turn_cost(
    transaction: &Transaction<'_>,
    id: &SessionId,
    index: u32,
    used: &UsageColumns,
    now: Timestamp,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "UPDATE turns SET cost_usd = cost_usd + ?3 WHERE session = ?1 AND number = ?2",
        )?
        .execute(params![id.as_str(), index, used.cost])?;
    add_usage(transaction, id, used)?;
    let app: String = transaction
        .prepare_cached("SELECT app FROM sessions WHERE id = ?1")?
        .query_row([id.as_str()], |row| row.get(0))?;
    add_usage_to_day(transaction, &app, used, DayTurns::NONE, now)
}

/// Adds the usage of a turn to the sums of its session.
fn add_usage(
    transaction: &Transaction<'_>,
    id: &SessionId,
    used: &UsageColumns,
) -> rusqlite::Result<usize> {
    transaction
        .prepare_cached(
            "UPDATE sessions SET input_tokens = input_tokens + ?2,
                 output_tokens = output_tokens + ?3,
                 cached_read_tokens = cached_read_tokens + ?4,
                 cached_write_tokens = cached_write_tokens + ?5, cost_usd = cost_usd + ?6
             WHERE id = ?1",
        )?
        .execute(params![
            id.as_str(),
            used.input,
            used.output,
            used.cached_read,
            used.cached_write,
            used.cost
        ])
}

/// Adds an ended turn of a session to the usage of its app's day.
fn count_turn(
    transaction: &Transaction<'_>,
    id: &SessionId,
    state: TurnState,
    used: &UsageColumns,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let app: String = transaction
        .prepare_cached("SELECT app FROM sessions WHERE id = ?1")?
        .query_row([id.as_str()], |row| row.get(0))?;
    add_to_day(transaction, &app, state, used, now)
}

/// Adds an ended turn and its usage to the usage of its app's day.
pub(super) fn add_to_day(
    transaction: &Transaction<'_>,
    app: &str,
    state: TurnState,
    used: &UsageColumns,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let turns = DayTurns { ended: 1, failed: i64::from(state.is_failure()) };
    add_usage_to_day(transaction, app, used, turns, now)
}

/// How many turns are added to a day, and how many of them failed.
pub(super) struct DayTurns {
    ended: i64,
    failed: i64,
}

impl DayTurns {
    pub(super) const NONE: DayTurns = DayTurns { ended: 0, failed: 0 };
}

/// Adds usage and a number of turns to the usage of an app's day.
pub(super) fn add_usage_to_day(
    transaction: &Transaction<'_>,
    app: &str,
    used: &UsageColumns,
    turns: DayTurns,
    now: Timestamp,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO usage (app, day, input_tokens, output_tokens, cached_read_tokens,
                 cached_write_tokens, cost_usd, turns, failed)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?9, ?8)
             ON CONFLICT (app, day) DO UPDATE SET input_tokens = input_tokens + ?3,
                 output_tokens = output_tokens + ?4,
                 cached_read_tokens = cached_read_tokens + ?5,
                 cached_write_tokens = cached_write_tokens + ?6, cost_usd = cost_usd + ?7,
                 turns = turns + ?9, failed = failed + ?8",
        )?
        .execute(params![
            app,
            day(now),
            used.input,
            used.output,
            used.cached_read,
            used.cached_write,
            used.cost,
            turns.failed,
            turns.ended
        ])?;
    Ok(())
}
