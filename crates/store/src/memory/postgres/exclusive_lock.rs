//! The exclusive lock of a migration: while a process holds it, no other opens the memory, on any
//! machine. The server releases it with the connection, however that ends.

use std::time::{Duration, Instant};

use hob_domain::StoreError;

use crate::postgres::connections::{Connections, Trouble};

/// The key of the advisory lock: `hobmove` in ASCII.
const LOCK_KEY: i64 = 0x0068_6f62_6d6f_7665;
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// An SQL expression that is true while a process holds the lock. `pg_locks` shows the key in two
/// halves.
pub(super) const IS_LOCKED: &str = "EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory'
     AND classid = 6844258 AND objid = 1836021349 AND objsubid = 1
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";

/// The lock, held until it is dropped.
pub struct ExclusiveLock {
    _connection: deadpool_postgres::ClientWrapper,
}

impl ExclusiveLock {
    /// Waits at most `timeout` for the lock: what a killed process has begun on the server ends
    /// first.
    pub(super) async fn acquire(
        connections: &Connections,
        timeout: Duration,
    ) -> Result<ExclusiveLock, StoreError> {
        let unavailable = |trouble: Trouble| StoreError::Unavailable(trouble.text().to_owned());
        let client = connections.one().await.map_err(unavailable)?;
        let began = Instant::now();
        loop {
            let row = client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK_KEY]).await;
            let row = row.map_err(|error| unavailable(Trouble::of(&error)))?;
            if row.get::<_, bool>(0) {
                break;
            }
            if began.elapsed() >= timeout {
                let text = "another `hob store migrate` is using this database; wait until it ends";
                return Err(StoreError::Unavailable(text.to_owned()));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        // The connection leaves the pool, so that nobody else gets it and it is closed in the end.
        Ok(ExclusiveLock { _connection: deadpool_postgres::Object::take(client) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_is_found_by_the_halves_of_its_key() {
        let halves =
            format!("classid = {} AND objid = {} ", LOCK_KEY >> 32, LOCK_KEY & 0xffff_ffff);
        assert!(IS_LOCKED.contains(&halves), "{halves}");
    }
}
