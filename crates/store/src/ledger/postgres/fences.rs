//! Fencing tokens of leases. Every statement that writes to a session compares them itself.

use hob_domain::Lease;

/// Returns a lease's fence as a database value.
pub(super) fn fence(lease: &Lease) -> i64 {
    i64::try_from(lease.fence).unwrap_or(i64::MAX)
}
