//! Sessions in SQLite.

use std::time::Duration;

use async_trait::async_trait;
use hob_domain::session::{
    Accepted, CostTarget, Created, DeleteFilter, EventRange, IdempotencyKey, NewEvent, OpenLimits,
    OutboxChange, OutboxItem, Repeat, Session, SessionEvent, SessionFilter, SessionId,
    SessionStore, SessionTurn, SessionlessTurn, TurnEnding, TurnRange, TurnRequest, TurnUsage,
    UsageDay, UsageNote,
};
use hob_domain::{AppName, DocumentKind, Lease, LeaseOutcome, NodeId, StoreError, Timestamp};
use rusqlite::{Row, ToSql, Transaction, params};

use super::Ledger;
use super::fences::check;
use super::leases;
use super::session_lists::{events, find, list, turns, usage};
use super::turns::{
    DayTurns, accept, add_to_day, add_turn_cost, add_usage_to_day, append, cancel_queued, end,
    repeat, start,
};
use crate::sqlite::failed;
use crate::values::{UsageColumns, micros, session_id};

#[async_trait]
impl SessionStore for Ledger {
    async fn create_session(
        &self,
        session: &Session,
        event: NewEvent,
        node: &NodeId,
        limits: OpenLimits,
    ) -> Result<Created, StoreError> {
        let (session, node) = (session.clone(), node.clone());
        self.database
            .write(move |transaction| create(transaction, session, event, &node, limits))
            .await
    }

    async fn acquire_lease(
        &self,
        id: &SessionId,
        node: &NodeId,
        lease_timeout: Duration,
        now: Timestamp,
    ) -> Result<LeaseOutcome, StoreError> {
        let (id, node) = (id.clone(), node.clone());
        self.database
            .write(move |transaction| leases::acquire(transaction, &id, &node, lease_timeout, now))
            .await
    }

    async fn release_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.database.write(move |transaction| leases::release(transaction, &lease)).await
    }

    async fn session(&self, app: &AppName, id: &SessionId) -> Result<Option<Session>, StoreError> {
        let (app, id) = (app.clone(), id.clone());
        self.database.read(move |connection| find(connection, &app, &id)).await
    }

    async fn sessions(&self, filter: &SessionFilter) -> Result<Vec<Session>, StoreError> {
        let filter = filter.clone();
        self.database.read(move |connection| list(connection, &filter)).await
    }

    async fn accept_turn(
        &self,
        app: &AppName,
        id: &SessionId,
        request: &TurnRequest,
        now: Timestamp,
    ) -> Result<Option<Accepted>, StoreError> {
        let (app, id, request) = (app.clone(), id.clone(), request.clone());
        self.database
            .write(move |transaction| {
                let Some(session) = find(transaction, &app, &id)? else { return Ok(None) };
                accept(transaction, &session, &request, now).map(Some)
            })
            .await
    }

    async fn find_repeat(
        &self,
        app: &AppName,
        id: &SessionId,
        key: &IdempotencyKey,
    ) -> Result<Option<Repeat>, StoreError> {
        let (app, id, key) = (app.clone(), id.clone(), key.clone());
        self.database
            .read(move |connection| match find(connection, &app, &id)? {
                Some(session) => repeat(connection, &session.id, &key),
                None => Ok(None),
            })
            .await
    }

    async fn keep_agent_session(&self, lease: &Lease, name: &str) -> Result<(), StoreError> {
        let (lease, name) = (lease.clone(), name.to_owned());
        self.database
            .write(move |transaction| {
                check(transaction, &lease)?;
                transaction
                    .prepare_cached("UPDATE sessions SET agent_session = ?2 WHERE id = ?1")
                    .and_then(|mut s| s.execute([lease.session.as_str(), &name]))
                    .map_err(failed)?;
                Ok(())
            })
            .await
    }

    async fn start_turn(
        &self,
        lease: &Lease,
        index: u32,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let lease = lease.clone();
        self.database
            .write(move |transaction| {
                check(transaction, &lease)?;
                start(transaction, &lease.session, index, now)
            })
            .await
    }

    async fn append_events(
        &self,
        lease: &Lease,
        events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<Vec<SessionEvent>, StoreError> {
        let lease = lease.clone();
        self.database
            .write(move |transaction| {
                check(transaction, &lease)?;
                append(transaction, &lease.session, events, now)
            })
            .await
    }

    async fn end_turn(
        &self,
        lease: &Lease,
        index: u32,
        ending: TurnEnding,
        now: Timestamp,
    ) -> Result<Option<Vec<SessionEvent>>, StoreError> {
        let lease = lease.clone();
        self.database
            .write(move |transaction| {
                check(transaction, &lease)?;
                end(transaction, &lease.session, index, ending, now)
            })
            .await
    }

    async fn turns(
        &self,
        app: &AppName,
        id: &SessionId,
        range: TurnRange,
    ) -> Result<Option<Vec<SessionTurn>>, StoreError> {
        let (app, id) = (app.clone(), id.clone());
        self.database.read(move |connection| turns(connection, &app, &id, range)).await
    }

    async fn events(
        &self,
        app: &AppName,
        id: &SessionId,
        range: EventRange,
    ) -> Result<Option<Vec<SessionEvent>>, StoreError> {
        let (app, id) = (app.clone(), id.clone());
        self.database.read(move |connection| events(connection, &app, &id, range)).await
    }

    async fn close_session(
        &self,
        id: &SessionId,
        event: NewEvent,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let id = id.clone();
        self.database
            .write(move |transaction| {
                let closed = transaction
                    .execute(
                        "UPDATE sessions SET closed_at = ?2 WHERE id = ?1 AND closed_at IS NULL",
                        params![id.as_str(), micros(now)],
                    )
                    .map_err(failed)?;
                if closed == 0 {
                    return Ok(false);
                }
                let mut events = cancel_queued(transaction, &id, now)?;
                events.push(event);
                append(transaction, &id, events, now)?;
                Ok(true)
            })
            .await
    }

    async fn delete_sessions(&self, filter: &DeleteFilter) -> Result<Vec<SessionId>, StoreError> {
        let filter = filter.clone();
        self.database.write(move |transaction| delete(transaction, &filter)).await
    }

    async fn usage(
        &self,
        first: Timestamp,
        last: Option<Timestamp>,
        app: Option<&AppName>,
    ) -> Result<Vec<UsageDay>, StoreError> {
        let app = app.cloned();
        self.database.read(move |connection| usage(connection, first, last, app.as_ref())).await
    }

    async fn note_usage(&self, note: &UsageNote, now: Timestamp) -> Result<(), StoreError> {
        match note {
            UsageNote::SessionlessTurn(turn) => self.note_turn(turn, now).await,
            UsageNote::LateCost { target, cost_usd } => self.add_cost(target, *cost_usd, now).await,
        }
    }

    async fn outbox(&self, limit: usize, without: &[i64]) -> Result<Vec<OutboxItem>, StoreError> {
        let without = serde_json::json!(without).to_string();
        self.database
            .read(move |connection| {
                connection
                    .prepare_cached(
                        "SELECT id, app, attempts, body FROM outbox
                         WHERE set_aside = 0 AND id NOT IN (SELECT value FROM json_each(?2))
                         ORDER BY attempts, id LIMIT ?1",
                    )
                    .and_then(|mut s| {
                        let item = |row: &Row<'_>| {
                            let json: String = row.get(3)?;
                            Ok(OutboxItem::from_row(row.get(0)?, row.get(1)?, row.get(2)?, &json))
                        };
                        s.query_map(params![limit as i64, without], item)?.collect()
                    })
                    .map_err(failed)
            })
            .await
    }

    async fn change_outbox(&self, ids: Vec<i64>, change: OutboxChange) -> Result<(), StoreError> {
        let ids = serde_json::json!(ids).to_string();
        self.database
            .write(move |transaction| {
                let among = "WHERE id IN (SELECT value FROM json_each(?1))";
                let changed = match change {
                    OutboxChange::Attempts(attempts) => transaction
                        .prepare_cached(&format!("UPDATE outbox SET attempts = ?2 {among}"))
                        .and_then(|mut s| s.execute(params![ids, attempts])),
                    OutboxChange::SetAside => transaction
                        .prepare_cached(&format!("UPDATE outbox SET set_aside = 1 {among}"))
                        .and_then(|mut s| s.execute([&ids])),
                    OutboxChange::Stored => transaction
                        .prepare_cached(&format!("DELETE FROM outbox {among}"))
                        .and_then(|mut s| s.execute([&ids])),
                };
                changed.map(drop).map_err(failed)
            })
            .await
    }
}

impl Ledger {
    async fn note_turn(&self, turn: &SessionlessTurn, now: Timestamp) -> Result<(), StoreError> {
        let turn = turn.clone();
        self.database
            .write(move |transaction| {
                let (app, used) = (turn.app.as_str(), UsageColumns::of(&turn.usage));
                add_to_day(transaction, app, turn.state, &used, now)
                    .and_then(|()| match &turn.outbox {
                        Some(turn) => transaction
                            .prepare_cached("INSERT INTO outbox (app, body) VALUES (?1, ?2)")?
                            .execute(params![app, turn.to_json()])
                            .map(drop),
                        None => Ok(()),
                    })
                    .map_err(failed)
            })
            .await
    }

    async fn add_cost(
        &self,
        target: &CostTarget,
        cost_usd: f64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let target = target.clone();
        let used = UsageColumns::of(&TurnUsage { cost_usd, ..TurnUsage::default() });
        self.database
            .write(move |transaction| match &target {
                CostTarget::Turn { lease, index } => {
                    check(transaction, lease)?;
                    add_turn_cost(transaction, &lease.session, *index, &used, now).map_err(failed)
                }
                CostTarget::Sessionless(app) => {
                    add_usage_to_day(transaction, app.as_str(), &used, DayTurns::NONE, now)
                        .map_err(failed)
                }
            })
            .await
    }
}

/// Creates a session, or says which limit refuses it.
fn create(
    transaction: &Transaction<'_>,
    session: Session,
    event: NewEvent,
    node: &NodeId,
    limits: OpenLimits,
) -> Result<Created, StoreError> {
    if limits != OpenLimits::default() {
        let (of_app, of_all) = count_open(transaction, &session.app).map_err(failed)?;
        if let Some(refusal) = limits.refusal(of_app, of_all) {
            return Ok(refusal);
        }
    }
    insert(transaction, &session, node).map_err(failed)?;
    append(transaction, &session.id, vec![event], session.created_at)?;
    Ok(Created::Made(Lease { app: session.app, session: session.id, fence: 1 }))
}

/// Counts the open sessions of an app, and those of all apps.
fn count_open(transaction: &Transaction<'_>, app: &AppName) -> rusqlite::Result<(usize, usize)> {
    let sql = "SELECT count(*) FILTER (WHERE app = ?1), count(*) FROM sessions
         WHERE closed_at IS NULL";
    let mut statement = transaction.prepare_cached(sql)?;
    statement.query_row([app.as_str()], |row| {
        Ok((row.get::<_, i64>(0)? as usize, row.get::<_, i64>(1)? as usize))
    })
}

fn insert(
    transaction: &Transaction<'_>,
    session: &Session,
    node: &NodeId,
) -> rusqlite::Result<usize> {
    let setup = &session.setup;
    transaction.execute(
        "INSERT INTO sessions (id, app, agent, meta, cwd, model, system, permissions, mcp_servers,
             created_at, turn_count, agent_session, fence, holder)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0, ?11, 1, ?12)",
        params![
            session.id.as_str(),
            session.app.as_str(),
            setup.agent.as_str(),
            setup.meta.to_string(),
            setup.cwd,
            setup.model,
            setup.system,
            setup.permissions.as_str(),
            setup.mcp_servers.to_string(),
            micros(session.created_at),
            session.agent_session,
            node.as_str(),
        ],
    )
}

/// Deletes the sessions that pass a filter, and returns their ids.
fn delete(
    transaction: &Transaction<'_>,
    filter: &DeleteFilter,
) -> Result<Vec<SessionId>, StoreError> {
    let delete = |condition: &str, value: &dyn ToSql| {
        let sql = format!("DELETE FROM sessions WHERE {condition} RETURNING id");
        let ids: Vec<String> = transaction
            .prepare_cached(&sql)
            .and_then(|mut s| s.query_map([value], |row| row.get(0))?.collect())
            .map_err(failed)?;
        ids.iter().map(|id| session_id(id)).collect()
    };
    match filter {
        DeleteFilter::ClosedBefore(then) => {
            let then = micros(*then);
            let deleted = delete("closed_at < ?1", &then)?;
            let expiring = DocumentKind::EXPIRING.map(DocumentKind::as_str).join("', '");
            for condition in [
                format!("kind IN ('{expiring}')"),
                "kind = 'session' AND id NOT IN (SELECT id FROM sessions)".to_owned(),
            ] {
                let sql = format!("DELETE FROM documents WHERE created_at < ?1 AND {condition}");
                transaction.execute(&sql, [then]).map_err(failed)?;
            }
            Ok(deleted)
        }
        DeleteFilter::App(app) => {
            for table in ["documents", "outbox", "usage"] {
                let sql = format!("DELETE FROM {table} WHERE app = ?1");
                transaction.execute(&sql, [app.as_str()]).map_err(failed)?;
            }
            delete("app = ?1", &app.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use hob_domain::DataKey;

    use super::*;
    use crate::ledger::sqlite::session_lists::{
        EVENTS_AFTER, EVENTS_BEFORE, ONE_TURN, QUEUED_TURNS, TURN_EVENTS, USAGE,
    };
    use crate::ledger::sqlite::session_rows::{SESSION, TURN};
    use crate::ledger::sqlite::turns::{LAST_EVENT, QUEUED, RUNNING};

    /// Statements that run thousands of times a second must not scan a table.
    #[tokio::test]
    async fn frequent_statements_use_an_index() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hob.db");
        let ledger = Ledger::open(&path, &DataKey::from_bytes([7; 32])).unwrap();
        let session = format!("SELECT {SESSION} FROM sessions WHERE app = ?1 AND id = ?2");
        let usage = format!("{USAGE} AND app = ?3 ORDER BY day, app");
        let turn = format!("SELECT {TURN} FROM turns {ONE_TURN}");
        let queued = format!("SELECT {TURN} FROM turns {QUEUED_TURNS}");
        let questions = [
            session.as_str(),
            turn.as_str(),
            queued.as_str(),
            usage.as_str(),
            "SELECT name, created_at, token_hash FROM apps WHERE token_hash = ?1",
            LAST_EVENT,
            QUEUED,
            RUNNING,
            EVENTS_AFTER,
            EVENTS_BEFORE,
            TURN_EVENTS,
        ];
        for sql in questions {
            let explain = format!("EXPLAIN QUERY PLAN {sql}");
            let plan: Vec<String> = ledger
                .database
                .read(move |connection| {
                    let mut statement = connection.prepare(&explain).map_err(failed)?;
                    // The plan does not depend on the values.
                    let mut rows = statement.raw_query();
                    let mut plan = Vec::new();
                    while let Some(row) = rows.next().map_err(failed)? {
                        plan.push(row.get(3).map_err(failed)?);
                    }
                    Ok(plan)
                })
                .await
                .unwrap();
            for step in plan {
                println!("{step}");
                let searches = step.starts_with("SEARCH") || step.starts_with("CORRELATED");
                // The index of unfinished turns has few rows, and a turn's number finds one row.
                let few = step.contains("turns_under_way") || step.contains("number=?");
                let searches = searches || step.starts_with("SCALAR SUBQUERY");
                assert!(few || searches && !step.contains(" turns "), "{sql}: {step}");
            }
        }
    }
}
