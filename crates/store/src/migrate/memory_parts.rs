//! The parts of a memory, in clear and independent of the database. Turns, sessions and projects keep their numbers. The
//! index is built again on the target.

use std::sync::Arc;

use hob_domain::StoreError;
use hob_domain::memory::{RecordId, TurnKey};

use super::cells::{Cell, Cells, Row};
use super::part::{MAX_PAGE_ROWS, Part};

/// Computes the index entries of a turn from its text and its cue: a pure function that the store does not know.
pub type Analyse = Arc<dyn Fn(&str, Option<&str>) -> Analysed + Send + Sync>;

/// The index entries of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Analysed {
    /// Terms in the index's spelling, separated by spaces.
    pub terms: String,
    pub vector: Vec<i8>,
}

/// The parts of a memory with their columns. The first column, or the first two, are the key. Parts without a common key
/// in both databases are copied whole, ordered by all columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryPart {
    /// `id, speaker, root`
    Projects,
    /// `id, speaker, name, client, project, started, ended`. How many turns they have is counted as these come.
    Sessions,
    /// `id, name, width`
    Kinds,
    /// See [`MigratedTurn`].
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

pub(crate) const PARTS: &[MemoryPart] = &[
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

    fn identity_of(self, row: &Row) -> Option<String> {
        self.identifies_store().then(|| format!("{row:?}"))
    }

    fn identifies_store(self) -> bool {
        matches!(self, MemoryPart::Projects | MemoryPart::Sessions)
    }

    /// Turns are analysed, and each is many rows in an index.
    fn max_page_rows(self) -> usize {
        if self == MemoryPart::Turns { 400 } else { MAX_PAGE_ROWS }
    }
}

/// A turn during a migration, with all its names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MigratedTurn {
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

impl MigratedTurn {
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

    pub(crate) fn of(row: Row) -> Result<MigratedTurn, StoreError> {
        let mut cells = Cells::of(row);
        Ok(MigratedTurn {
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
