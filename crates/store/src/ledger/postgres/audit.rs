//! The audit log in PostgreSQL.

use async_trait::async_trait;
use hob_domain::{AuditEntry, AuditStore, MAX_AUDIT_ENTRIES, StoreError, Timestamp};
use serde_json::Value;

use super::PostgresLedger;
use crate::postgres::connections::Again;
use crate::postgres::row_scope::RowScope;
use crate::postgres::text::{put, take};
use crate::values::{damaged, micros, time};

#[async_trait]
impl AuditStore for PostgresLedger {
    /// Not retried: the entry could be stored twice.
    async fn append_audit(
        &self,
        at: Timestamp,
        action: &str,
        target: &str,
        detail: &Value,
    ) -> Result<u64, StoreError> {
        let detail = detail.to_string();
        let row = self
            .connections
            .within(RowScope::All)
            .query_one(
                Again::Never,
                "WITH added AS (
                     INSERT INTO hob.audit (at, action, target, detail) VALUES ($1, $2, $3, $4)
                     RETURNING id
                 ), gone AS (
                     DELETE FROM hob.audit USING added WHERE audit.id <= added.id - $5
                 ) SELECT id FROM added",
                &[&micros(at), &put(action), &put(target), &put(&detail), &MAX_AUDIT_ENTRIES],
            )
            .await?;
        let id: i64 = row.map(|row| row.get(0)).ok_or_else(|| damaged("the audit log"))?;
        Ok(id as u64)
    }

    async fn list_audit(
        &self,
        limit: usize,
        before: Option<u64>,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let before = before.and_then(|id| i64::try_from(id).ok()).unwrap_or(i64::MAX);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self
            .connections
            .within(RowScope::All)
            .query(
                Again::Harmless,
                "SELECT id, at, action, target, detail FROM hob.audit WHERE id < $1
                 ORDER BY id DESC LIMIT $2",
                &[&before, &limit],
            )
            .await?;
        let entry = |row: &tokio_postgres::Row| {
            let detail = take(row.get(4));
            Ok(AuditEntry {
                id: row.get::<_, i64>(0) as u64,
                at: time(row.get(1)),
                action: take(row.get(2)),
                target: take(row.get(3)),
                detail: serde_json::from_str(&detail).map_err(|_| damaged("an audit entry"))?,
            })
        };
        rows.iter().map(entry).collect()
    }
}
