//! Lists of sessions, pages of their events and turns, and usage by day.

use hob_domain::session::{
    EventRange, MAX_EVENT_PAGE_BYTES, MAX_SESSION_PAGE_BYTES, Session, SessionEvent, SessionFilter,
    SessionId, SessionPage, SessionTurn, TurnRange, UsageDay,
};
use hob_domain::{AppName, StoreError, Timestamp};
use rusqlite::{Connection, OptionalExtension, ToSql, params};

use super::leases::{timeout_micros, unleased};
use super::session_rows::{
    SESSION, TURN, description_bytes, event, session, turn, usage as usage_columns,
};
use crate::sqlite::failed;
use crate::values::{app_name, day, micros};

pub(super) const EVENTS_AFTER: &str = "SELECT seq, at, kind, turn, body FROM events
     WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
pub(super) const EVENTS_BEFORE: &str = "SELECT seq, at, kind, turn, body FROM events
     WHERE session = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3";
pub(super) const TURN_EVENTS: &str = "SELECT seq, at, kind, turn, body FROM events
     WHERE session = ?1 AND turn = ?2
     AND seq >= coalesce(
         (SELECT first_event FROM turns WHERE session = ?1 AND number = ?2), 0)
     ORDER BY seq";

pub(super) const ONE_TURN: &str = "WHERE session = ?1 AND number = ?2";
const TURNS_BEFORE: &str = "WHERE session = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3";
/// The first condition on the state repeats that of the index, which has few rows.
pub(super) const QUEUED_TURNS: &str = "INDEXED BY turns_under_way
     WHERE session = ?1 AND state IN ('queued', 'running') AND state = 'queued' ORDER BY number";
pub(super) const USAGE: &str = "SELECT app, day, turns, failed, input_tokens, output_tokens,
         cached_read_tokens, cached_write_tokens, cost_usd
     FROM usage WHERE day BETWEEN ?1 AND ?2";
/// The ids of the sessions with a running or queued turn.
const BUSY: &str = "(SELECT session FROM turns INDEXED BY turns_under_way
     WHERE state IN ('queued', 'running'))";

pub(super) fn find(
    connection: &Connection,
    app: &AppName,
    id: &SessionId,
) -> Result<Option<Session>, StoreError> {
    let sql = format!("SELECT {SESSION} FROM sessions WHERE app = ?1 AND id = ?2");
    let found = connection
        .prepare_cached(&sql)
        .and_then(|mut s| {
            s.query_row([app.as_str(), id.as_str()], |row| Ok(session(row))).optional()
        })
        .map_err(failed)?;
    found.transpose()
}

/// Returns the sessions that pass a filter, oldest first.
pub(super) fn list(
    connection: &Connection,
    filter: &SessionFilter,
) -> Result<Vec<Session>, StoreError> {
    let read = |condition: &str, values: &[&dyn ToSql]| {
        let sql =
            format!("SELECT {SESSION} FROM sessions WHERE {condition} ORDER BY created_at, id");
        let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
        let rows = statement.query_map(values, |row| Ok(session(row))).map_err(failed)?;
        rows.map(|row| row.map_err(failed)?).collect()
    };
    match filter {
        SessionFilter::App(app) => read("app = ?1", &[&app.as_str()]),
        SessionFilter::All => read("true", &[]),
        SessionFilter::Page(page) => list_page(connection, page),
        SessionFilter::Id(id) => read("id = ?1", &[&id.as_str()]),
        SessionFilter::Open => read("closed_at IS NULL", &[]),
        SessionFilter::IdleSince(then) => {
            let condition = format!(
                "closed_at IS NULL AND coalesce(last_turn_at, created_at) < ?1
                 AND id NOT IN {BUSY}"
            );
            read(&condition, &[&micros(*then)])
        }
        SessionFilter::Unleased(lease_timeout) => {
            let unleased = unleased("?1");
            let condition = format!("(closed_at IS NULL OR id IN {BUSY}) AND {unleased}");
            read(&condition, &[&timeout_micros(*lease_timeout)])
        }
        SessionFilter::Orphaned(lease_timeout) => {
            let condition = format!("id IN {BUSY} AND {}", unleased("?1"));
            read(&condition, &[&timeout_micros(*lease_timeout)])
        }
    }
}

/// Returns a page of a list of sessions. The sessions are found by the index alone, and only those of the page are read:
/// sorting whole rows would keep them all in memory.
fn list_page(connection: &Connection, page: &SessionPage) -> Result<Vec<Session>, StoreError> {
    let of_app = if page.app.is_some() { "app = ?1" } else { "?1 IS NULL" };
    let ids = format!(
        "SELECT id FROM sessions INDEXED BY sessions_of_app
         WHERE {of_app} AND (created_at, id) > (?2, ?3) ORDER BY created_at, id LIMIT ?4"
    );
    let after = page.after.as_ref();
    let (at, id) = after.map_or((i64::MIN, ""), |(at, id)| (micros(*at), id.as_str()));
    let app = page.app.as_ref().map(AppName::as_str);
    let read = || -> rusqlite::Result<Vec<Result<Session, StoreError>>> {
        // In one transaction, so that a session of the page is still there when it is read.
        let transaction = connection.unchecked_transaction()?;
        let mut found = transaction.prepare_cached(&ids)?;
        let mut found = found.query(params![app, at, id, bound(page.limit as u64)])?;
        let sql = format!("SELECT {SESSION} FROM sessions WHERE id = ?1");
        let mut one = transaction.prepare_cached(&sql)?;
        let (mut sessions, mut bytes) = (Vec::new(), 0);
        while let Some(row) = found.next()? {
            let id: String = row.get(0)?;
            let (length, session) =
                one.query_row([id], |row| Ok((description_bytes(row)?, session(row))))?;
            bytes += length;
            if bytes > MAX_SESSION_PAGE_BYTES && !sessions.is_empty() {
                break;
            }
            sessions.push(session);
        }
        Ok(sessions)
    };
    read().map_err(failed)?.into_iter().collect()
}

fn is_known(connection: &Connection, app: &AppName, id: &SessionId) -> Result<bool, StoreError> {
    connection
        .prepare_cached("SELECT 1 FROM sessions WHERE app = ?1 AND id = ?2")
        .and_then(|mut s| s.exists([app.as_str(), id.as_str()]))
        .map_err(failed)
}

/// Returns events of a session, in order; `None` if there is no such session.
pub(super) fn events(
    connection: &Connection,
    app: &AppName,
    id: &SessionId,
    range: EventRange,
) -> Result<Option<Vec<SessionEvent>>, StoreError> {
    if !is_known(connection, app, id)? {
        return Ok(None);
    }
    let id = id.as_str();
    let read = |sql, values: &[&dyn ToSql]| -> rusqlite::Result<Vec<SessionEvent>> {
        let mut statement = connection.prepare_cached(sql)?;
        let (mut events, mut bytes) = (Vec::new(), 0);
        for read in statement.query_map(values, event)? {
            let read = read?;
            bytes += read.event.body.len();
            if bytes > MAX_EVENT_PAGE_BYTES && !events.is_empty() {
                break;
            }
            events.push(read);
        }
        Ok(events)
    };
    let events = match range {
        EventRange::After { after, limit } => {
            read(EVENTS_AFTER, &[&id, &bound(after), &bound(limit as u64)])
        }
        EventRange::Before { before, limit } => {
            let events = read(EVENTS_BEFORE, &[&id, &bound(before), &bound(limit as u64)]);
            events.map(|events| events.into_iter().rev().collect())
        }
        EventRange::Turn(index) => read(TURN_EVENTS, &[&id, &index]),
    };
    events.map(Some).map_err(failed)
}

/// Returns turns of a session, in order; `None` if there is no such session.
pub(super) fn turns(
    connection: &Connection,
    app: &AppName,
    id: &SessionId,
    range: TurnRange,
) -> Result<Option<Vec<SessionTurn>>, StoreError> {
    if !is_known(connection, app, id)? {
        return Ok(None);
    }
    let id = id.as_str();
    let read = |rest: &str, values: &[&dyn ToSql]| -> Result<Vec<SessionTurn>, StoreError> {
        let sql = format!("SELECT {TURN} FROM turns {rest}");
        let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
        let rows = statement.query_map(values, |row| Ok(turn(row))).map_err(failed)?;
        rows.map(|row| row.map_err(failed)?).collect()
    };
    let turns = match range {
        TurnRange::One(index) => read(ONE_TURN, &[&id, &index]),
        TurnRange::Before { before, limit } => {
            let turns = read(TURNS_BEFORE, &[&id, &before, &bound(limit as u64)]);
            turns.map(|turns| turns.into_iter().rev().collect())
        }
        TurnRange::Queued => read(QUEUED_TURNS, &[&id]),
    };
    turns.map(Some)
}

/// Returns usage by day and app.
pub(super) fn usage(
    connection: &Connection,
    first: Timestamp,
    last: Option<Timestamp>,
    app: Option<&AppName>,
) -> Result<Vec<UsageDay>, StoreError> {
    let of_app = if app.is_some() { "app = ?3" } else { "?3 IS NULL" };
    let sql = format!("{USAGE} AND {of_app} ORDER BY day, app");
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    let (first, last) = (day(first), last.map_or(i64::MAX, day));
    let rows = statement
        .query_map(params![first, last, app.map(AppName::as_str)], |row| {
            let count = |column| row.get::<_, i64>(column).map(|n| n as u64);
            let app: String = row.get(0)?;
            Ok((app, row.get::<_, i64>(1)?, count(2)?, count(3)?, usage_columns(row, 4)?))
        })
        .map_err(failed)?;
    rows.map(|row| {
        let (app, day, turns, failures, usage) = row.map_err(failed)?;
        let day = Timestamp::from_second(day * 24 * 60 * 60).unwrap_or_default();
        Ok(UsageDay { app: app_name(app)?, day, turns, failed: failures, usage })
    })
    .collect()
}

/// Returns a number within the range of the database's type.
fn bound(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
