//! Sessions in PostgreSQL.
//!
//! After a lost connection, reads are retried, and only those writes that have the same effect and answer when they run
//! twice: storing the agent's session name, and taking rows of the outbox. Any other write could take effect twice, or
//! answer the second time as if another caller had been first; its caller gets `StoreError::Unavailable`.

use std::time::Duration;

use async_trait::async_trait;
use hob_domain::session::{
    Accepted, CostTarget, Created, DeleteFilter, EventRange, IdempotencyKey, NewEvent, OpenLimits,
    OutboxChange, OutboxItem, RememberedTurn, Repeat, Session, SessionEvent, SessionFilter,
    SessionId, SessionStore, SessionTurn, SessionlessTurn, TurnEnding, TurnRange, TurnRequest,
    TurnState, TurnUsage, UsageDay, UsageNote,
};
use hob_domain::{AppName, DocumentKind, Lease, LeaseOutcome, NodeId, StoreError, Timestamp};
use uuid::Uuid;

use super::PostgresLedger;
use super::fences::fence;
use super::leases;
use super::session_lists;
use super::session_rows::{SESSION, id as session_id, key, number, session as session_row};
use super::turns::{
    ADD_COST, APPEND, Columns, END, End, START, accept, before, close, count, numbered,
};
use crate::postgres::connections::{Again, Scoped, Values};
use crate::postgres::row_scope::RowScope;
use crate::postgres::text::put;
use crate::postgres::text_cipher::TextKind;
use crate::values::{UsageColumns, day, hashed_key, micros};

const CREATE: &str = "WITH made AS (
         INSERT INTO hob.sessions (id, created_at, app, agent, meta, cwd, model, system, permissions,
             mcp_servers)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
     ), head AS (
         INSERT INTO hob.heads (session, last_event, turn_count, app, agent_session, fence, holder)
         VALUES ($1, 1, 0, $3, $11, 1, $15)
     ) INSERT INTO hob.events (session, seq, at, turn, app, kind, body, fence)
     VALUES ($1, 1, $2, $12, $3, $13, $14, 1)";

#[async_trait]
impl SessionStore for PostgresLedger {
    async fn create_session(
        &self,
        session: &Session,
        event: NewEvent,
        node: &NodeId,
        limits: OpenLimits,
    ) -> Result<Created, StoreError> {
        let setup = &session.setup;
        let sealed = |text: &str| self.texts.seal(TextKind::Setup, text);
        let values: Values<'_> = &[
            &key(&session.id),
            &micros(session.created_at),
            &session.app.as_str(),
            &setup.agent.as_str(),
            &sealed(&setup.meta.to_string()),
            &sealed(&setup.cwd),
            &setup.model.as_deref().map(put),
            &setup.system.as_deref().map(sealed),
            &setup.permissions.as_str(),
            &sealed(&setup.mcp_servers.to_string()),
            &session.agent_session.as_deref().map(put),
            &event.turn.map(i64::from),
            &put(event.kind.as_str()),
            &self.texts.seal(TextKind::Event, &event.body),
            &node.as_str(),
        ];
        let refused = if limits == OpenLimits::default() {
            self.of_app(&session.app).query(Again::Never, CREATE, values).await?;
            None
        } else {
            create_within(self, limits, &session.app, values).await?
        };
        let lease = Lease { app: session.app.clone(), session: session.id.clone(), fence: 1 };
        Ok(refused.unwrap_or(Created::Made(lease)))
    }

    async fn acquire_lease(
        &self,
        id: &SessionId,
        node: &NodeId,
        lease_timeout: Duration,
        now: Timestamp,
    ) -> Result<LeaseOutcome, StoreError> {
        leases::acquire(self, id, node, lease_timeout, now).await
    }

    async fn release_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        leases::release(self, lease).await
    }

    async fn session(&self, app: &AppName, id: &SessionId) -> Result<Option<Session>, StoreError> {
        let sql = format!("{SESSION} WHERE s.id = $1 AND s.app = $2");
        let values: Values<'_> = &[&key(id), &app.as_str()];
        let row = self.of_app(app).query_one(Again::Harmless, &sql, values).await?;
        row.as_ref().map(|row| session_row(row, &self.texts)).transpose()
    }

    async fn sessions(&self, filter: &SessionFilter) -> Result<Vec<Session>, StoreError> {
        session_lists::list(self, filter).await
    }

    async fn accept_turn(
        &self,
        app: &AppName,
        id: &SessionId,
        request: &TurnRequest,
        now: Timestamp,
    ) -> Result<Option<Accepted>, StoreError> {
        self.of_app(app)
            .transaction(|client| async move {
                accept(&client, &self.texts, app.as_str(), id, request, now).await
            })
            .await
    }

    async fn find_repeat(
        &self,
        app: &AppName,
        id: &SessionId,
        idempotency: &IdempotencyKey,
    ) -> Result<Option<Repeat>, StoreError> {
        let sql = "SELECT number, request_digest FROM hob.turns
             WHERE session = $1 AND app = $2 AND idempotency_key = $3";
        let values: Values<'_> = &[&key(id), &app.as_str(), &hashed_key(&idempotency.key)];
        let found = self.of_app(app).query_one(Again::Harmless, sql, values).await?;
        Ok(found.map(|row| match row.get::<_, Option<String>>(1).as_deref() {
            Some(known) if known == put(&idempotency.digest) => Repeat::Same(number(&row, 0)),
            _ => Repeat::OtherRequest,
        }))
    }

    async fn keep_agent_session(&self, lease: &Lease, name: &str) -> Result<(), StoreError> {
        let sql = "UPDATE hob.heads SET agent_session = $2 WHERE session = $1 AND fence = $3
             RETURNING 1";
        let values: Values<'_> = &[&key(&lease.session), &put(name), &fence(lease)];
        let kept = self.of_app(&lease.app).query_one(Again::Harmless, sql, values).await?;
        kept.map(drop).ok_or(StoreError::Lost)
    }

    async fn start_turn(
        &self,
        lease: &Lease,
        index: u32,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let values: Values<'_> =
            &[&key(&lease.session), &i64::from(index), &micros(now), &fence(lease)];
        let row = self.of_app(&lease.app).query_one(Again::Never, START, values).await?;
        row.map(|row| row.get(0)).ok_or(StoreError::Lost)
    }

    async fn append_events(
        &self,
        lease: &Lease,
        events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<Vec<SessionEvent>, StoreError> {
        let columns = Columns::of(&self.texts, &events);
        let (kinds, turns, bodies) = (&columns.kinds, &columns.turns, &columns.bodies);
        let values: Values<'_> =
            &[&key(&lease.session), &micros(now), kinds, turns, bodies, &Some(fence(lease))];
        let row = self.of_app(&lease.app).query_one(Again::Never, APPEND, values).await?;
        row.map(|row| numbered(row.get(0), events, now)).ok_or(StoreError::Lost)
    }

    async fn end_turn(
        &self,
        lease: &Lease,
        index: u32,
        ending: TurnEnding,
        now: Timestamp,
    ) -> Result<Option<Vec<SessionEvent>>, StoreError> {
        let End { ending, used, columns } = End::new(&self.texts, ending);
        let outbox = ending.outbox.as_ref().map(RememberedTurn::to_json);
        let outbox = outbox.map(|turn| self.texts.seal(TextKind::Outbox, &turn));
        let error = ending.error.as_deref();
        let values: Values<'_> = &[
            &key(&lease.session),
            &i64::from(index),
            &before(ending.state),
            &ending.state.as_str(),
            &self.texts.seal(TextKind::Answer, &ending.text),
            &ending.stop_reason.as_deref().map(put),
            &error.map(|text| self.texts.seal(TextKind::TurnError, text)),
            &micros(now),
            &used.input,
            &used.output,
            &used.cached_read,
            &used.cached_write,
            &used.cost,
            &ending.agent_session.as_deref().map(put),
            &outbox,
            &columns.kinds,
            &columns.turns,
            &columns.bodies,
            &day(now),
            &i64::from(ending.state.is_failure()),
            &fence(lease),
        ];
        let row = self.of_app(&lease.app).query_one(Again::Never, END, values).await?;
        let first: Option<i64> = row.ok_or(StoreError::Lost)?.get(0);
        Ok(first.map(|first| numbered(first, ending.events, now)))
    }

    async fn turns(
        &self,
        app: &AppName,
        id: &SessionId,
        range: TurnRange,
    ) -> Result<Option<Vec<SessionTurn>>, StoreError> {
        session_lists::turns(self, app, id, range).await
    }

    async fn events(
        &self,
        app: &AppName,
        id: &SessionId,
        range: EventRange,
    ) -> Result<Option<Vec<SessionEvent>>, StoreError> {
        session_lists::events(self, app, id, range).await
    }

    async fn close_session(
        &self,
        id: &SessionId,
        event: NewEvent,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let event = &event;
        self.connections
            .within(RowScope::All)
            .transaction(|client| async move {
                close(&client, &self.texts, id, event.clone(), now).await
            })
            .await
    }

    async fn delete_sessions(&self, filter: &DeleteFilter) -> Result<Vec<SessionId>, StoreError> {
        delete(self, filter).await
    }

    async fn usage(
        &self,
        first: Timestamp,
        last: Option<Timestamp>,
        app: Option<&AppName>,
    ) -> Result<Vec<UsageDay>, StoreError> {
        session_lists::usage(self, first, last, app).await
    }

    async fn note_usage(&self, note: &UsageNote, now: Timestamp) -> Result<(), StoreError> {
        match note {
            UsageNote::SessionlessTurn(turn) => self.note_turn(turn, now).await,
            UsageNote::LateCost { target, cost_usd } => self.add_cost(target, *cost_usd, now).await,
        }
    }

    async fn outbox(&self, limit: usize, without: &[i64]) -> Result<Vec<OutboxItem>, StoreError> {
        // Rows taken by another node are left to it, unless it took them long ago.
        let sql = "WITH taken AS (
                 UPDATE hob.outbox SET taken_by = $2, taken_at = clock_timestamp() WHERE id IN (
                     SELECT id FROM hob.outbox WHERE NOT set_aside AND NOT (id = ANY ($3::bigint[]))
                         AND (taken_by IS NULL OR taken_by = $2
                             OR taken_at < clock_timestamp() - interval '30 seconds')
                     ORDER BY attempts, id LIMIT $1 FOR UPDATE SKIP LOCKED)
                 RETURNING id, app, attempts, body
             ) SELECT id, app, attempts, body FROM taken ORDER BY attempts, id";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let values: Values<'_> = &[&limit, &self.outbox_taker, &without];
        let connections = self.connections.within(RowScope::All);
        let rows = connections.query(Again::Harmless, sql, values).await?;
        // A row that this key does not open is left where it is, and does not keep the others back.
        let item = |row: &tokio_postgres::Row| {
            let body = self.texts.open(TextKind::Outbox, row.get(3)).ok()?;
            let attempts: i32 = row.get(2);
            Some(OutboxItem::from_row(row.get(0), row.get(1), attempts.into(), &body))
        };
        Ok(rows.iter().filter_map(item).collect())
    }

    async fn change_outbox(&self, ids: Vec<i64>, change: OutboxChange) -> Result<(), StoreError> {
        let connections = self.connections.within(RowScope::All);
        match change {
            OutboxChange::Attempts(attempts) => {
                let attempts = i32::try_from(attempts).unwrap_or(i32::MAX);
                let sql = "UPDATE hob.outbox SET attempts = $2 WHERE id = ANY ($1::bigint[])";
                connections.query(Again::Harmless, sql, &[&ids, &attempts]).await.map(drop)
            }
            OutboxChange::SetAside => {
                let sql = "UPDATE hob.outbox SET set_aside = true WHERE id = ANY ($1::bigint[])";
                connections.query(Again::Harmless, sql, &[&ids]).await.map(drop)
            }
            OutboxChange::Stored => {
                let sql = "DELETE FROM hob.outbox WHERE id = ANY ($1::bigint[])";
                connections.query(Again::Harmless, sql, &[&ids]).await.map(drop)
            }
        }
    }
}

impl PostgresLedger {
    async fn note_turn(&self, turn: &SessionlessTurn, now: Timestamp) -> Result<(), StoreError> {
        let app = turn.app.as_str();
        self.of_app(&turn.app)
            .transaction(|client| async move {
                if let Some(turn) = &turn.outbox {
                    let sql = "INSERT INTO hob.outbox (app, body) VALUES ($1, $2)";
                    let statement = client.prepare_cached(sql).await?;
                    let body = self.texts.seal(TextKind::Outbox, &turn.to_json());
                    client.execute(&statement, &[&app, &body]).await?;
                }
                count(&client, app, turn.state, 1, &turn.usage, now).await
            })
            .await
    }

    async fn add_cost(
        &self,
        target: &CostTarget,
        cost_usd: f64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let usage = TurnUsage { cost_usd, ..TurnUsage::default() };
        match target {
            CostTarget::Turn { lease, index } => {
                let cost = UsageColumns::of(&usage).cost;
                let values: Values<'_> =
                    &[&key(&lease.session), &i64::from(*index), &cost, &day(now), &fence(lease)];
                let row = self.of_app(&lease.app).query_one(Again::Never, ADD_COST, values).await?;
                row.map(drop).ok_or(StoreError::Lost)
            }
            CostTarget::Sessionless(app) => {
                let usage = &usage;
                self.of_app(app)
                    .transaction(|client| async move {
                        count(&client, app.as_str(), TurnState::Finished, 0, usage, now).await
                    })
                    .await
            }
        }
    }
}

/// Creates a session of an app with the values of [`CREATE`], or returns why the limits refuse it.
///
/// Serialised by locks: counting and adding are one step. All callers take the locks in this order, which rules out
/// deadlocks.
async fn create_within(
    ledger: &PostgresLedger,
    limits: OpenLimits,
    app: &AppName,
    values: Values<'_>,
) -> Result<Option<Created>, StoreError> {
    let (for_all, for_app) = (limits.all > 0, limits.app > 0);
    // The sessions of all apps are counted only for the limit of all.
    let connections = ledger.of_app_or_all((!for_all).then_some(app));
    let app = app.as_str();
    connections
        .transaction(|client| async move {
            let lock = "SELECT CASE WHEN $1 THEN pg_advisory_xact_lock(1751080050) END";
            client.query(&client.prepare_cached(lock).await?, &[&for_all]).await?;
            let lock = "SELECT CASE WHEN $1 THEN pg_advisory_xact_lock(hashtextextended($2, 1751080049)) END";
            client.query(&client.prepare_cached(lock).await?, &[&for_app, &app]).await?;
            let count = "SELECT count(*) FILTER (WHERE app = $1), count(*) FROM hob.heads
                 WHERE closed_at IS NULL AND (app = $1 OR $2)";
            let count = client.prepare_cached(count).await?;
            let row = client.query_one(&count, &[&app, &for_all]).await?;
            let (of_app, of_all) = (row.get::<_, i64>(0) as usize, row.get::<_, i64>(1) as usize);
            if let Some(refusal) = limits.refusal(of_app, of_all) {
                return Ok(Some(refusal));
            }
            let create = client.prepare_cached(CREATE).await?;
            let scope = RowScope::App(app);
            let (entered, created) =
                tokio::join!(biased; scope.enter(&client), client.execute(&create, values));
            entered.and(created)?;
            Ok(None)
        })
        .await
}

/// Deletes the sessions that pass a filter, and returns their ids.
async fn delete(
    ledger: &PostgresLedger,
    filter: &DeleteFilter,
) -> Result<Vec<SessionId>, StoreError> {
    match filter {
        DeleteFilter::ClosedBefore(then) => {
            let expiring = DocumentKind::EXPIRING.map(DocumentKind::as_str).join("', '");
            let expired = format!(
                "DELETE FROM hob.documents WHERE kind IN ('{expiring}') AND created_at < $1"
            );
            let also = [
                expired.as_str(),
                "DELETE FROM hob.documents WHERE kind = 'session' AND created_at < $1
                     AND id NOT IN (SELECT replace(session::text, '-', '') FROM hob.heads)",
            ];
            let connections = ledger.connections.within(RowScope::All);
            delete_where(connections, "closed_at < $1", &[&micros(*then)], &also).await
        }
        DeleteFilter::App(app) => {
            let also = [
                "DELETE FROM hob.documents WHERE app = $1",
                "DELETE FROM hob.outbox WHERE app = $1",
                "DELETE FROM hob.usage WHERE app = $1",
                "DELETE FROM hob.files WHERE app = $1",
                "DELETE FROM hob.pace WHERE app = $1",
            ];
            delete_where(ledger.of_app(app), "app = $1", &[&app.as_str()], &also).await
        }
    }
}

/// Deletes the sessions whose heads meet a condition with everything they contain, and runs the statements in `also`.
/// The heads are locked first, so that nothing can be added to a session while it is deleted.
async fn delete_where(
    connections: Scoped<'_>,
    condition: &str,
    values: Values<'_>,
    also: &[&str],
) -> Result<Vec<SessionId>, StoreError> {
    let lock =
        &format!("SELECT session FROM hob.heads WHERE {condition} ORDER BY session FOR UPDATE");
    let deleted = connections
        .long_transaction(|client| async move {
            let statement = client.prepare_cached(lock).await?;
            let rows = client.query(&statement, values).await?;
            let found: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
            if !found.is_empty() {
                for sql in [
                    "DELETE FROM hob.events WHERE session = ANY ($1::uuid[])",
                    "DELETE FROM hob.sessions WHERE id = ANY ($1::uuid[])",
                ] {
                    let statement = client.prepare_cached(sql).await?;
                    client.execute(&statement, &[&found]).await?;
                }
            }
            for sql in also {
                let statement = client.prepare_cached(sql).await?;
                client.execute(&statement, values).await?;
            }
            Ok(found)
        })
        .await?;
    deleted.into_iter().map(session_id).collect()
}
