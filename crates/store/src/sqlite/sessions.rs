//! Sessions in SQLite.

use async_trait::async_trait;
use hob_domain::session::{
    Accepted, NewEvent, OutboxItem, Session, SessionEvent, SessionId, SessionStore, SessionTurn,
    TurnEnding, TurnRequest, TurnState,
};
use hob_domain::{AppName, StoreError, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::session_rows::{SESSION, app_name, event, micros, session, session_id, turn};
use super::{Ledger, failed};

#[async_trait]
impl SessionStore for Ledger {
    async fn create_session(&self, session: &Session, event: NewEvent) -> Result<(), StoreError> {
        let session = session.clone();
        self.database
            .write(move |transaction| {
                insert(transaction, &session).map_err(failed)?;
                append(transaction, &session.id, vec![event], session.created_at)?;
                Ok(())
            })
            .await
    }

    async fn session(&self, app: &AppName, id: &SessionId) -> Result<Option<Session>, StoreError> {
        let (app, id) = (app.clone(), id.clone());
        self.database.read(move |connection| find(connection, &app, &id)).await
    }

    async fn sessions(&self, app: &AppName) -> Result<Vec<Session>, StoreError> {
        let app = app.clone();
        self.database
            .read(move |connection| {
                let sql = format!(
                    "SELECT {SESSION} FROM sessions WHERE app = ?1 ORDER BY created_at, id"
                );
                let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
                let rows =
                    statement.query_map([app.as_str()], |row| Ok(session(row))).map_err(failed)?;
                rows.map(|row| row.map_err(failed)?).collect()
            })
            .await
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

    async fn start_turn(
        &self,
        id: &SessionId,
        index: u32,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let id = id.clone();
        self.database
            .write(move |transaction| {
                let changed = transaction
                    .prepare_cached(
                        "UPDATE turns SET state = 'running', started_at = ?3
                         WHERE session = ?1 AND number = ?2 AND state = 'queued'",
                    )
                    .and_then(|mut s| s.execute(params![id.as_str(), index, micros(now)]))
                    .map_err(failed)?;
                Ok(changed > 0)
            })
            .await
    }

    async fn append_events(
        &self,
        id: &SessionId,
        events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<Vec<SessionEvent>, StoreError> {
        let id = id.clone();
        self.database.write(move |transaction| append(transaction, &id, events, now)).await
    }

    async fn end_turn(
        &self,
        id: &SessionId,
        index: u32,
        ending: TurnEnding,
        now: Timestamp,
    ) -> Result<Option<Vec<SessionEvent>>, StoreError> {
        let id = id.clone();
        self.database.write(move |transaction| end(transaction, &id, index, ending, now)).await
    }

    async fn turn(
        &self,
        app: &AppName,
        id: &SessionId,
        index: u32,
    ) -> Result<Option<SessionTurn>, StoreError> {
        let (app, id) = (app.clone(), id.clone());
        self.database
            .read(move |connection| {
                let found = connection
                    .prepare_cached(
                        "SELECT t.number, t.state, t.prompt, t.text, t.stop_reason, t.error,
                             t.queued_at, t.started_at, t.ended_at, t.input_tokens,
                             t.output_tokens, t.cached_read_tokens, t.cached_write_tokens,
                             t.cost_usd
                         FROM turns t JOIN sessions s ON s.id = t.session
                         WHERE s.app = ?1 AND t.session = ?2 AND t.number = ?3",
                    )
                    .and_then(|mut s| {
                        let key = params![app.as_str(), id.as_str(), index];
                        s.query_row(key, |row| Ok(turn(row))).optional()
                    })
                    .map_err(failed)?;
                found.transpose()
            })
            .await
    }

    async fn events(
        &self,
        app: &AppName,
        id: &SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Option<Vec<SessionEvent>>, StoreError> {
        let (app, id) = (app.clone(), id.clone());
        self.database
            .read(move |connection| {
                let known = connection
                    .prepare_cached("SELECT 1 FROM sessions WHERE app = ?1 AND id = ?2")
                    .and_then(|mut s| s.exists([app.as_str(), id.as_str()]))
                    .map_err(failed)?;
                if !known {
                    return Ok(None);
                }
                let after = i64::try_from(after).unwrap_or(i64::MAX);
                connection
                    .prepare_cached(
                        "SELECT seq, at, kind, turn, body FROM events
                         WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
                    )
                    .and_then(|mut s| {
                        s.query_map(params![id.as_str(), after, limit as i64], event)?.collect()
                    })
                    .map(Some)
                    .map_err(failed)
            })
            .await
    }

    async fn turn_events(
        &self,
        id: &SessionId,
        index: u32,
    ) -> Result<Vec<SessionEvent>, StoreError> {
        let id = id.clone();
        self.database
            .read(move |connection| {
                connection
                    .prepare_cached(
                        "SELECT seq, at, kind, turn, body FROM events
                         WHERE session = ?1 AND turn = ?2 ORDER BY seq",
                    )
                    .and_then(|mut s| s.query_map(params![id.as_str(), index], event)?.collect())
                    .map_err(failed)
            })
            .await
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
                if closed > 0 {
                    append(transaction, &id, vec![event], now)?;
                }
                Ok(closed > 0)
            })
            .await
    }

    async fn interrupt_turns(&self, now: Timestamp) -> Result<usize, StoreError> {
        self.database
            .write(move |transaction| {
                transaction
                    .execute(
                        "UPDATE turns SET state = 'interrupted', ended_at = ?1,
                             error = 'hob ended while the turn was under way'
                         WHERE state IN ('queued', 'running')",
                        [micros(now)],
                    )
                    .map_err(failed)
            })
            .await
    }

    async fn idle_since(&self, then: Timestamp) -> Result<Vec<(AppName, SessionId)>, StoreError> {
        self.database
            .read(move |connection| {
                let rows: Vec<(String, String)> = connection
                    .prepare_cached(
                        "SELECT app, id FROM sessions
                         WHERE closed_at IS NULL AND coalesce(last_turn_at, created_at) < ?1
                         AND NOT EXISTS (SELECT 1 FROM turns WHERE session = sessions.id
                             AND state IN ('queued', 'running'))",
                    )
                    .and_then(|mut s| {
                        s.query_map([micros(then)], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
                    })
                    .map_err(failed)?;
                rows.into_iter().map(|(app, id)| Ok((app_name(app)?, session_id(&id)?))).collect()
            })
            .await
    }

    async fn delete_closed(&self, then: Timestamp) -> Result<Vec<SessionId>, StoreError> {
        self.database
            .write(move |transaction| {
                let ids: Vec<String> = transaction
                    .prepare_cached("DELETE FROM sessions WHERE closed_at < ?1 RETURNING id")
                    .and_then(|mut s| s.query_map([micros(then)], |row| row.get(0))?.collect())
                    .map_err(failed)?;
                ids.iter().map(|id| session_id(id)).collect()
            })
            .await
    }

    async fn outbox(&self, limit: usize) -> Result<Vec<OutboxItem>, StoreError> {
        self.database
            .read(move |connection| {
                connection
                    .prepare_cached("SELECT id, app, body FROM outbox ORDER BY id LIMIT ?1")
                    .and_then(|mut s| {
                        let item = |row: &Row<'_>| {
                            Ok(OutboxItem { id: row.get(0)?, app: row.get(1)?, body: row.get(2)? })
                        };
                        s.query_map([limit as i64], item)?.collect()
                    })
                    .map_err(failed)
            })
            .await
    }

    async fn outbox_done(&self, ids: Vec<i64>) -> Result<(), StoreError> {
        self.database
            .write(move |transaction| {
                for id in ids {
                    transaction
                        .prepare_cached("DELETE FROM outbox WHERE id = ?1")
                        .and_then(|mut s| s.execute([id]))
                        .map_err(failed)?;
                }
                Ok(())
            })
            .await
    }
}

fn insert(transaction: &Transaction<'_>, session: &Session) -> rusqlite::Result<usize> {
    let setup = &session.setup;
    transaction.execute(
        "INSERT INTO sessions (id, app, agent, meta, cwd, model, system, permissions, mcp_servers,
             created_at, turn_count, event_count, agent_session)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0, 0, ?11)",
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
        ],
    )
}

fn find(
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

fn accept(
    transaction: &Transaction<'_>,
    session: &Session,
    request: &TurnRequest,
    now: Timestamp,
) -> Result<Accepted, StoreError> {
    let id = session.id.as_str();
    if let Some((key, digest)) = &request.idempotency {
        let known: Option<(u32, String)> = transaction
            .prepare_cached(
                "SELECT number, request_digest FROM turns
                 WHERE session = ?1 AND idempotency_key = ?2",
            )
            .and_then(|mut s| {
                s.query_row([id, key], |row| Ok((row.get(0)?, row.get(1)?))).optional()
            })
            .map_err(failed)?;
        match known {
            Some((number, known)) if known == *digest => return Ok(Accepted::Repeated(number)),
            Some(_) => return Ok(Accepted::OtherBody),
            None => {}
        }
    }
    if session.closed_at.is_some() {
        return Ok(Accepted::Closed);
    }
    let waiting: i64 = transaction
        .prepare_cached("SELECT count(*) FROM turns WHERE session = ?1 AND state = 'queued'")
        .and_then(|mut s| s.query_row([id], |row| row.get(0)))
        .map_err(failed)?;
    if waiting >= request.queue as i64 {
        return Ok(Accepted::QueueFull);
    }
    let number = session.turn_count + 1;
    let (key, digest) = request.idempotency.clone().unzip();
    transaction
        .prepare_cached(
            "INSERT INTO turns (session, number, state, prompt, text, queued_at, idempotency_key,
                 request_digest, input_tokens, output_tokens, cached_read_tokens,
                 cached_write_tokens, cost_usd)
             VALUES (?1, ?2, 'queued', ?3, '', ?4, ?5, ?6, 0, 0, 0, 0, 0.0)",
        )
        .and_then(|mut s| s.execute(params![id, number, request.prompt, micros(now), key, digest]))
        .and_then(|_| {
            transaction
                .prepare_cached(
                    "UPDATE sessions SET turn_count = ?2, last_turn_at = ?3 WHERE id = ?1",
                )?
                .execute(params![id, number, micros(now)])
        })
        .map_err(failed)?;
    let body = serde_json::json!({"turn_index": number}).to_string();
    let event = NewEvent { kind: "turn".to_owned(), turn: Some(number), body };
    append(transaction, &session.id, vec![event], now)?;
    Ok(Accepted::Queued(number))
}

fn append(
    transaction: &Transaction<'_>,
    id: &SessionId,
    events: Vec<NewEvent>,
    now: Timestamp,
) -> Result<Vec<SessionEvent>, StoreError> {
    let last: i64 = transaction
        .prepare_cached(
            "UPDATE sessions SET event_count = event_count + ?2 WHERE id = ?1
             RETURNING event_count",
        )
        .and_then(|mut s| s.query_row(params![id.as_str(), events.len() as i64], |row| row.get(0)))
        .map_err(failed)?;
    let first = last - events.len() as i64 + 1;
    let mut stored = Vec::with_capacity(events.len());
    for (seq, event) in (first..).zip(events) {
        transaction
            .prepare_cached(
                "INSERT INTO events (session, seq, at, kind, turn, body)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )
            .and_then(|mut s| {
                let row =
                    params![id.as_str(), seq, micros(now), event.kind, event.turn, event.body];
                s.execute(row)
            })
            .map_err(failed)?;
        stored.push(SessionEvent { seq: seq as u64, at: now, event });
    }
    Ok(stored)
}

fn end(
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
    let usage = ending.usage;
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
                usage.input_tokens as i64,
                usage.output_tokens as i64,
                usage.cached_read_tokens as i64,
                usage.cached_write_tokens as i64,
                usage.cost_usd,
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
    if let Some(body) = ending.outbox {
        transaction
            .prepare_cached(
                "INSERT INTO outbox (app, body) SELECT app, ?2 FROM sessions WHERE id = ?1",
            )
            .and_then(|mut s| s.execute(params![id.as_str(), body]))
            .map_err(failed)?;
    }
    append(transaction, id, ending.events, now).map(Some)
}
