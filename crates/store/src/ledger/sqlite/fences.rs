//! Fencing tokens of leases: a write under a lease that is not the latest is refused.

use hob_domain::session::SessionId;
use hob_domain::{Lease, StoreError};
use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::sqlite::failed;

/// Refuses a write under a lease that is not the latest, or that names another app than the session's.
pub(super) fn check(transaction: &Transaction<'_>, lease: &Lease) -> Result<(), StoreError> {
    let values = [lease.session.as_str(), lease.app.as_str()];
    let fence: Option<i64> = transaction
        .prepare_cached("SELECT fence FROM sessions WHERE id = ?1 AND app = ?2")
        .and_then(|mut s| s.query_row(values, |row| row.get(0)).optional())
        .map_err(failed)?;
    match fence {
        Some(fence) if fence as u64 == lease.fence => Ok(()),
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
