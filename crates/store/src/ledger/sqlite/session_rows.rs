//! Rows of sessions, turns and events.

use hob_domain::session::{
    NewEvent, Permissions, Session, SessionEvent, SessionSetup, SessionTurn, TurnState, TurnUsage,
};
use hob_domain::{AgentName, StoreError};
use rusqlite::Row;

use crate::sqlite::failed;
use crate::values::{app_name, damaged, files_from_json, session_id, time};

/// The columns that [`session`] reads. Without `INDEXED BY`, SQLite would scan all turns of the session to find the
/// few unfinished ones.
pub(super) const SESSION: &str = "id, app, agent, meta, cwd, model, system, permissions, mcp_servers, created_at, \
    closed_at, turn_count, last_turn_at, agent_session, \
    EXISTS (SELECT 1 FROM turns INDEXED BY turns_under_way \
        WHERE session = sessions.id AND state IN ('queued', 'running')), \
    input_tokens, output_tokens, cached_read_tokens, cached_write_tokens, cost_usd, \
    coalesce((SELECT max(seq) FROM events WHERE session = sessions.id), 0)";

/// The columns that [`turn`] reads.
pub(super) const TURN: &str = "number, state, prompt, text, stop_reason, error, queued_at, started_at, ended_at, \
    input_tokens, output_tokens, cached_read_tokens, cached_write_tokens, cost_usd, files";

pub(super) fn session(row: &Row<'_>) -> Result<Session, StoreError> {
    let text = |column| row.get::<_, String>(column).map_err(failed);
    let optional = |column| row.get::<_, Option<String>>(column).map_err(failed);
    let time = |column| row.get::<_, Option<i64>>(column).map(|at| at.map(time)).map_err(failed);
    let json = |column| {
        serde_json::from_str(&text(column)?).map_err(|_| damaged("a session's description"))
    };
    Ok(Session {
        id: session_id(&text(0)?)?,
        app: app_name(text(1)?)?,
        setup: SessionSetup {
            agent: AgentName::new(text(2)?).ok_or_else(|| damaged("a session's agent"))?,
            meta: json(3)?,
            cwd: text(4)?,
            model: optional(5)?,
            system: optional(6)?,
            permissions: Permissions::parse(&text(7)?)
                .ok_or_else(|| damaged("a session's permissions"))?,
            mcp_servers: json(8)?,
        },
        created_at: time(9)?.unwrap_or_default(),
        closed_at: time(10)?,
        turn_count: row.get(11).map_err(failed)?,
        last_turn_at: time(12)?,
        agent_session: optional(13)?,
        busy: row.get(14).map_err(failed)?,
        usage: usage(row, 15).map_err(failed)?,
        last_event: row.get::<_, i64>(20).map_err(failed)? as u64,
    })
}

/// Returns how long the description of the session in a row is, in bytes.
pub(super) fn description_bytes(row: &Row<'_>) -> rusqlite::Result<usize> {
    let mut bytes = 0;
    // `meta`, `system` and `mcp_servers`; the others are short.
    for column in [3, 6, 8] {
        bytes += row.get_ref(column)?.as_str_or_null()?.map_or(0, str::len);
    }
    Ok(bytes)
}

pub(super) fn turn(row: &Row<'_>) -> Result<SessionTurn, StoreError> {
    let get = |column| row.get::<_, Option<i64>>(column).map_err(failed);
    let state: String = row.get(1).map_err(failed)?;
    Ok(SessionTurn {
        index: row.get(0).map_err(failed)?,
        state: TurnState::parse(&state).ok_or_else(|| damaged("a turn's state"))?,
        prompt: row.get(2).map_err(failed)?,
        text: row.get(3).map_err(failed)?,
        stop_reason: row.get(4).map_err(failed)?,
        error: row.get(5).map_err(failed)?,
        queued_at: get(6)?.map(time).unwrap_or_default(),
        started_at: get(7)?.map(time),
        ended_at: get(8)?.map(time),
        usage: usage(row, 9).map_err(failed)?,
        files: files_from_json(&row.get::<_, String>(14).map_err(failed)?)?,
    })
}

/// Reads usage from five columns, starting at `first`.
pub(super) fn usage(row: &Row<'_>, first: usize) -> rusqlite::Result<TurnUsage> {
    let count = |column| row.get::<_, i64>(first + column).map(|n| n as u64);
    Ok(TurnUsage {
        input_tokens: count(0)?,
        output_tokens: count(1)?,
        cached_read_tokens: count(2)?,
        cached_write_tokens: count(3)?,
        cost_usd: row.get(first + 4)?,
    })
}

pub(super) fn event(row: &Row<'_>) -> rusqlite::Result<SessionEvent> {
    Ok(SessionEvent {
        seq: row.get::<_, i64>(0)? as u64,
        at: time(row.get(1)?),
        event: NewEvent {
            kind: row.get::<_, String>(2)?.into(),
            turn: row.get(3)?,
            body: row.get(4)?,
        },
    })
}
