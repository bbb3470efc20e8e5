//! Turns and events of sessions in PostgreSQL: accepting, starting, appending, ending.
//!
//! A statement sees what was committed when it began, even if it then waits for a lock. So a statement that locks a
//! head may rely on the head's own columns, which PostgreSQL re-reads after the wait, and on conditions on the rows that
//! it changes. Other rows must be read by a later statement of the same transaction.

use hob_domain::Timestamp;
use hob_domain::session::{
    Accepted, NewEvent, SessionEvent, SessionId, TurnEnding, TurnRequest, TurnState, TurnUsage,
};
use hob_domain::turn_rules::{TurnFacts, UnansweredEnd, decide_turn};
use tokio_postgres::Error;
use uuid::Uuid;

use super::session_rows::{key, number};
use crate::postgres::connections::Client;
use crate::postgres::row_scope::RowScope;
use crate::postgres::text::{put, take};
use crate::postgres::text_cipher::{TextCipher, TextKind};
use crate::values::{UsageColumns, day, files_to_json, hashed_key, micros, time};

/// Appends events in one statement: increments the head's counter under its lock and stores the events under those
/// numbers. Does nothing if the fence differs. A null fence stands for the session's own, for writes that need no lease.
pub(super) const APPEND: &str = "WITH head AS (
         UPDATE hob.heads SET last_event = last_event + cardinality($3::text[])
         WHERE session = $1 AND fence = coalesce($6, fence)
         RETURNING app, fence, last_event - cardinality($3::text[]) AS before
     ), stored AS (
         INSERT INTO hob.events (session, seq, at, turn, app, kind, body, fence)
         SELECT $1, head.before + e.place, $2, e.turn, head.app, e.kind, e.body, head.fence
         FROM head, unnest($3::text[], $4::bigint[], $5::text[])
             WITH ORDINALITY AS e (kind, turn, body, place)
     ) SELECT before FROM head";

pub(super) const START: &str = "WITH head AS (
         SELECT last_event FROM hob.heads WHERE session = $1 AND fence = $4 FOR UPDATE
     ), begun AS (
         UPDATE hob.turns SET state = 'running', started_at = $3, first_event = head.last_event + 1
         FROM head WHERE session = $1 AND number = $2 AND state = 'queued' RETURNING number
     ) SELECT EXISTS (SELECT 1 FROM begun) FROM head";

/// Ends a turn with everything that belongs to it in one statement. The head is locked before the turn, as everywhere.
pub(super) const END: &str = "WITH locked AS (
         SELECT session FROM hob.heads WHERE session = $1 AND fence = $21 FOR UPDATE
     ), ended AS (
         UPDATE hob.turns SET state = $4, text = $5, stop_reason = $6, error = $7, ended_at = $8,
             input_tokens = $9, output_tokens = $10, cached_read_tokens = $11,
             cached_write_tokens = $12, cost_usd = $13
         FROM locked WHERE turns.session = locked.session AND number = $2 AND state = ANY ($3::text[])
         RETURNING turns.session
     ), head AS (
         UPDATE hob.heads SET last_event = last_event + cardinality($16::text[]), last_turn_at = $8,
             agent_session = coalesce($14, agent_session), input_tokens = input_tokens + $9,
             output_tokens = output_tokens + $10, cached_read_tokens = cached_read_tokens + $11,
             cached_write_tokens = cached_write_tokens + $12, cost_usd = cost_usd + $13
         FROM ended WHERE heads.session = ended.session
         RETURNING app, fence, last_event - cardinality($16::text[]) AS before
     ), counted AS (
         INSERT INTO hob.usage AS u (app, day, part, input_tokens, output_tokens, cached_read_tokens,
             cached_write_tokens, cost_usd, turns, failed)
         SELECT app, $19, pg_backend_pid() % 16, $9, $10, $11, $12, $13, 1, $20 FROM head
         ON CONFLICT (app, day, part) DO UPDATE SET
             input_tokens = u.input_tokens + excluded.input_tokens,
             output_tokens = u.output_tokens + excluded.output_tokens,
             cached_read_tokens = u.cached_read_tokens + excluded.cached_read_tokens,
             cached_write_tokens = u.cached_write_tokens + excluded.cached_write_tokens,
             cost_usd = u.cost_usd + excluded.cost_usd, turns = u.turns + excluded.turns,
             failed = u.failed + excluded.failed
     ), remembered AS (
         INSERT INTO hob.outbox (app, body) SELECT app, $15 FROM head WHERE $15::text IS NOT NULL
     ), stored AS (
         INSERT INTO hob.events (session, seq, at, turn, app, kind, body, fence)
         SELECT $1, head.before + e.place, $8, e.turn, head.app, e.kind, e.body, head.fence
         FROM head, unnest($16::text[], $17::bigint[], $18::text[])
             WITH ORDINALITY AS e (kind, turn, body, place)
     ) SELECT head.before FROM locked LEFT JOIN head ON true";

/// Adds ended turns and their usage to the usage of their app's day.
const COUNT: &str = "INSERT INTO hob.usage AS u (app, day, part, input_tokens, output_tokens,
         cached_read_tokens, cached_write_tokens, cost_usd, turns, failed)
     VALUES ($1, $2, pg_backend_pid() % 16, $3, $4, $5, $6, $7, $8, $9)
     ON CONFLICT (app, day, part) DO UPDATE SET
         input_tokens = u.input_tokens + excluded.input_tokens,
         output_tokens = u.output_tokens + excluded.output_tokens,
         cached_read_tokens = u.cached_read_tokens + excluded.cached_read_tokens,
         cached_write_tokens = u.cached_write_tokens + excluded.cached_write_tokens,
         cost_usd = u.cost_usd + excluded.cost_usd, turns = u.turns + excluded.turns,
         failed = u.failed + excluded.failed";

/// Adds a cost to a turn that has ended, to its session and to its app's day. Does nothing if the fence differs.
pub(super) const ADD_COST: &str = "WITH head AS (
         UPDATE hob.heads SET cost_usd = cost_usd + $3 WHERE session = $1 AND fence = $5
         RETURNING app
     ), turn AS (
         UPDATE hob.turns SET cost_usd = turns.cost_usd + $3
         FROM head WHERE turns.session = $1 AND turns.number = $2
     ), counted AS (
         INSERT INTO hob.usage AS u (app, day, part, input_tokens, output_tokens, cached_read_tokens,
             cached_write_tokens, cost_usd, turns, failed)
         SELECT app, $4, pg_backend_pid() % 16, 0, 0, 0, 0, $3, 0, 0 FROM head
         ON CONFLICT (app, day, part) DO UPDATE SET cost_usd = u.cost_usd + excluded.cost_usd
     ) SELECT app FROM head";

/// Events as statement parameters: one array per column.
pub(super) struct Columns {
    pub(super) kinds: Vec<String>,
    pub(super) turns: Vec<Option<i64>>,
    pub(super) bodies: Vec<String>,
}

impl Columns {
    pub(super) fn of(texts: &TextCipher, events: &[NewEvent]) -> Columns {
        let sealed = |event: &NewEvent| texts.seal(TextKind::Event, &event.body);
        Columns {
            kinds: events.iter().map(|event| put(event.kind.as_str()).into_owned()).collect(),
            turns: events.iter().map(|event| event.turn.map(i64::from)).collect(),
            bodies: events.iter().map(sealed).collect(),
        }
    }
}

/// Returns events with the numbers under which they were stored.
pub(super) fn numbered(before: i64, events: Vec<NewEvent>, now: Timestamp) -> Vec<SessionEvent> {
    // Rounded as stored, so that followers see the same time now and later.
    let at = time(micros(now));
    let numbers = before as u64 + 1..;
    numbers.zip(events).map(|(seq, event)| SessionEvent { seq, at, event }).collect()
}

/// Returns the names of the states from which a turn may reach this one.
pub(super) fn before(state: TurnState) -> Vec<&'static str> {
    let from = TurnState::ALL.into_iter().filter(|from| from.may_become(state));
    from.map(TurnState::as_str).collect()
}

/// The values of [`END`], in order.
pub(super) struct End {
    pub(super) ending: TurnEnding,
    pub(super) used: UsageColumns,
    pub(super) columns: Columns,
}

impl End {
    pub(super) fn new(texts: &TextCipher, ending: TurnEnding) -> End {
        let used = UsageColumns::of(&ending.usage);
        let columns = Columns::of(texts, &ending.events);
        End { ending, used, columns }
    }
}

/// Accepts a turn, or says why not. Returns `None` if the app has no such session.
pub(super) async fn accept(
    client: &Client,
    texts: &TextCipher,
    app: &str,
    id: &SessionId,
    request: &TurnRequest,
    now: Timestamp,
) -> Result<Option<Accepted>, Error> {
    let session = key(id);
    let statement = client
        .prepare_cached(
            "SELECT turn_count, closed_at IS NOT NULL FROM hob.heads WHERE session = $1 AND app = $2
             FOR UPDATE",
        )
        .await?;
    let Some(head) = client.query_opt(&statement, &[&session, &app]).await? else {
        return Ok(None);
    };
    // After the lock, so that this statement sees what earlier transactions have committed.
    let idempotency = request.idempotency.as_ref();
    let (key, digest) = idempotency.map(|key| (hashed_key(&key.key), key.digest.as_str())).unzip();
    let statement = client
        .prepare_cached(
            "SELECT (SELECT count(*) FROM hob.turns WHERE session = $1 AND state = 'queued'
                     AND state IN ('queued', 'running')), t.number, t.request_digest
             FROM (SELECT 1) AS always LEFT JOIN hob.turns t
                 ON t.session = $1 AND t.idempotency_key = $2",
        )
        .await?;
    let found = client.query_one(&statement, &[&session, &key]).await?;
    let same_digest: Option<String> = found.get::<_, Option<String>>(2).map(take);
    let same_number = found.get::<_, Option<i64>>(1).map(|number| number as u32);
    let facts = TurnFacts {
        same_key: same_number.map(|number| (number, same_digest.as_deref().unwrap_or_default())),
        is_closed: head.get(1),
        turn_count: number(&head, 0),
        queued: usize::try_from(found.get::<_, i64>(0)).unwrap_or(usize::MAX),
    };
    let decision = decide_turn(facts, digest, request.queue);
    let Accepted::Queued(turn) = decision else { return Ok(Some(decision)) };
    let turn = i64::from(turn);
    let statement = client
        .prepare_cached(
            "WITH head AS (
                 UPDATE hob.heads SET turn_count = $2, last_turn_at = $3 WHERE session = $1
             ) INSERT INTO hob.turns (session, number, queued_at, app, state, prompt,
                 idempotency_key, request_digest, files)
             VALUES ($1, $2, $3, $4, 'queued', $5, $6, $7, $8)",
        )
        .await?;
    let digest = digest.map(put);
    let prompt = texts.seal(TextKind::Prompt, &request.prompt);
    let files = texts.seal(TextKind::Files, &files_to_json(&request.files));
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 8] =
        [&session, &turn, &micros(now), &app, &prompt, &key, &digest, &files];
    client.execute(&statement, &values).await?;
    Ok(Some(decision))
}

/// Closes a session and cancels its queued turns. Returns `false` if it was already closed.
pub(super) async fn close(
    client: &Client,
    texts: &TextCipher,
    id: &SessionId,
    event: NewEvent,
    now: Timestamp,
) -> Result<bool, Error> {
    let session = key(id);
    let statement = client
        .prepare_cached(
            "UPDATE hob.heads SET closed_at = $2 WHERE session = $1 AND closed_at IS NULL
             RETURNING app",
        )
        .await?;
    let Some(head) = client.query_opt(&statement, &[&session, &micros(now)]).await? else {
        return Ok(false);
    };
    let end = UnansweredEnd::SESSION_CLOSED;
    // The session's app is known now: the rest is written within its scope.
    let scope = RowScope::App(head.get(0));
    let (entered, ended) =
        tokio::join!(biased; scope.enter(client), end_unanswered(client, session, end, now));
    let mut last = entered.and(ended)?;
    let cancelled = last.len();
    last.push(event);
    if cancelled > 0 {
        count(client, head.get(0), end.state, cancelled, &TurnUsage::default(), now).await?;
    }
    append(client, texts, session, &last, now).await?;
    Ok(true)
}

/// Ends the turns that ran when the lease holder stopped. The head must be locked. Returns their numbers.
pub(super) async fn interrupt(
    client: &Client,
    texts: &TextCipher,
    session: Uuid,
    app: &str,
    now: Timestamp,
) -> Result<Vec<u32>, Error> {
    let end = UnansweredEnd::INTERRUPTED;
    let events = end_unanswered(client, session, end, now).await?;
    if !events.is_empty() {
        append(client, texts, session, &events, now).await?;
        count(client, app, end.state, events.len(), &TurnUsage::default(), now).await?;
    }
    Ok(events.iter().filter_map(|event| event.turn).collect())
}

/// Ends the turns of a session without an answer. The head must be locked. Returns their events in order.
async fn end_unanswered(
    client: &Client,
    session: Uuid,
    end: UnansweredEnd,
    now: Timestamp,
) -> Result<Vec<NewEvent>, Error> {
    let statement = client
        .prepare_cached(
            "WITH ended AS (
                 UPDATE hob.turns SET state = $3, error = $4, ended_at = $5, stop_reason = $6
                 WHERE session = $1 AND state IN ('queued', 'running') AND state = $2
                 RETURNING number
             ), head AS (
                 UPDATE hob.heads SET last_turn_at = $5
                 WHERE session = $1 AND EXISTS (SELECT 1 FROM ended)
             ) SELECT number FROM ended ORDER BY number",
        )
        .await?;
    let (from, state) = (end.from.as_str(), end.state.as_str());
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
        [&session, &from, &state, &end.error, &micros(now), &end.stop_reason];
    let rows = client.query(&statement, &values).await?;
    Ok(rows.iter().map(|row| end.event(number(row, 0))).collect())
}

/// Stores events of a session whose head is locked.
async fn append(
    client: &Client,
    texts: &TextCipher,
    session: Uuid,
    events: &[NewEvent],
    now: Timestamp,
) -> Result<(), Error> {
    let columns = Columns::of(texts, events);
    let statement = client.prepare_cached(APPEND).await?;
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
        [&session, &micros(now), &columns.kinds, &columns.turns, &columns.bodies, &None::<i64>];
    client.query(&statement, &values).await.map(drop)
}

/// Adds turns that ended in the same state to the usage of their app's day.
pub(super) async fn count(
    client: &Client,
    app: &str,
    state: TurnState,
    turns: usize,
    usage: &TurnUsage,
    now: Timestamp,
) -> Result<(), Error> {
    let used = UsageColumns::of(usage);
    let turns = turns as i64;
    let failed = if state.is_failure() { turns } else { 0 };
    let statement = client.prepare_cached(COUNT).await?;
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 9] = [
        &app,
        &day(now),
        &used.input,
        &used.output,
        &used.cached_read,
        &used.cached_write,
        &used.cost,
        &turns,
        &failed,
    ];
    client.execute(&statement, &values).await.map(drop)
}
