//! The source or the target of a migration.

use async_trait::async_trait;
use hob_domain::StoreError;

use super::cells::Row;
use super::part::Part;

/// The state of a target before a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetState {
    /// The target is empty, or only its rows tell whether it may be used.
    Unknown,
    /// The target contains the rows of an incomplete migration and nothing else.
    PartiallyMigrated,
    /// The target contains rows of its own.
    InUse,
}

/// A store that is read from or written to by a migration.
#[async_trait]
pub(crate) trait Endpoint<P: Part>: Send + Sync {
    /// Returns rows with a greater key, in key order.
    async fn page(&self, part: P, after: Option<Row>, limit: usize)
    -> Result<Vec<Row>, StoreError>;

    /// Stores the rows that do not exist yet.
    async fn put(&self, part: P, rows: Vec<Row>) -> Result<(), StoreError>;

    /// Returns the greatest key.
    async fn last(&self, part: P) -> Result<Option<Row>, StoreError>;

    async fn count(&self, part: P) -> Result<u64, StoreError>;

    async fn target_state(&self) -> Result<TargetState, StoreError> {
        Ok(TargetState::Unknown)
    }

    /// Marks the target as partially migrated, until [`Endpoint::complete`].
    async fn begin(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Removes the rows of an incomplete migration.
    async fn clear(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Finishes the target once all rows have arrived, before they are compared.
    async fn finish(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Marks the target as complete: its rows equal the source's.
    async fn complete(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
