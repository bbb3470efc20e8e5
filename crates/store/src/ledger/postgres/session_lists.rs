//! Lists of sessions, pages of their events and turns, and usage by day. Read-only.

use hob_domain::session::{
    EventRange, MAX_EVENT_PAGE_BYTES, MAX_SESSION_PAGE_BYTES, Session, SessionEvent, SessionFilter,
    SessionId, SessionPage, SessionTurn, TurnRange, UsageDay,
};
use hob_domain::{AppName, StoreError, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::PostgresLedger;
use super::session_rows::{SESSION, TURN, event, key, session, turn, usage as usage_columns};
use crate::postgres::connections::{Again, Values};
use crate::postgres::text_cipher::TextCipher;
use crate::values::{app_name, day, micros};

/// Tells whether a turn of the session in the row is running or queued.
const BUSY: &str = "EXISTS (SELECT 1 FROM hob.turns t
     WHERE t.session = s.id AND t.state IN ('queued', 'running'))";
/// Tells whether the session in the row has no live lease holder. `$1` is the timeout of leases in seconds.
const UNLEASED: &str = "NOT EXISTS (SELECT 1 FROM hob.nodes n WHERE n.id = h.holder
     AND n.heartbeat_at > clock_timestamp() - make_interval(secs => $1))";

/// Returns the sessions that pass a filter, oldest first.
pub(super) async fn list(
    ledger: &PostgresLedger,
    filter: &SessionFilter,
) -> Result<Vec<Session>, StoreError> {
    let app = match filter {
        SessionFilter::App(app) => Some(app),
        _ => None,
    };
    let connections = ledger.of_app_or_all(app);
    let read = async |condition: &str, values: Values<'_>| {
        let sql = format!("{SESSION} WHERE {condition} ORDER BY s.created_at, s.id");
        let rows = connections.query(Again::Harmless, &sql, values).await?;
        rows.iter().map(|row| session(row, &ledger.texts)).collect()
    };
    match filter {
        SessionFilter::App(app) => read("s.app = $1", &[&app.as_str()]).await,
        SessionFilter::All => read("true", &[]).await,
        SessionFilter::Page(page) => list_page(ledger, page).await,
        SessionFilter::Id(id) => read("s.id = $1", &[&key(id)]).await,
        SessionFilter::Open => read("h.closed_at IS NULL", &[]).await,
        SessionFilter::IdleSince(then) => {
            let condition = format!(
                "h.closed_at IS NULL AND coalesce(h.last_turn_at, s.created_at) < $1
                 AND NOT {BUSY}"
            );
            read(&condition, &[&micros(*then)]).await
        }
        SessionFilter::Unleased(lease_timeout) => {
            let condition = format!("(h.closed_at IS NULL OR {BUSY}) AND {UNLEASED}");
            read(&condition, &[&lease_timeout.as_secs_f64()]).await
        }
        SessionFilter::Orphaned(lease_timeout) => {
            let condition = format!("{BUSY} AND {UNLEASED}");
            read(&condition, &[&lease_timeout.as_secs_f64()]).await
        }
    }
}

/// Returns a page of a list of sessions.
async fn list_page(
    ledger: &PostgresLedger,
    page: &SessionPage,
) -> Result<Vec<Session>, StoreError> {
    let of_app = if page.app.is_some() { "app = $1" } else { "$1::text IS NULL" };
    let sql = format!(
        "{SESSION} JOIN (
             SELECT id, sum(length) OVER (ORDER BY created_at, id) AS bytes,
                 row_number() OVER (ORDER BY created_at, id) AS place FROM (
                 SELECT id, created_at, octet_length(meta) + coalesce(octet_length(system), 0)
                     + octet_length(mcp_servers) AS length
                 FROM hob.sessions WHERE {of_app} AND (created_at, id) > ($2, $3)
                 ORDER BY created_at, id LIMIT $4) found
         ) page ON page.id = s.id AND (page.bytes <= {MAX_SESSION_PAGE_BYTES} OR page.place = 1)
         ORDER BY s.created_at, s.id"
    );
    let after = page.after.as_ref();
    let (at, id) = after.map_or((i64::MIN, Uuid::nil()), |(at, id)| (micros(*at), key(id)));
    let (app, limit) = (page.app.as_ref().map(AppName::as_str), bound(page.limit as u64));
    let values: Values<'_> = &[&app, &at, &id, &limit];
    let connections = ledger.of_app_or_all(page.app.as_ref());
    let rows = connections.query(Again::Harmless, &sql, values).await?;
    rows.iter().map(|row| session(row, &ledger.texts)).collect()
}

/// Returns events of a session, in order; `None` if there is no such session.
pub(super) async fn events(
    ledger: &PostgresLedger,
    app: &AppName,
    id: &SessionId,
    range: EventRange,
) -> Result<Option<Vec<SessionEvent>>, StoreError> {
    let (condition, order, values) = match range {
        EventRange::After { after, limit } => {
            ("seq > $3 ORDER BY seq LIMIT $4", "ASC", vec![bound(after), bound(limit as u64)])
        }
        EventRange::Before { before, limit } => {
            let values = vec![bound(before), bound(limit as u64)];
            ("seq < $3 ORDER BY seq DESC LIMIT $4", "DESC", values)
        }
        EventRange::Turn(index) => {
            // The subquery names no column of `s`, so that it runs once and bounds the index scan.
            let condition = "turn = $3 AND seq >= coalesce(
                 (SELECT first_event FROM hob.turns WHERE session = $1 AND number = $3), 0)";
            (condition, "ASC", vec![i64::from(index)])
        }
    };
    let length = TextCipher::plain_length("body");
    let sql = format!(
        "SELECT e.seq, e.at, e.kind, e.turn, e.body FROM hob.sessions s LEFT JOIN LATERAL (
             SELECT page.*, sum({length}) OVER (ORDER BY seq {order}) AS bytes,
                 row_number() OVER (ORDER BY seq {order}) AS place FROM (
                 SELECT seq, at, kind, turn, body FROM hob.events
                 WHERE session = s.id AND {condition}) page
         ) e ON e.bytes <= {MAX_EVENT_PAGE_BYTES} OR e.place = 1
         WHERE s.id = $1 AND s.app = $2 ORDER BY e.seq"
    );
    let rows = rows_of_session(ledger, &sql, app, id, &values).await?;
    let event = |row: &Row| event(row, &ledger.texts);
    rows.map(|rows| rows.iter().map(event).collect()).transpose()
}

/// Returns turns of a session, in order; `None` if there is no such session.
pub(super) async fn turns(
    ledger: &PostgresLedger,
    app: &AppName,
    id: &SessionId,
    range: TurnRange,
) -> Result<Option<Vec<SessionTurn>>, StoreError> {
    let (condition, values) = match range {
        TurnRange::One(index) => ("number = $3", vec![i64::from(index)]),
        TurnRange::Before { before, limit } => {
            let values = vec![i64::from(before), bound(limit as u64)];
            ("number < $3 ORDER BY number DESC LIMIT $4", values)
        }
        // The first condition repeats that of the index, which has few rows.
        TurnRange::Queued => ("state IN ('queued', 'running') AND state = 'queued'", Vec::new()),
    };
    let sql = format!(
        "SELECT t.* FROM hob.sessions s LEFT JOIN LATERAL (
             SELECT {TURN} FROM hob.turns WHERE session = s.id AND {condition}
         ) t ON true WHERE s.id = $1 AND s.app = $2 ORDER BY t.number"
    );
    let rows = rows_of_session(ledger, &sql, app, id, &values).await?;
    let turn = |row: &Row| turn(row, &ledger.texts);
    rows.map(|rows| rows.iter().map(turn).collect()).transpose()
}

/// Runs a statement that tells whether a session exists and what it contains: without contents, one
/// row of nulls stands for the session. Returns the contents; `None` if there is no such session.
async fn rows_of_session(
    ledger: &PostgresLedger,
    sql: &str,
    app: &AppName,
    id: &SessionId,
    values: &[i64],
) -> Result<Option<Vec<Row>>, StoreError> {
    let (id, name) = (key(id), app.as_str());
    let mut all: Vec<&(dyn ToSql + Sync)> = vec![&id, &name];
    all.extend(values.iter().map(|value| value as &(dyn ToSql + Sync)));
    let mut rows = ledger.of_app(app).query(Again::Harmless, sql, &all).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    rows.retain(|row| row.get::<_, Option<i64>>(0).is_some());
    Ok(Some(rows))
}

/// Returns usage by day and app.
pub(super) async fn usage(
    ledger: &PostgresLedger,
    first: Timestamp,
    last: Option<Timestamp>,
    app: Option<&AppName>,
) -> Result<Vec<UsageDay>, StoreError> {
    let of_app = if app.is_some() { "app = $3" } else { "$3::text IS NULL" };
    let sql = format!(
        "SELECT sum(input_tokens)::bigint, sum(output_tokens)::bigint,
             sum(cached_read_tokens)::bigint, sum(cached_write_tokens)::bigint,
             sum(cost_usd), app, day, sum(turns)::bigint, sum(failed)::bigint
         FROM hob.usage WHERE day BETWEEN $1 AND $2 AND {of_app}
         GROUP BY day, app ORDER BY day, app"
    );
    let (first, last) = (day(first), last.map_or(i64::MAX, day));
    let values: Values<'_> = &[&first, &last, &app.map(AppName::as_str)];
    let of_day = |row: &Row| {
        let second = row.get::<_, i64>(6) * 24 * 60 * 60;
        Ok(UsageDay {
            app: app_name(row.get(5))?,
            day: Timestamp::from_second(second).unwrap_or_default(),
            turns: row.get::<_, i64>(7) as u64,
            failed: row.get::<_, i64>(8) as u64,
            usage: usage_columns(row, 0),
        })
    };
    let rows = ledger.of_app_or_all(app).query(Again::Harmless, &sql, values).await?;
    rows.iter().map(of_day).collect()
}

/// Returns a number within the range of the database's type.
fn bound(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
