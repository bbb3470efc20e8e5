//! Fencing tokens of leases: a write under a lease that is not the latest is refused.

use hob_domain::session::SessionId;
use hob_domain::{Lease, StoreError};
use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::sqlite::failed;

/// Refuses a write under a lease that is not the latest.
pub(super) fn check(transaction: &Transaction<'_>, lease: &Lease) -> Result<(), StoreError> {
    match fence(transaction, &lease.session)? {
        Some(fence) if fence == lease.fence => Ok(()),
        _ => Err(StoreError::Lost),
    }
}

/// Returns the fence of a session; `None` if there is no such session.
pub(super) fn fence(connection: &Connection, id: &SessionId) -> Result<Option<u64>, StoreError> {
    connection
        .prepare_cached("SELECT fence FROM sessions WHERE id = ?1")
        .and_then(|mut s| s.query_row([id.as_str()], |row| row.get::<_, i64>(0)).optional())
        .map(|fence| fence.map(|fence| fence as u64))
        .map_err(failed)
}
