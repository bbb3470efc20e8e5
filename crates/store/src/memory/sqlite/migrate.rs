//! The SQLite endpoint of a migration of the memory.

use async_trait::async_trait;
use hob_domain::StoreError;
use hob_domain::memory::{TurnKey, VectorKind};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Transaction, params, params_from_iter};

use super::Memory;
use super::postings::{IndexChanges, IndexedTurn};
use super::vectors::{self, save_table_vector};
use crate::migrate::{
    Analyse, Analysed, Cell, Cells, Endpoint, MemoryPart, MigratedTurn, Part, Row,
};
use crate::sqlite::failed;
use crate::values::damaged;

/// A memory in a file, and the function that analyses the turns that arrive.
pub(crate) struct MemoryInFile {
    pub(crate) memory: Memory,
    pub(crate) analyse: Analyse,
}

/// Returns how a part is read: its columns, its table, and its key, which it is ordered by.
fn reading(part: MemoryPart) -> (&'static str, &'static str, &'static str) {
    match part {
        MemoryPart::Projects => ("id, speaker, root", "projects", "id"),
        MemoryPart::Sessions => {
            ("id, speaker, name, client, project, started, ended", "sessions", "id")
        }
        MemoryPart::Kinds => ("id, name, width", "vector_kinds", "id"),
        MemoryPart::Turns => (
            "seq, id, speaker, session, project, worktree, key, answer, nth, words, role, tier, text,
                 sealed, cue, ts, at, client, source, superseded_by, supersedes, rules",
            "turns",
            "seq",
        ),
        MemoryPart::ModelVectors => ("seq, kind, vector", "model_vectors", "seq, kind"),
        MemoryPart::Forgotten => {
            ("rowid, speaker, session, words, key, answer, nth", "forgotten", "rowid")
        }
        MemoryPart::ForgottenSessions => {
            ("speaker, session, until", "forgotten_sessions", "speaker, session")
        }
        MemoryPart::Imports => ("path, size, modified", "imports", "path"),
        MemoryPart::Events => ("id, at, kind, detail", "events", "id"),
        // A table that never had a row is not in `sqlite_sequence`.
        MemoryPart::Numbers => (
            "name, coalesce((SELECT seq FROM sqlite_sequence s WHERE s.name = n.name), 0)",
            "(SELECT 'projects' AS name UNION SELECT 'sessions' UNION SELECT 'turns') n",
            "name",
        ),
    }
}

#[async_trait]
impl Endpoint<MemoryPart> for MemoryInFile {
    async fn page(
        &self,
        part: MemoryPart,
        after: Option<Row>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        if part.is_whole() && after.is_some() {
            return Ok(Vec::new());
        }
        let (columns, table, key) = reading(part);
        let places = if key.contains(',') { "?1, ?2" } else { "?1" };
        let condition = match after {
            Some(_) => format!("WHERE ({key}) > ({places})"),
            None => String::new(),
        };
        let limit = if part.is_whole() { -1 } else { limit as i64 };
        let sql = format!("SELECT {columns} FROM {table} {condition} ORDER BY {key} LIMIT {limit}");
        self.memory
            .database
            .read(move |connection| rows(connection, &sql, after.unwrap_or_default()))
            .await
    }

    async fn put(&self, part: MemoryPart, rows: Vec<Row>) -> Result<(), StoreError> {
        if part == MemoryPart::Turns {
            return self.put_turns(rows).await;
        }
        self.memory
            .database
            .write(move |transaction| {
                rows.into_iter().try_for_each(|row| put_row(transaction, part, row))
            })
            .await
    }

    async fn last(&self, part: MemoryPart) -> Result<Option<Row>, StoreError> {
        if part.is_whole() {
            return Ok(None);
        }
        let (columns, table, key) = reading(part);
        let order = key.replace(", ", " DESC, ");
        let sql = format!("SELECT {columns} FROM {table} ORDER BY {order} DESC LIMIT 1");
        let found =
            self.memory.database.read(move |connection| rows(connection, &sql, Vec::new())).await?;
        Ok(found.first().map(|row| part.key_of(row)))
    }

    async fn count(&self, part: MemoryPart) -> Result<u64, StoreError> {
        let (_, table, _) = reading(part);
        let sql = format!("SELECT count(*) FROM {table}");
        self.memory
            .database
            .read(move |connection| {
                let count = connection.query_row(&sql, [], |row| row.get::<_, i64>(0));
                count.map(|count| count as u64).map_err(failed)
            })
            .await
    }
}

impl MemoryInFile {
    async fn put_turns(&self, rows: Vec<Row>) -> Result<(), StoreError> {
        let mut turns = Vec::new();
        for row in rows {
            let turn = MigratedTurn::of(row)?;
            let analysed = (self.analyse)(&turn.text, turn.cue.as_deref());
            turns.push((turn, analysed));
        }
        let merging = self.memory.merging.clone();
        let newest = self
            .memory
            .database
            .write(move |transaction| {
                let mut index = IndexChanges::new(transaction).map_err(failed)?;
                for (turn, analysed) in &turns {
                    put_turn(transaction, turn, analysed, &mut index).map_err(failed)?;
                }
                index.write(transaction).map_err(failed)?;
                merging.step(transaction, turns.len()).map_err(failed)
            })
            .await?;
        self.memory.merging.is_committed(newest);
        Ok(())
    }
}

fn rows(connection: &Connection, sql: &str, after: Row) -> Result<Vec<Row>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let columns = statement.column_count();
    let mut rows = statement.query(params_from_iter(after)).map_err(failed)?;
    let mut page = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let cells = (0..columns).map(|index| cell(row.get_ref(index).map_err(failed)?));
        page.push(cells.collect::<Result<Row, StoreError>>()?);
    }
    Ok(page)
}

fn cell(value: ValueRef<'_>) -> Result<Cell, StoreError> {
    Ok(match value {
        ValueRef::Null => Cell::None,
        ValueRef::Integer(number) => Cell::Number(number),
        ValueRef::Real(number) => Cell::Real(number),
        ValueRef::Text(bytes) => Cell::Text(
            String::from_utf8(bytes.to_vec()).map_err(|_| damaged("a text of the memory"))?,
        ),
        ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
    })
}

/// Inserts a row of any part but turns, unless it exists.
fn put_row(transaction: &Transaction<'_>, part: MemoryPart, row: Row) -> Result<(), StoreError> {
    let insert = match part {
        MemoryPart::Projects => {
            "INSERT OR IGNORE INTO projects (id, speaker, root) VALUES (?1, ?2, ?3)"
        }
        MemoryPart::Sessions => {
            "INSERT OR IGNORE INTO sessions (id, speaker, name, client, project, started, ended, turns)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0)"
        }
        MemoryPart::Kinds => {
            "INSERT OR IGNORE INTO vector_kinds (id, name, width) VALUES (?1, ?2, ?3)"
        }
        MemoryPart::Forgotten => {
            "INSERT OR IGNORE INTO forgotten (rowid, speaker, session, words, key, answer, nth)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
        }
        MemoryPart::ForgottenSessions => {
            "INSERT OR IGNORE INTO forgotten_sessions (speaker, session, until) VALUES (?1, ?2, ?3)"
        }
        MemoryPart::Imports => {
            "INSERT OR IGNORE INTO imports (path, size, modified) VALUES (?1, ?2, ?3)"
        }
        MemoryPart::Events => {
            "INSERT OR IGNORE INTO events (id, at, kind, detail) VALUES (?1, ?2, ?3, ?4)"
        }
        MemoryPart::Turns => return Err(damaged("a migration of turns")),
        MemoryPart::ModelVectors => {
            let mut cells = Cells::of(row);
            let (seq, kind, vector) = (cells.number()?, cells.number()?, cells.bytes()?);
            let vector: Vec<i8> = vector.into_iter().map(u8::cast_signed).collect();
            let kind = VectorKind(kind);
            return vectors::save(transaction, kind, seq, &vector).map_err(failed);
        }
        MemoryPart::Numbers => {
            let mut cells = Cells::of(row);
            let (name, last) = (cells.text()?, cells.number()?);
            return set_last(transaction, &name, last).map_err(failed);
        }
    };
    let mut statement = transaction.prepare_cached(insert).map_err(failed)?;
    statement.execute(params_from_iter(row)).map_err(failed)?;
    Ok(())
}

/// Keeps numbers up to this one from being given again.
fn set_last(transaction: &Transaction<'_>, name: &str, last: i64) -> rusqlite::Result<()> {
    let there = transaction.execute(
        "UPDATE sqlite_sequence SET seq = max(seq, ?2) WHERE name = ?1",
        params![name, last],
    )?;
    if there == 0 && last > 0 {
        let sql = "INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)";
        transaction.execute(sql, params![name, last])?;
    }
    Ok(())
}

pub(super) fn put_turn(
    transaction: &Transaction<'_>,
    turn: &MigratedTurn,
    analysed: &Analysed,
    index: &mut IndexChanges,
) -> rusqlite::Result<()> {
    let key = |key: &Option<TurnKey>| match key {
        Some(key) => Value::Blob(key.bytes().to_vec()),
        None => Value::Null,
    };
    transaction
        .prepare_cached(
            "INSERT INTO turns (seq, id, speaker, session, project, worktree, key, answer, nth, words,
                 role, tier, text, sealed, cue, ts, at, client, source, superseded_by, supersedes, rules)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
                 ?19, ?20, ?21, ?22)",
        )?
        .execute(params![
            turn.seq,
            turn.id.as_str(),
            turn.speaker,
            turn.session,
            turn.project,
            turn.worktree,
            key(&turn.key),
            key(&turn.answer),
            turn.nth,
            turn.words.bytes(),
            turn.role,
            turn.tier,
            turn.text,
            turn.sealed,
            turn.cue,
            turn.ts,
            turn.at,
            turn.client,
            turn.source,
            turn.superseded_by,
            turn.supersedes,
            turn.rules,
        ])?;
    transaction
        .prepare_cached("UPDATE sessions SET turns = turns + 1 WHERE id = ?1")?
        .execute([turn.session])?;
    let MigratedTurn { seq, project, session, ts, at, .. } = *turn;
    index
        .add(transaction, &IndexedTurn { seq, project, session, ts, at, terms: &analysed.terms })?;
    save_table_vector(transaction, project, seq, &analysed.vector)
}
