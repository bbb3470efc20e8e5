//! Pages of a session's events and turns, and usage by day. Read-only.

use hob_domain::session::{SessionEvent, SessionId, SessionTurn, TurnUsage, UsageDay};
use hob_domain::{AppName, StoreError, Timestamp};

use super::PostgresLedger;
use super::session_rows::{TURN, event, key, turn, usage};
use crate::postgres::connections::Again;
use crate::values::{app_name, day};

/// One statement tells whether the session exists and what its events are: without events, one row of nulls stands for
/// the session.
const EVENTS: &str =
    "SELECT e.seq, e.at, e.kind, e.turn, e.body FROM hob.sessions s LEFT JOIN LATERAL (
         SELECT seq, at, kind, turn, body FROM hob.events
         WHERE session = s.id AND seq > $3 ORDER BY seq LIMIT $4
     ) e ON true WHERE s.id = $1 AND s.app = $2 ORDER BY e.seq";
const EVENTS_BEFORE: &str =
    "SELECT e.seq, e.at, e.kind, e.turn, e.body FROM hob.sessions s LEFT JOIN LATERAL (
         SELECT seq, at, kind, turn, body FROM hob.events
         WHERE session = s.id AND seq < $3 ORDER BY seq DESC LIMIT $4
     ) e ON true WHERE s.id = $1 AND s.app = $2 ORDER BY e.seq";
const TURN_EVENTS: &str = "SELECT seq, at, kind, turn, body FROM hob.events
     WHERE session = $1 AND turn = $2 AND seq >= coalesce(
         (SELECT first_event FROM hob.turns WHERE session = $1 AND number = $2), 0)
     ORDER BY seq";

impl PostgresLedger {
    pub(super) async fn page_after(
        &self,
        app: &AppName,
        id: &SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Option<Vec<SessionEvent>>, StoreError> {
        self.page(EVENTS, app, id, after, limit).await
    }

    pub(super) async fn page_before(
        &self,
        app: &AppName,
        id: &SessionId,
        before: u64,
        limit: usize,
    ) -> Result<Option<Vec<SessionEvent>>, StoreError> {
        self.page(EVENTS_BEFORE, app, id, before, limit).await
    }

    async fn page(
        &self,
        sql: &str,
        app: &AppName,
        id: &SessionId,
        place: u64,
        limit: usize,
    ) -> Result<Option<Vec<SessionEvent>>, StoreError> {
        let (place, limit) = (bound(place), bound(limit as u64));
        let rows = self
            .connections
            .query(Again::Harmless, sql, &[&key(id), &app.as_str(), &place, &limit])
            .await?;
        if rows.is_empty() {
            return Ok(None);
        }
        let there = rows.iter().filter(|row| row.get::<_, Option<i64>>(0).is_some());
        Ok(Some(there.map(event).collect()))
    }

    pub(super) async fn events_of_turn(
        &self,
        id: &SessionId,
        index: u32,
    ) -> Result<Vec<SessionEvent>, StoreError> {
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&key(id), &i64::from(index)];
        let rows = self.connections.query(Again::Harmless, TURN_EVENTS, &values).await?;
        Ok(rows.iter().map(event).collect())
    }

    pub(super) async fn one_turn(
        &self,
        app: &AppName,
        id: &SessionId,
        index: u32,
    ) -> Result<Option<SessionTurn>, StoreError> {
        let sql =
            format!("SELECT {TURN} FROM hob.turns WHERE session = $1 AND app = $2 AND number = $3");
        let row = self
            .connections
            .query_one(Again::Harmless, &sql, &[&key(id), &app.as_str(), &i64::from(index)])
            .await?;
        row.as_ref().map(turn).transpose()
    }

    pub(super) async fn page_of_turns(
        &self,
        app: &AppName,
        id: &SessionId,
        before: u32,
        limit: usize,
    ) -> Result<Option<Vec<SessionTurn>>, StoreError> {
        let sql = format!(
            "SELECT t.* FROM hob.sessions s LEFT JOIN LATERAL (
                 SELECT {TURN} FROM hob.turns WHERE session = s.id AND number < $3
                 ORDER BY number DESC LIMIT $4
             ) t ON true WHERE s.id = $1 AND s.app = $2 ORDER BY t.number"
        );
        let (before, limit) = (i64::from(before), bound(limit as u64));
        let rows = self
            .connections
            .query(Again::Harmless, &sql, &[&key(id), &app.as_str(), &before, &limit])
            .await?;
        if rows.is_empty() {
            return Ok(None);
        }
        let there = rows.iter().filter(|row| row.get::<_, Option<i64>>(0).is_some());
        there.map(turn).collect::<Result<_, _>>().map(Some)
    }

    pub(super) async fn usage_of_day(
        &self,
        app: &AppName,
        at: Timestamp,
    ) -> Result<TurnUsage, StoreError> {
        let row = self
            .connections
            .query_one(
                Again::Harmless,
                "SELECT coalesce(sum(input_tokens), 0)::bigint,
                     coalesce(sum(output_tokens), 0)::bigint,
                     coalesce(sum(cached_read_tokens), 0)::bigint,
                     coalesce(sum(cached_write_tokens), 0)::bigint,
                     coalesce(sum(cost_usd), 0)::double precision
                 FROM hob.usage WHERE app = $1 AND day = $2",
                &[&app.as_str(), &day(at)],
            )
            .await?;
        Ok(row.map(|row| usage(&row, 0)).unwrap_or_default())
    }

    pub(super) async fn usage_by_day(
        &self,
        first: Timestamp,
        app: Option<&AppName>,
    ) -> Result<Vec<UsageDay>, StoreError> {
        let rows = self
            .connections
            .query(
                Again::Harmless,
                "SELECT sum(input_tokens)::bigint, sum(output_tokens)::bigint,
                     sum(cached_read_tokens)::bigint, sum(cached_write_tokens)::bigint,
                     sum(cost_usd), app, day, sum(turns)::bigint, sum(failed)::bigint
                 FROM hob.usage WHERE day >= $1 AND ($2::text IS NULL OR app = $2)
                 GROUP BY day, app ORDER BY day, app",
                &[&day(first), &app.map(AppName::as_str)],
            )
            .await?;
        let of_day = |row: &tokio_postgres::Row| {
            let second = row.get::<_, i64>(6) * 24 * 60 * 60;
            Ok(UsageDay {
                app: app_name(row.get(5))?,
                day: Timestamp::from_second(second).unwrap_or_default(),
                turns: row.get::<_, i64>(7) as u64,
                failed: row.get::<_, i64>(8) as u64,
                usage: usage(row, 0),
            })
        };
        rows.iter().map(of_day).collect()
    }
}

/// Returns a number within the range of the database's type.
fn bound(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
