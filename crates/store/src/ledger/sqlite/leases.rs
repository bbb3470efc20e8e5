//! Nodes and their leases on sessions.

use std::time::Duration;

use async_trait::async_trait;
use hob_domain::session::SessionId;
use hob_domain::{Lease, LeaseOutcome, Node, NodeEvent, NodeId, NodeStore, StoreError, Timestamp};
use rusqlite::{OptionalExtension, Transaction, params};

use super::Ledger;
use super::fences::check;
use super::turns::interrupt;
use crate::sqlite::failed;
use crate::values::{app_name, damaged};

/// The current time by the database's clock, which is the machine's.
const NOW: &str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";

#[async_trait]
impl NodeStore for Ledger {
    async fn note_node(&self, node: &NodeId, event: NodeEvent) -> Result<(), StoreError> {
        let node = node.clone();
        self.database
            .write(move |transaction| {
                let sql = match event {
                    NodeEvent::Heartbeat => format!(
                        "INSERT INTO nodes (id, heartbeat_at) VALUES (?1, {NOW})
                         ON CONFLICT (id) DO UPDATE SET heartbeat_at = {NOW}"
                    ),
                    NodeEvent::Left => "DELETE FROM nodes WHERE id = ?1".to_owned(),
                };
                transaction.execute(&sql, [node.as_str()]).map(drop).map_err(failed)
            })
            .await
    }

    async fn nodes(&self) -> Result<Vec<Node>, StoreError> {
        self.database
            .read(|connection| {
                let sql = format!("SELECT id, {NOW} - heartbeat_at FROM nodes ORDER BY id");
                let rows: Vec<(String, i64)> = connection
                    .prepare_cached(&sql)
                    .and_then(|mut s| {
                        s.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
                    })
                    .map_err(failed)?;
                let node = |(id, age): (String, i64)| {
                    let id = NodeId::stored(&id).ok_or_else(|| damaged("a node's id"))?;
                    Ok(Node { id, age: Duration::from_micros(age.max(0) as u64) })
                };
                rows.into_iter().map(node).collect()
            })
            .await
    }
}

/// Acquires the lease on a session unless a live node holds it, and interrupts the turns that ran under the old one.
pub(super) fn acquire(
    transaction: &Transaction<'_>,
    id: &SessionId,
    node: &NodeId,
    lease_timeout: Duration,
    now: Timestamp,
) -> Result<LeaseOutcome, StoreError> {
    let sql = format!(
        "SELECT fence, holder, EXISTS (SELECT 1 FROM nodes WHERE id = holder AND heartbeat_at > {NOW} - ?2), app
         FROM sessions WHERE id = ?1"
    );
    let found: Option<(i64, Option<String>, bool, String)> = transaction
        .prepare_cached(&sql)
        .and_then(|mut s| {
            let values = params![id.as_str(), timeout_micros(lease_timeout)];
            s.query_row(values, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
                .optional()
        })
        .map_err(failed)?;
    let Some((fence, holder, lives, app)) = found else { return Ok(LeaseOutcome::Missing) };
    if let Some(holder) = holder.filter(|holder| lives && holder != node.as_str()) {
        let holder = NodeId::stored(&holder).ok_or_else(|| damaged("a session's holder"))?;
        return Ok(LeaseOutcome::HeldBy(holder));
    }
    transaction
        .prepare_cached("UPDATE sessions SET fence = ?2, holder = ?3 WHERE id = ?1")
        .and_then(|mut s| s.execute(params![id.as_str(), fence + 1, node.as_str()]))
        .map_err(failed)?;
    let interrupted = interrupt(transaction, id, now)?;
    let lease = Lease { app: app_name(app)?, session: id.clone(), fence: fence as u64 + 1 };
    Ok(LeaseOutcome::Acquired(lease, interrupted))
}

/// Returns the condition that a session has no live lease holder. `timeout` is the parameter with the timeout of leases.
pub(super) fn unleased(timeout: &str) -> String {
    format!(
        "NOT EXISTS (SELECT 1 FROM nodes
             WHERE nodes.id = sessions.holder AND heartbeat_at > {NOW} - {timeout})"
    )
}

/// Releases a lease.
pub(super) fn release(transaction: &Transaction<'_>, lease: &Lease) -> Result<(), StoreError> {
    check(transaction, lease)?;
    transaction
        .prepare_cached("UPDATE sessions SET holder = NULL WHERE id = ?1")
        .and_then(|mut s| s.execute([lease.session.as_str()]))
        .map_err(failed)?;
    Ok(())
}

/// Returns the timeout of leases in the unit of heartbeats.
pub(super) fn timeout_micros(lease_timeout: Duration) -> i64 {
    i64::try_from(lease_timeout.as_micros()).unwrap_or(i64::MAX)
}
