//! Whoever moves a memory is alone: nobody opens it meanwhile, on whatever machine. The server ends it with the
//! connection, however that ends.

use std::time::{Duration, Instant};

use hob_domain::StoreError;

use super::PostgresMemory;
use crate::postgres::connections::Trouble;

/// `hob` and what it is about, in bytes.
const LOCK: i64 = 0x0068_6f62_6d6f_7665;

/// Whether somebody is, as a part of a statement. The key's halves are as `pg_locks` shows them.
pub(super) const SOMEBODY_IS: &str = "EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory'
     AND classid = 6844258 AND objid = 1836021349 AND objsubid = 1
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";

/// Nobody else opens the memory while this lives.
pub struct Alone {
    _connection: deadpool_postgres::ClientWrapper,
}

impl PostgresMemory {
    /// Makes this process the only one that has the memory, but for those who have opened it before. What one that was
    /// killed has begun there ends first.
    pub async fn alone(&self, patience: Duration) -> Result<Alone, StoreError> {
        let unavailable = |trouble: Trouble| StoreError::Unavailable(trouble.text().to_owned());
        let client = self.connections.one().await.map_err(unavailable)?;
        let began = Instant::now();
        loop {
            let row = client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await;
            let row = row.map_err(|error| unavailable(Trouble::of(&error)))?;
            if row.get::<_, bool>(0) {
                break;
            }
            if began.elapsed() >= patience {
                let text = "another `hob store migrate` is at this database";
                return Err(StoreError::Unavailable(text.to_owned()));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // It is lent to nobody else, and is closed in the end.
        Ok(Alone { _connection: deadpool_postgres::Object::take(client) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_looked_for_by_its_halves() {
        let halves = format!("classid = {} AND objid = {} ", LOCK >> 32, LOCK & 0xffff_ffff);
        assert!(SOMEBODY_IS.contains(&halves), "{halves}");
    }
}
