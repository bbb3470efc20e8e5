//! What a query needs to know of every turn.

/// The metadata of a turn, held in memory for all turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TurnMetadata {
    pub(super) seq: i64,
    /// When the turn was said, in microseconds.
    pub(super) ts: i64,
    /// The place of the turn in its session.
    pub(super) at: i64,
    pub(super) project: u32,
    pub(super) session: u32,
    /// In terms.
    pub(super) length: u32,
}

impl TurnMetadata {
    /// The project of a turn that was removed. Its place stays, since others are found by theirs.
    const REMOVED: u32 = u32::MAX;

    pub(super) fn is_removed(&self) -> bool {
        self.project == TurnMetadata::REMOVED
    }

    pub(super) fn remove(&mut self) {
        self.project = TurnMetadata::REMOVED;
    }

    /// The row of a query that begins with `seq, ts, at, project, session, length`.
    pub(super) fn of(row: &rusqlite::Row<'_>) -> rusqlite::Result<TurnMetadata> {
        Ok(TurnMetadata {
            seq: row.get(0)?,
            ts: row.get(1)?,
            at: row.get(2)?,
            project: row.get(3)?,
            session: row.get(4)?,
            length: row.get(5)?,
        })
    }
}
