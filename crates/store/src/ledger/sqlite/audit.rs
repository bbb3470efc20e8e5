//! The audit log in SQLite.

use async_trait::async_trait;
use hob_domain::{AuditEntry, AuditStore, MAX_AUDIT_ENTRIES, StoreError, Timestamp};
use rusqlite::params;
use serde_json::Value;

use super::Ledger;
use crate::sqlite::failed;

#[async_trait]
impl AuditStore for Ledger {
    async fn append_audit(
        &self,
        at: Timestamp,
        action: &str,
        target: &str,
        detail: &Value,
    ) -> Result<u64, StoreError> {
        let (action, target) = (action.to_owned(), target.to_owned());
        let detail = detail.to_string();
        self.database
            .write(move |transaction| {
                transaction
                    .prepare_cached(
                        "INSERT INTO audit (at, action, target, detail) VALUES (?1, ?2, ?3, ?4)",
                    )
                    .and_then(|mut insert| {
                        insert.execute(params![at.as_microsecond(), action, target, detail])
                    })
                    .map_err(failed)?;
                let id = transaction.last_insert_rowid();
                transaction
                    .execute("DELETE FROM audit WHERE id <= ?1", [id - MAX_AUDIT_ENTRIES])
                    .map_err(failed)?;
                Ok(id as u64)
            })
            .await
    }

    async fn list_audit(
        &self,
        limit: usize,
        before: Option<u64>,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let before = before.and_then(|id| i64::try_from(id).ok()).unwrap_or(i64::MAX);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.database
            .read(move |connection| {
                let mut statement = connection
                    .prepare_cached(
                        "SELECT id, at, action, target, detail FROM audit WHERE id < ?1
                         ORDER BY id DESC LIMIT ?2",
                    )
                    .map_err(failed)?;
                let rows = statement
                    .query_map([before, limit], |row| {
                        Ok((
                            row.get::<_, i64>(0)?,
                            row.get(1)?,
                            row.get(2)?,
                            row.get(3)?,
                            row.get::<_, String>(4)?,
                        ))
                    })
                    .map_err(failed)?;
                rows.map(|row| {
                    let (id, at, action, target, detail) = row.map_err(failed)?;
                    let damaged = |_| StoreError::Failed("an audit entry is damaged".to_owned());
                    Ok(AuditEntry {
                        id: id as u64,
                        at: Timestamp::from_microsecond(at)
                            .map_err(|error| StoreError::Failed(error.to_string()))?,
                        action,
                        target,
                        detail: serde_json::from_str(&detail).map_err(damaged)?,
                    })
                })
                .collect()
            })
            .await
    }
}
