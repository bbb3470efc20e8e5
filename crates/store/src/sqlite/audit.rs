//! The audit log in SQLite.

use async_trait::async_trait;
use hob_domain::{AuditEntry, AuditStore, StoreError, Timestamp};
use rusqlite::params;
use serde_json::Value;

use super::{Ledger, failed};

/// How many entries are kept. A person makes a few dozen a day; a program that asks for ever must not
/// fill the disk.
const KEPT: i64 = 100_000;

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
                    .execute("DELETE FROM audit WHERE id <= ?1", [id - KEPT])
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

#[cfg(test)]
mod tests {
    use super::*;
    use hob_domain::DataKey;
    use serde_json::json;

    #[tokio::test]
    async fn entries_stay_and_are_read_backwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hob.db");
        let key = DataKey::from_bytes([1; 32]);
        let at: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let ledger = Ledger::open(&path, &key).unwrap();
        for n in 0..5 {
            let detail = json!({"n": n});
            ledger.append_audit(at, "attach", "some-session", &detail).await.unwrap();
        }
        drop(ledger);
        let ledger = Ledger::open(&path, &key).unwrap();
        let numbers =
            |entries: &[AuditEntry]| -> Vec<u64> { entries.iter().map(|entry| entry.id).collect() };
        let newest = ledger.list_audit(2, None).await.unwrap();
        assert_eq!(numbers(&newest), [5, 4]);
        assert_eq!((newest[0].at, &newest[0].detail), (at, &json!({"n": 4})));
        assert_eq!(
            (newest[0].action.as_str(), newest[0].target.as_str()),
            ("attach", "some-session")
        );
        assert_eq!(numbers(&ledger.list_audit(9, Some(4)).await.unwrap()), [3, 2, 1]);
        assert!(ledger.list_audit(9, Some(0)).await.unwrap().is_empty());
    }
}
