//! Rows of sessions, turns and events.

use hob_domain::session::{
    NewEvent, Permissions, Session, SessionEvent, SessionId, SessionSetup, SessionTurn, TurnState,
    TurnUsage,
};
use hob_domain::{AgentName, StoreError};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::postgres::text::take;
use crate::postgres::text_cipher::{TextCipher, TextKind};
use crate::values::{app_name, damaged, files_from_json, session_id, time};

/// The start of a statement whose rows [`session`] reads.
pub(super) const SESSION: &str = "SELECT s.id, s.app, s.agent, s.meta, s.cwd, s.model, s.system, s.permissions, \
    s.mcp_servers, s.created_at, h.closed_at, h.turn_count, h.last_turn_at, h.agent_session, \
    EXISTS (SELECT 1 FROM hob.turns t WHERE t.session = s.id AND t.state IN ('queued', 'running')), \
    h.input_tokens, h.output_tokens, h.cached_read_tokens, h.cached_write_tokens, h.cost_usd, h.last_event \
    FROM hob.sessions s JOIN hob.heads h ON h.session = s.id";

/// The columns that [`turn`] reads.
pub(super) const TURN: &str = "number, state, prompt, text, stop_reason, error, queued_at, started_at, ended_at, \
    input_tokens, output_tokens, cached_read_tokens, cached_write_tokens, cost_usd, files";

pub(super) fn session(row: &Row, texts: &TextCipher) -> Result<Session, StoreError> {
    let text = |column: usize| texts.open(TextKind::Setup, row.get(column));
    let optional = |column: usize| row.get::<_, Option<String>>(column).map(take);
    let at = |column: usize| row.get::<_, Option<i64>>(column).map(time);
    let json = |column| {
        serde_json::from_str(&text(column)?).map_err(|_| damaged("a session's description"))
    };
    let system = row.get::<_, Option<String>>(6);
    Ok(Session {
        id: id(row.get(0))?,
        app: app_name(row.get(1))?,
        setup: SessionSetup {
            agent: AgentName::new(row.get::<_, String>(2))
                .ok_or_else(|| damaged("a session's agent"))?,
            meta: json(3)?,
            cwd: text(4)?,
            model: optional(5),
            system: system.map(|text| texts.open(TextKind::Setup, text)).transpose()?,
            permissions: Permissions::parse(row.get(7))
                .ok_or_else(|| damaged("a session's permissions"))?,
            mcp_servers: json(8)?,
        },
        created_at: time(row.get(9)),
        closed_at: at(10),
        turn_count: number(row, 11),
        last_turn_at: at(12),
        agent_session: optional(13),
        busy: row.get(14),
        usage: usage(row, 15),
        last_event: row.get::<_, i64>(20) as u64,
    })
}

pub(super) fn turn(row: &Row, texts: &TextCipher) -> Result<SessionTurn, StoreError> {
    let error = row.get::<_, Option<String>>(5);
    let optional = |column: usize| row.get::<_, Option<String>>(column).map(take);
    let at = |column: usize| row.get::<_, Option<i64>>(column).map(time);
    Ok(SessionTurn {
        index: number(row, 0),
        state: TurnState::parse(row.get(1)).ok_or_else(|| damaged("a turn's state"))?,
        prompt: texts.open(TextKind::Prompt, row.get(2))?,
        text: texts.open(TextKind::Answer, row.get(3))?,
        stop_reason: optional(4),
        error: error.map(|text| texts.open(TextKind::TurnError, text)).transpose()?,
        queued_at: time(row.get(6)),
        started_at: at(7),
        ended_at: at(8),
        usage: usage(row, 9),
        files: files_from_json(&texts.open(TextKind::Files, row.get(14))?)?,
    })
}

/// Reads usage from five columns, starting at `first`.
pub(super) fn usage(row: &Row, first: usize) -> TurnUsage {
    let count = |column: usize| row.get::<_, i64>(first + column) as u64;
    TurnUsage {
        input_tokens: count(0),
        output_tokens: count(1),
        cached_read_tokens: count(2),
        cached_write_tokens: count(3),
        cost_usd: row.get(first + 4),
    }
}

/// Reads an event from the columns `seq, at, kind, turn, body`.
pub(super) fn event(row: &Row, texts: &TextCipher) -> Result<SessionEvent, StoreError> {
    Ok(SessionEvent {
        seq: row.get::<_, i64>(0) as u64,
        at: time(row.get(1)),
        event: NewEvent {
            kind: take(row.get(2)).into(),
            turn: row.get::<_, Option<i64>>(3).map(|turn| turn as u32),
            body: texts.open(TextKind::Event, row.get(4))?,
        },
    })
}

/// Reads the number of a turn.
pub(super) fn number(row: &Row, column: usize) -> u32 {
    row.get::<_, i64>(column) as u32
}

pub(super) fn id(stored: Uuid) -> Result<SessionId, StoreError> {
    session_id(stored.simple().encode_lower(&mut Uuid::encode_buffer()))
}

/// Returns a session id as a UUID; both have 16 bytes.
pub(super) fn key(id: &SessionId) -> Uuid {
    Uuid::try_parse(id.as_str()).unwrap_or_default()
}
