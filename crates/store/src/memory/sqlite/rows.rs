//! Reading turns: records, timelines and outlines of sessions.

use hob_domain::Timestamp;
use hob_domain::memory::{
    Around, NOTE_SESSION, OutlinedTurn, PageFilter, ProjectLocation, Record, RecordId, Scope,
    SessionOutline, Tier, TurnRole, TurnSelection, Window,
};
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params, params_from_iter};

use crate::memory::hidden::HiddenTurn;
use crate::memory::standing::{is_fact_of_agent, is_in_force};

const COLUMNS: &str = "t.id, t.seq, s.name, p.root, t.worktree, t.role, t.tier, t.text, \
    t.sealed, t.cue, t.ts, t.client, t.source, t.superseded_by, t.supersedes";
const TABLES: &str =
    "turns t JOIN sessions s ON s.id = t.session JOIN projects p ON p.id = t.project";

fn rows(
    connection: &Connection,
    sql: &str,
    parameters: &[&dyn ToSql],
) -> rusqlite::Result<Vec<Record>> {
    connection.prepare_cached(sql)?.query_map(parameters, record)?.collect()
}

/// Returns a stored turn and its place in its session.
pub(super) fn stored_turn(connection: &Connection, seq: i64) -> rusqlite::Result<(Record, i64)> {
    connection
        .prepare_cached(&format!("SELECT {COLUMNS}, t.at FROM {TABLES} WHERE t.seq = ?1"))?
        .query_row([seq], |row| Ok((record(row)?, row.get(15)?)))
}

fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let (role, tier) = (row.get_ref(5)?.as_str()?, row.get_ref(6)?.as_str()?);
    Ok(Record {
        id: RecordId::new(row.get::<_, String>(0)?),
        seq: row.get(1)?,
        session: row.get(2)?,
        place: ProjectLocation { project: row.get(3)?, worktree: row.get(4)? },
        role: TurnRole::parse(role).unwrap_or(TurnRole::User),
        tier: Tier::parse(tier).unwrap_or_default(),
        text: row.get(7)?,
        sealed: row.get(8)?,
        cue: row.get(9)?,
        ts: time(row.get(10)?),
        client: row.get(11)?,
        source: row.get::<_, String>(12)?.into(),
        superseded_by: row.get::<_, Option<String>>(13)?.map(RecordId::new),
        supersedes: row.get::<_, Option<String>>(14)?.map(RecordId::new),
    })
}

pub(super) fn time(microseconds: i64) -> Timestamp {
    Timestamp::from_microsecond(microseconds).unwrap_or_default()
}

/// Returns a scope as SQL on `t`, with its parameters, or `None` if nothing can match. Names are
/// looked up first, so that indexes are used.
fn conditions(
    connection: &Connection,
    speaker: &str,
    scope: &Scope,
) -> rusqlite::Result<Option<(String, Vec<SqlValue>)>> {
    let mut sql = "t.speaker = ?".to_owned();
    let mut parameters = vec![SqlValue::Text(speaker.to_owned())];
    let mut add = |condition: &str, value: i64| {
        sql.push_str(" AND ");
        sql.push_str(condition);
        parameters.push(SqlValue::Integer(value));
    };
    let lookups = [
        (
            "SELECT id FROM projects WHERE speaker = ?1 AND root = ?2",
            "t.project = ?",
            &scope.project,
        ),
        (
            "SELECT id FROM sessions WHERE speaker = ?1 AND name = ?2",
            "t.session = ?",
            &scope.session,
        ),
    ];
    for (lookup, condition, name) in lookups {
        let Some(name) = name else { continue };
        let id = connection
            .prepare_cached(lookup)?
            .query_row([speaker, name], |row| row.get(0))
            .optional()?;
        match id {
            Some(id) => add(condition, id),
            None => return Ok(None),
        }
    }
    if let Some(since) = scope.since {
        add("t.ts >= ?", since.as_microsecond());
    }
    if let Some(until) = scope.until {
        add("t.ts <= ?", until.as_microsecond());
    }
    Ok(Some((sql, parameters)))
}

pub(super) fn session_id(
    connection: &Connection,
    speaker: &str,
    name: &str,
) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT id FROM sessions WHERE speaker = ?1 AND name = ?2")?
        .query_row([speaker, name], |row| row.get(0))
        .optional()
}

/// Returns at most `limit` turns that pass a filter.
pub(super) fn page(
    connection: &Connection,
    filter: &PageFilter,
    limit: usize,
) -> rusqlite::Result<Vec<Record>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (speaker, after) = match filter {
        PageFilter::All { after } => (None, after),
        PageFilter::Of { principal, after } => (Some(principal.as_str()), after),
        PageFilter::MaskedBefore { rules: version, without } => {
            let without = serde_json::json!(without).to_string();
            let sql = format!(
                "SELECT {COLUMNS} FROM {TABLES}
                 WHERE t.rules < ?1 AND t.seq NOT IN (SELECT value FROM json_each(?3)) LIMIT ?2"
            );
            return rows(connection, &sql, &[version, &limit, &without]);
        }
        PageFilter::Hidden { principal } => {
            return hidden(connection, principal.as_str(), limit);
        }
    };
    let sql = format!(
        "SELECT {COLUMNS} FROM {TABLES} WHERE t.seq > ?1
         AND (?2 IS NULL OR t.speaker = ?2) ORDER BY t.seq LIMIT ?3"
    );
    rows(connection, &sql, &[after, &speaker, &limit])
}

/// Returns at most `limit` turns that can be restored.
fn hidden(connection: &Connection, speaker: &str, limit: i64) -> rusqlite::Result<Vec<Record>> {
    let sql = "SELECT body FROM forgotten WHERE speaker = ?1 AND body IS NOT NULL LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut bodies = statement.query(params![speaker, limit])?;
    let mut records = Vec::new();
    while let Some(row) = bodies.next()? {
        let body: Vec<u8> = row.get(0)?;
        records.extend(HiddenTurn::from_bytes(&body).map(HiddenTurn::into_record));
    }
    Ok(records)
}

/// Returns the turns of a selection.
pub(super) fn select(
    connection: &Connection,
    speaker: &str,
    selection: &TurnSelection,
) -> rusqlite::Result<Vec<Record>> {
    match selection {
        TurnSelection::Id(id) => {
            let sql = format!("SELECT {COLUMNS} FROM {TABLES} WHERE t.speaker = ?1 AND t.id = ?2");
            rows(connection, &sql, &[&speaker, &id.as_str()])
        }
        TurnSelection::Numbers(seqs) => numbered(connection, speaker, seqs),
        TurnSelection::Window(window) => timeline(connection, speaker, window),
        TurnSelection::LatestPrompts { project, max_chars, limit } => {
            let sql = format!(
                "SELECT {COLUMNS} FROM {TABLES} WHERE t.project =
                     (SELECT id FROM projects WHERE speaker = ?1 AND root = ?2)
                 AND t.role = 'user' AND {}
                 AND length(t.text) <= ?4
                 ORDER BY t.at DESC, t.seq DESC LIMIT ?3",
                is_in_force("turns")
            );
            let (limit, max_chars) = (*limit as i64, *max_chars as i64);
            rows(connection, &sql, &[&speaker, project, &limit, &max_chars])
        }
        TurnSelection::Facts { project, of_agents, limit } => {
            let sql = format!(
                "SELECT {COLUMNS} FROM {TABLES} WHERE p.speaker = ?1 AND p.root = ?2
                 AND t.tier = 'semantic' AND {} AND {} = ?4
                 ORDER BY t.ts DESC, t.seq DESC LIMIT ?3",
                is_in_force("turns"),
                is_fact_of_agent()
            );
            rows(connection, &sql, &[&speaker, project, &(*limit as i64), of_agents])
        }
    }
}

/// Returns the turns with these numbers, in this order.
fn numbered(connection: &Connection, speaker: &str, seqs: &[i64]) -> rusqlite::Result<Vec<Record>> {
    // In one transaction: each statement by itself would acquire and release the file's locks.
    let transaction = connection.unchecked_transaction()?;
    let mut statement = transaction.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM {TABLES} WHERE t.seq = ?1 AND t.speaker = ?2"
    ))?;
    let mut records = Vec::with_capacity(seqs.len());
    for seq in seqs {
        records.extend(statement.query_row(params![seq, speaker], record).optional()?);
    }
    Ok(records)
}

fn timeline(
    connection: &Connection,
    speaker: &str,
    window: &Window,
) -> rusqlite::Result<Vec<Record>> {
    let around: Option<(i64, i64)> = match &window.around {
        None => None,
        Some(Around::Time(at)) => Some((at.as_microsecond(), 0)),
        Some(Around::Record(id)) => {
            let found = connection
                .prepare_cached("SELECT at, seq FROM turns WHERE speaker = ?1 AND id = ?2")?
                .query_row([speaker, id.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            match found {
                None => return Ok(Vec::new()),
                found => found,
            }
        }
    };
    let Some((condition, parameters)) = conditions(connection, speaker, &window.scope)? else {
        return Ok(Vec::new());
    };
    let part = |order: &str, bound: &str, at: (i64, i64), limit: usize| {
        let sql = format!(
            "SELECT {COLUMNS} FROM {TABLES} WHERE {condition} AND {bound}
             ORDER BY t.at {order}, t.seq {order} LIMIT ?"
        );
        let limit = limit as i64;
        let tail: [&dyn ToSql; 3] = [&at.0, &at.1, &limit];
        let all = parameters.iter().map(|p| p as &dyn ToSql).chain(tail);
        connection
            .prepare_cached(&sql)?
            .query_map(params_from_iter(all), record)?
            .collect::<rusqlite::Result<Vec<Record>>>()
    };
    match around {
        // Without a middle the latest turns are returned.
        None => {
            let mut turns =
                part("DESC", "(t.at, t.seq) <= (?, ?)", (i64::MAX, i64::MAX), window.limit)?;
            turns.reverse();
            Ok(turns)
        }
        Some(at) => {
            let before = window.limit / 2;
            let mut turns = part("DESC", "(t.at, t.seq) < (?, ?)", at, before)?;
            turns.reverse();
            let rest = window.limit - turns.len();
            turns.extend(part("ASC", "(t.at, t.seq) >= (?, ?)", at, rest)?);
            Ok(turns)
        }
    }
}

pub(super) fn latest_sessions(
    connection: &Connection,
    speaker: &str,
    project: &str,
    except: &str,
    limit: usize,
) -> rusqlite::Result<Vec<SessionOutline>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT s.id, s.name, s.client, s.started, s.ended, s.turns FROM sessions s
         JOIN projects p ON p.id = s.project
         WHERE p.speaker = ?1 AND p.root = ?2 AND s.name <> ?3 AND s.name NOT GLOB '{NOTE_SESSION}*'
         ORDER BY s.ended DESC, s.id DESC LIMIT ?4"
    ))?;
    let edge = |session: i64, role: &str, order: &str| -> rusqlite::Result<Option<OutlinedTurn>> {
        let turn = |row: &Row<'_>| {
            Ok(OutlinedTurn { text: row.get(0)?, source: row.get::<_, String>(1)?.into() })
        };
        connection
            .prepare_cached(&format!(
                "SELECT text, source FROM turns WHERE session = ?1 AND role = ?2
                 ORDER BY at {order}, seq {order} LIMIT 1"
            ))?
            .query_row(params![session, role], turn)
            .optional()
    };
    let mut rows = statement.query(params![speaker, project, except, limit as i64])?;
    let mut outlines = Vec::new();
    while let Some(row) = rows.next()? {
        let session: i64 = row.get(0)?;
        let last: Option<String> = connection
            .prepare_cached(
                "SELECT role FROM turns WHERE session = ?1 ORDER BY at DESC, seq DESC LIMIT 1",
            )?
            .query_row([session], |row| row.get(0))
            .optional()?;
        outlines.push(SessionOutline {
            session: row.get(1)?,
            client: row.get(2)?,
            started: time(row.get(3)?),
            ended: time(row.get(4)?),
            turns: row.get::<_, i64>(5)? as usize,
            first_prompt: edge(session, "user", "ASC")?,
            last_prompt: edge(session, "user", "DESC")?,
            last_answer: edge(session, "assistant", "DESC")?,
            unanswered: last.as_deref() == Some("user"),
        });
    }
    Ok(outlines)
}
