//! Errors of a migration.

use hob_domain::StoreError;

/// The reason why a migration stopped.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The target has rows that did not come from this source.
    #[error(
        "the target has {table} that the source does not have, so nothing was migrated: use an empty database"
    )]
    Occupied { table: &'static str },
    #[error(
        "{table} differ after the migration ({source_rows} rows became {target_rows}): do not use the target; the source is unchanged"
    )]
    Differs { table: &'static str, source_rows: u64, target_rows: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}
