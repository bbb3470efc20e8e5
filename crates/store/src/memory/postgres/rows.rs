//! Reading turns: records, timelines and outlines of sessions.

use hob_domain::memory::{
    Around, OutlinedTurn, ProjectLocation, Record, Scope, SessionOutline, Tier, TurnRole, Window,
};
use hob_domain::{StoreError, Timestamp};
use tokio_postgres::{Error, Row};

use super::cipher::{Body, Cipher, Name};
use super::names::record_id;
use crate::memory::range::time_bounds;
use crate::postgres::connections::{Client, Values};
use crate::postgres::text::take;
use crate::values::{damaged, time};

pub(super) const COLUMNS: &str = "t.id, t.seq, s.name, p.root, t.role, t.tier, t.body, t.sealed, \
    t.ts, t.client, t.source, t.superseded_by, t.supersedes, t.speaker";
pub(super) const TABLES: &str = "hob.memory_turns t JOIN hob.memory_sessions s ON s.id = t.session \
    JOIN hob.memory_projects p ON p.id = t.project";

/// Packs a turn's working tree, cue and text into one body.
pub(super) fn body(worktree: &str, cue: Option<&str>, text: &str) -> Vec<u8> {
    let cue_size = cue.map_or(u32::MAX, |cue| cue.len() as u32);
    let mut body = Vec::with_capacity(8 + worktree.len() + text.len());
    body.extend((worktree.len() as u32).to_be_bytes());
    body.extend(cue_size.to_be_bytes());
    body.extend(worktree.as_bytes());
    body.extend(cue.unwrap_or_default().as_bytes());
    body.extend(text.as_bytes());
    body
}

/// The decrypted body of a turn.
pub(super) struct Opened {
    pub(super) worktree: String,
    pub(super) cue: Option<String>,
    pub(super) text: String,
}

impl Opened {
    pub(super) fn new(
        cipher: &Cipher,
        speaker: &str,
        seq: i64,
        stored: &[u8],
    ) -> Result<Opened, StoreError> {
        let body = cipher.open(Body::Turn(speaker, seq), stored)?;
        Opened::unpack(body).ok_or_else(|| damaged("a turn of the memory"))
    }

    fn unpack(mut body: Vec<u8>) -> Option<Opened> {
        let size = |at: usize| Some(u32::from_be_bytes(body.get(at..at + 4)?.try_into().ok()?));
        let (worktree, cue) = (size(0)? as usize, size(4)?);
        let cue_size = if cue == u32::MAX { 0 } else { cue as usize };
        let end = 8_usize.checked_add(worktree)?.checked_add(cue_size)?;
        if end > body.len() {
            return None;
        }
        let text = String::from_utf8(body.split_off(end)).ok()?;
        let said = String::from_utf8(body.split_off(8 + worktree)).ok()?;
        let worktree = String::from_utf8(body.split_off(8)).ok()?;
        Some(Opened { worktree, cue: (cue != u32::MAX).then_some(said), text })
    }
}

/// Decrypts a row with [`COLUMNS`].
pub(super) fn record(cipher: &Cipher, row: &Row) -> Result<Record, StoreError> {
    let (seq, speaker): (i64, &str) = (row.get(1), row.get(13));
    let Opened { worktree, cue, text } = Opened::new(cipher, speaker, seq, row.get(6))?;
    let other = |stored: Option<&[u8]>| stored.map(|id| record_id(cipher, id)).transpose();
    Ok(Record {
        id: record_id(cipher, row.get(0))?,
        seq,
        session: cipher.decrypt_name(Name::Session, row.get(2))?,
        place: ProjectLocation {
            project: cipher.decrypt_name(Name::Project, row.get(3))?,
            worktree,
        },
        role: TurnRole::parse(row.get(4)).unwrap_or(TurnRole::User),
        tier: Tier::parse(row.get(5)).unwrap_or_default(),
        text,
        sealed: row.get(7),
        cue,
        ts: time(row.get(8)),
        client: take(row.get(9)),
        source: take(row.get(10)).into(),
        superseded_by: other(row.get(11))?,
        supersedes: other(row.get(12))?,
    })
}

pub(super) fn records(cipher: &Cipher, rows: &[Row]) -> Result<Vec<Record>, StoreError> {
    rows.iter().map(|row| record(cipher, row)).collect()
}

/// Reads the turns of a window, in the order they were said.
pub(super) async fn timeline(
    client: &Client,
    cipher: &Cipher,
    speaker: &str,
    window: &Window,
) -> Result<Vec<Row>, Error> {
    let around = match &window.around {
        None => None,
        Some(Around::Time(at)) => Some((at.as_microsecond(), 0)),
        Some(Around::Record(id)) => {
            let sql = "SELECT at, seq FROM hob.memory_turns WHERE speaker = $1 AND id_key = $2";
            let key = cipher.hash_name(Name::Turn, id.as_str());
            let found =
                client.query_opt(&client.prepare_cached(sql).await?, &[&speaker, &key]).await?;
            match found {
                None => return Ok(Vec::new()),
                Some(row) => Some((row.get(0), row.get(1))),
            }
        }
    };
    let Some(scope_ids) = ScopeIds::of(client, cipher, speaker, &window.scope).await? else {
        return Ok(Vec::new());
    };
    let part = async |order: &str, bound: &str, (at, seq): (i64, i64), limit: usize| {
        let sql = format!(
            "SELECT {COLUMNS} FROM {TABLES} WHERE t.speaker = $1 {} AND t.ts BETWEEN $2 AND $3
             AND (t.at, t.seq) {bound} ($4, $5) ORDER BY t.at {order}, t.seq {order} LIMIT $6",
            scope_ids.condition()
        );
        let (since, until) = time_bounds(&window.scope).unwrap_or((i64::MIN, i64::MAX));
        let limit = limit as i64;
        let mut values: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> =
            vec![&speaker, &since, &until, &at, &seq, &limit];
        values.extend(
            scope_ids.ids.iter().map(|id| id as &(dyn tokio_postgres::types::ToSql + Sync)),
        );
        client.query(&client.prepare_cached(&sql).await?, &values).await
    };
    match around {
        // Without a middle the latest turns are returned.
        None => {
            let mut rows = part("DESC", "<=", (i64::MAX, i64::MAX), window.limit).await?;
            rows.reverse();
            Ok(rows)
        }
        Some(at) => {
            let mut rows = part("DESC", "<", at, window.limit / 2).await?;
            rows.reverse();
            let rest = window.limit - rows.len();
            rows.extend(part("ASC", ">=", at, rest).await?);
            Ok(rows)
        }
    }
}

/// The project and the session of a scope by their numbers, so that indexes are used.
struct ScopeIds {
    columns: Vec<&'static str>,
    ids: Vec<i64>,
}

impl ScopeIds {
    /// Returns `None` if nothing can match.
    async fn of(
        client: &Client,
        cipher: &Cipher,
        speaker: &str,
        scope: &Scope,
    ) -> Result<Option<ScopeIds>, Error> {
        let mut ids = ScopeIds { columns: Vec::new(), ids: Vec::new() };
        if let Some(root) = &scope.project {
            match project_id(client, cipher, speaker, root).await? {
                Some(id) => ids.add("t.project", id),
                None => return Ok(None),
            }
        }
        if let Some(name) = &scope.session {
            match session_id(client, cipher, speaker, name).await? {
                Some(id) => ids.add("t.session", id),
                None => return Ok(None),
            }
        }
        Ok(Some(ids))
    }

    fn add(&mut self, column: &'static str, id: i64) {
        self.columns.push(column);
        self.ids.push(id);
    }

    fn condition(&self) -> String {
        let one = |(place, column): (usize, &&str)| format!(" AND {column} = ${}", place + 7);
        self.columns.iter().enumerate().map(one).collect()
    }
}

pub(super) async fn project_id(
    client: &Client,
    cipher: &Cipher,
    speaker: &str,
    root: &str,
) -> Result<Option<i64>, Error> {
    let sql = "SELECT id FROM hob.memory_projects WHERE speaker = $1 AND root_key = $2";
    let key = cipher.hash_name(Name::Project, root);
    let found = client.query_opt(&client.prepare_cached(sql).await?, &[&speaker, &key]).await?;
    Ok(found.map(|row| row.get(0)))
}

pub(super) async fn session_id(
    client: &Client,
    cipher: &Cipher,
    speaker: &str,
    name: &str,
) -> Result<Option<i64>, Error> {
    let sql = "SELECT id FROM hob.memory_sessions WHERE speaker = $1 AND name_key = $2";
    let key = cipher.hash_name(Name::Session, name);
    let found = client.query_opt(&client.prepare_cached(sql).await?, &[&speaker, &key]).await?;
    Ok(found.map(|row| row.get(0)))
}

/// Selects the latest sessions of a project with their first and last texts.
pub(super) const LATEST_SESSIONS: &str = "SELECT s.name, s.client, s.started, s.ended, s.turns,
         f.seq, f.body, f.source, p.seq, p.body, p.source, a.seq, a.body, a.source, l.role
     FROM (SELECT s.* FROM hob.memory_sessions s JOIN hob.memory_projects p ON p.id = s.project
         WHERE p.speaker = $1 AND p.root_key = $2 AND s.name_key <> $3 AND NOT s.note
         ORDER BY s.ended DESC, s.id DESC LIMIT $4) s
     LEFT JOIN LATERAL (SELECT seq, body, source FROM hob.memory_turns WHERE session = s.id
         AND role = 'user' ORDER BY at, seq LIMIT 1) f ON true
     LEFT JOIN LATERAL (SELECT seq, body, source FROM hob.memory_turns WHERE session = s.id
         AND role = 'user' ORDER BY at DESC, seq DESC LIMIT 1) p ON true
     LEFT JOIN LATERAL (SELECT seq, body, source FROM hob.memory_turns WHERE session = s.id
         AND role = 'assistant' ORDER BY at DESC, seq DESC LIMIT 1) a ON true
     LEFT JOIN LATERAL (SELECT role FROM hob.memory_turns WHERE session = s.id
         ORDER BY at DESC, seq DESC LIMIT 1) l ON true
     ORDER BY s.ended DESC, s.id DESC";

pub(super) fn outline(
    cipher: &Cipher,
    speaker: &str,
    row: &Row,
) -> Result<SessionOutline, StoreError> {
    let turn = |at: usize| -> Result<Option<OutlinedTurn>, StoreError> {
        let (seq, body): (Option<i64>, Option<&[u8]>) = (row.get(at), row.get(at + 1));
        let (Some(seq), Some(body)) = (seq, body) else { return Ok(None) };
        let text = Opened::new(cipher, speaker, seq, body)?.text;
        Ok(Some(OutlinedTurn { text, source: take(row.get(at + 2)).into() }))
    };
    Ok(SessionOutline {
        session: cipher.decrypt_name(Name::Session, row.get(0))?,
        client: take(row.get(1)),
        started: time(row.get(2)),
        ended: time(row.get(3)),
        turns: row.get::<_, i64>(4).max(0) as usize,
        first_prompt: turn(5)?,
        last_prompt: turn(8)?,
        last_answer: turn(11)?,
        unanswered: row.get::<_, Option<&str>>(14) == Some("user"),
    })
}

/// Converts an optional time.
pub(super) fn when(microseconds: Option<i64>) -> Option<Timestamp> {
    microseconds.map(time)
}

/// Runs a query. The connection caches the prepared statement.
pub(super) async fn ask(client: &Client, sql: &str, values: Values<'_>) -> Result<Vec<Row>, Error> {
    client.query(&client.prepare_cached(sql).await?, values).await
}
