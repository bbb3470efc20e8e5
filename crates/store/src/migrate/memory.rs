//! What a memory consists of, in clear, as both databases can say it. Numbers stay what they are: those of turns, of
//! sessions and of projects. What turns are found by is made anew on the target.

use std::sync::Arc;

use hob_domain::StoreError;
use hob_domain::memory::{RecordId, TurnKey};

use super::{Cell, Cells, Move, Part, Row};
use crate::memory::postgres::MemoryOnServer;
use crate::memory::sqlite::MemoryInFile;
use crate::{Memory, PostgresMemory};

/// What a turn is found by, given its text and its cue: a pure function that the store does not know.
pub type Analyse = Arc<dyn Fn(&str, Option<&str>) -> Analysed + Send + Sync>;

/// What a turn is found by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Analysed {
    /// In the index's own spelling, separated by spaces.
    pub terms: String,
    pub vector: Vec<i8>,
}

/// Moves a memory out of its file.
pub fn memory_to_postgres(from: &Memory, to: &PostgresMemory, analyse: Analyse) -> Move<'static> {
    let from = MemoryInFile { memory: from.clone(), analyse: analyse.clone() };
    Move::new(from, MemoryOnServer { memory: to.clone(), analyse }, PARTS)
}

/// Moves a memory back into a file, which holds nothing but what an earlier move has left there.
pub fn memory_to_sqlite(from: &PostgresMemory, to: &Memory, analyse: Analyse) -> Move<'static> {
    let from = MemoryOnServer { memory: from.clone(), analyse: analyse.clone() };
    Move::new(from, MemoryInFile { memory: to.clone(), analyse }, PARTS)
}

/// With their columns, of which the first, or the first two, are the key. Those that have none in common on both sides
/// travel whole, in the order of their cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryPart {
    /// `id, speaker, root`
    Projects,
    /// `id, speaker, name, client, project, started, ended`. How many turns they have is counted as these come.
    Sessions,
    /// `id, name, width`
    Kinds,
    /// See [`MovedTurn`].
    Turns,
    /// `seq, kind, vector`, with two for a key
    ModelVectors,
    /// `id, speaker, session, words, key, answer, nth`
    Forgotten,
    /// `speaker, session, until`, whole
    ForgottenSessions,
    /// `path, size, modified`, whole
    Imports,
    /// `id, at, kind, detail`
    Events,
    /// `name, last`, whole: the last numbers that turns, sessions and projects got, which no other gets again.
    Numbers,
}

const PARTS: &[MemoryPart] = &[
    MemoryPart::Projects,
    MemoryPart::Sessions,
    MemoryPart::Kinds,
    MemoryPart::Turns,
    MemoryPart::ModelVectors,
    MemoryPart::Forgotten,
    MemoryPart::ForgottenSessions,
    MemoryPart::Imports,
    MemoryPart::Events,
    MemoryPart::Numbers,
];

impl MemoryPart {
    pub(crate) fn is_whole(self) -> bool {
        use MemoryPart::{ForgottenSessions, Imports, Numbers};
        matches!(self, ForgottenSessions | Imports | Numbers)
    }
}

impl Part for MemoryPart {
    fn name(self) -> &'static str {
        match self {
            MemoryPart::Projects => "memory_projects",
            MemoryPart::Sessions => "memory_sessions",
            MemoryPart::Kinds => "memory_kinds",
            MemoryPart::Turns => "memory_turns",
            MemoryPart::ModelVectors => "memory_model_vectors",
            MemoryPart::Forgotten => "memory_forgotten",
            MemoryPart::ForgottenSessions => "memory_forgotten_sessions",
            MemoryPart::Imports => "memory_imports",
            MemoryPart::Events => "memory_events",
            MemoryPart::Numbers => "memory_numbers",
        }
    }

    fn key_of(self, row: &Row) -> Row {
        let columns = if self == MemoryPart::ModelVectors { 2 } else { 1 };
        row[..columns].to_vec()
    }

    fn shows(self, row: &Row) -> Option<String> {
        self.tells_whose().then(|| format!("{row:?}"))
    }

    fn tells_whose(self) -> bool {
        matches!(self, MemoryPart::Projects | MemoryPart::Sessions)
    }

    /// Turns are analysed, and each is many rows in an index.
    fn page(self) -> usize {
        if self == MemoryPart::Turns { 400 } else { super::PAGE }
    }
}

/// A turn on its way, with every name it is known by.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MovedTurn {
    pub(crate) seq: i64,
    pub(crate) id: RecordId,
    pub(crate) speaker: String,
    pub(crate) session: i64,
    pub(crate) project: i64,
    pub(crate) worktree: String,
    pub(crate) key: Option<TurnKey>,
    pub(crate) answer: Option<TurnKey>,
    pub(crate) nth: Option<i64>,
    pub(crate) words: TurnKey,
    pub(crate) role: String,
    pub(crate) tier: String,
    pub(crate) text: String,
    pub(crate) sealed: Option<Vec<u8>>,
    pub(crate) cue: Option<String>,
    pub(crate) ts: i64,
    pub(crate) at: i64,
    pub(crate) client: String,
    pub(crate) source: String,
    pub(crate) superseded_by: Option<String>,
    pub(crate) supersedes: Option<String>,
    pub(crate) rules: i64,
}

impl MovedTurn {
    pub(crate) fn row(self) -> Row {
        vec![
            Cell::Number(self.seq),
            Cell::text(self.id.as_str()),
            Cell::Text(self.speaker),
            Cell::Number(self.session),
            Cell::Number(self.project),
            Cell::Text(self.worktree),
            Cell::maybe(self.key, Cell::key),
            Cell::maybe(self.answer, Cell::key),
            Cell::maybe(self.nth, Cell::Number),
            Cell::key(self.words),
            Cell::Text(self.role),
            Cell::Text(self.tier),
            Cell::Text(self.text),
            Cell::maybe(self.sealed, Cell::Bytes),
            Cell::maybe(self.cue, Cell::Text),
            Cell::Number(self.ts),
            Cell::Number(self.at),
            Cell::Text(self.client),
            Cell::Text(self.source),
            Cell::maybe(self.superseded_by, Cell::Text),
            Cell::maybe(self.supersedes, Cell::Text),
            Cell::Number(self.rules),
        ]
    }

    pub(crate) fn of(row: Row) -> Result<MovedTurn, StoreError> {
        let mut cells = Cells::of(row);
        Ok(MovedTurn {
            seq: cells.number()?,
            id: RecordId::new(cells.text()?),
            speaker: cells.text()?,
            session: cells.number()?,
            project: cells.number()?,
            worktree: cells.text()?,
            key: cells.maybe_key()?,
            answer: cells.maybe_key()?,
            nth: cells.maybe_number()?,
            words: cells.key()?,
            role: cells.text()?,
            tier: cells.text()?,
            text: cells.text()?,
            sealed: cells.maybe_bytes()?,
            cue: cells.maybe_text()?,
            ts: cells.number()?,
            at: cells.number()?,
            client: cells.text()?,
            source: cells.text()?,
            superseded_by: cells.maybe_text()?,
            supersedes: cells.maybe_text()?,
            rules: cells.number()?,
        })
    }
}
