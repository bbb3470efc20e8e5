//! The error of all storage ports.

/// The reason why a storage call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The name is taken. Nothing was changed.
    #[error("{0} already exists")]
    Exists(String),
    /// The store cannot be used at the moment: it is locked for too long, unreachable, or the disk is full.
    #[error("the database is temporarily unavailable: {0}")]
    Unavailable(String),
    /// The lease is not the latest one of its session, or the session is gone. Nothing was changed, and a retry
    /// cannot succeed.
    #[error(
        "this node no longer has the session: another node took it over, or it was deleted; try again"
    )]
    Lost,
    /// The file of the store is damaged, or is not a database. A retry cannot succeed until it is replaced.
    #[error("database error: {0}")]
    Damaged(String),
    /// The store cannot be used, or refuses this call.
    #[error("database error: {0}")]
    Failed(String),
}

impl StoreError {
    /// Returns whether the same call may succeed later: another process is writing, the disk is full.
    pub fn is_temporary(&self) -> bool {
        matches!(self, StoreError::Unavailable(_))
    }

    /// Returns whether the store itself is at fault, so that the error says nothing about what was to be stored.
    pub fn is_of_the_store(&self) -> bool {
        matches!(self, StoreError::Unavailable(_) | StoreError::Damaged(_))
    }
}
