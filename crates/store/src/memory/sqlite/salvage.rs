//! Turns of a damaged memory on their way into a new one.

use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, Transaction, params};

use super::migrate::put_turn;
use super::postings::IndexChanges;
use crate::migrate::{Analyse, Cell, MigratedTurn, Row};

/// Turns that are written together, and indexed again.
pub(crate) struct SalvagedTurns {
    analyse: Analyse,
    waiting: Vec<Vec<Value>>,
    written: u64,
}

impl SalvagedTurns {
    pub(crate) fn new(analyse: Analyse) -> SalvagedTurns {
        SalvagedTurns { analyse, waiting: Vec::new(), written: 0 }
    }

    /// Adds a row with all columns of the table in their order.
    pub(crate) fn add(&mut self, row: Vec<Value>) {
        self.waiting.push(row);
    }

    /// Returns the number of turns that are not written yet.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of turns that were written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn write(&mut self, target: &mut Connection) -> rusqlite::Result<()> {
        let transaction = target.transaction()?;
        let mut index = IndexChanges::new(&transaction)?;
        for row in self.waiting.drain(..) {
            let Ok(turn) = MigratedTurn::of(row.into_iter().map(cell).collect::<Row>()) else {
                continue;
            };
            let analysed = (self.analyse)(&turn.text, turn.cue.as_deref());
            create_lost_parents(&transaction, &turn)?;
            match put_turn(&transaction, &turn, &analysed, &mut index) {
                Ok(()) => self.written += 1,
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                }
                Err(error) => return Err(error),
            }
        }
        index.write(&transaction)?;
        transaction.commit()
    }
}

/// Creates the project and the session of a turn if they are lost.
fn create_lost_parents(transaction: &Transaction<'_>, turn: &MigratedTurn) -> rusqlite::Result<()> {
    let MigratedTurn { project, session, .. } = *turn;
    transaction
        .prepare_cached("INSERT OR IGNORE INTO projects (id, speaker, root) VALUES (?1, ?2, ?3)")?
        .execute(params![project, turn.speaker, format!("lost project {project}")])?;
    transaction
        .prepare_cached(
            "INSERT OR IGNORE INTO sessions (id, speaker, name, client, project, started, ended, turns)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, 0)",
        )?
        .execute(params![
            session,
            turn.speaker,
            format!("lost session {session}"),
            turn.client,
            project,
            turn.ts
        ])?;
    Ok(())
}

fn cell(value: Value) -> Cell {
    match value {
        Value::Null => Cell::None,
        Value::Integer(number) => Cell::Number(number),
        Value::Real(number) => Cell::Real(number),
        Value::Text(text) => Cell::Text(text),
        Value::Blob(bytes) => Cell::Bytes(bytes),
    }
}
