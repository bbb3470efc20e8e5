//! When a sign-in expires while a stream is open.

use std::time::Duration;

use hob_domain::Timestamp;
use tokio::time::Instant;

/// Converts the expiry of a sign-in to an instant of the monotonic clock.
pub(crate) fn expiry_instant(until: Option<Timestamp>) -> Option<Instant> {
    let left = until?.as_second().saturating_sub(Timestamp::now().as_second()).max(0);
    Some(Instant::now() + Duration::from_secs(left as u64))
}

/// Sleeps until `expiry`; pends forever if it is `None`.
pub(crate) async fn sleep_until(expiry: Option<Instant>) {
    match expiry {
        Some(expiry) => tokio::time::sleep_until(expiry).await,
        None => std::future::pending().await,
    }
}
