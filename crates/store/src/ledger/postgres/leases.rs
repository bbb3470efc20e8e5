//! Nodes and their leases on sessions. All times are by the database's clock.

use std::time::Duration;

use async_trait::async_trait;
use hob_domain::session::SessionId;
use hob_domain::{Lease, LeaseOutcome, Node, NodeEvent, NodeId, NodeStore, StoreError, Timestamp};
use tokio_postgres::Error;

use super::PostgresLedger;
use super::fences::fence;
use super::session_rows::key;
use super::turns::interrupt;
use crate::postgres::connections::{Again, Client, Connections, Values};
use crate::postgres::row_scope::RowScope;
use crate::postgres::text_cipher::TextCipher;
use crate::values::{app_name, damaged};

#[async_trait]
impl NodeStore for PostgresLedger {
    async fn note_node(&self, node: &NodeId, event: NodeEvent) -> Result<(), StoreError> {
        let sql = match event {
            NodeEvent::Heartbeat => {
                "INSERT INTO hob.nodes (id, heartbeat_at) VALUES ($1, clock_timestamp())
                 ON CONFLICT (id) DO UPDATE SET heartbeat_at = clock_timestamp()"
            }
            NodeEvent::Left => "DELETE FROM hob.nodes WHERE id = $1",
        };
        let connections = self.connections.within(RowScope::Shared);
        connections.query(Again::Harmless, sql, &[&node.as_str()]).await.map(drop)
    }

    async fn nodes(&self) -> Result<Vec<Node>, StoreError> {
        let sql = "SELECT id,
                 extract(epoch FROM clock_timestamp() - heartbeat_at)::double precision
             FROM hob.nodes ORDER BY id";
        let connections = self.connections.within(RowScope::Shared);
        let rows = connections.query(Again::Harmless, sql, &[]).await?;
        let node = |row: &tokio_postgres::Row| {
            let id = NodeId::stored(row.get(0)).ok_or_else(|| damaged("a node's id"))?;
            let age = Duration::try_from_secs_f64(row.get(1)).unwrap_or_default();
            Ok(Node { id, age })
        };
        rows.iter().map(node).collect()
    }
}

/// Acquires the lease on a session unless a live node holds it, and interrupts the turns that ran under the old one.
pub(super) async fn acquire(
    ledger: &PostgresLedger,
    id: &SessionId,
    node: &NodeId,
    lease_timeout: Duration,
    now: Timestamp,
) -> Result<LeaseOutcome, StoreError> {
    // Reading the holder is cheaper than trying to acquire, and blocks no writer.
    let holder = live_holder(&ledger.connections, id, lease_timeout).await?;
    if let Some(holder) = holder.filter(|holder| holder != node) {
        return Ok(LeaseOutcome::HeldBy(holder));
    }
    let texts = &ledger.texts;
    ledger
        .connections
        .within(RowScope::All)
        .transaction(|client| async move {
            acquire_locked(&client, texts, id, node, lease_timeout, now).await
        })
        .await?
}

/// Releases a lease. Not retried: the second attempt would find the lease already released.
pub(super) async fn release(ledger: &PostgresLedger, lease: &Lease) -> Result<(), StoreError> {
    let sql = "UPDATE hob.heads SET holder = NULL WHERE session = $1 AND fence = $2 RETURNING 1";
    let values: Values<'_> = &[&key(&lease.session), &fence(lease)];
    let released = ledger.of_app(&lease.app).query_one(Again::Never, sql, values).await?;
    released.map(drop).ok_or(StoreError::Lost)
}

/// Returns the lease holder of a session if its last heartbeat is within the timeout.
async fn live_holder(
    connections: &Connections,
    id: &SessionId,
    lease_timeout: Duration,
) -> Result<Option<NodeId>, StoreError> {
    let sql = "SELECT n.id FROM hob.heads h JOIN hob.nodes n ON n.id = h.holder
         WHERE h.session = $1 AND n.heartbeat_at > clock_timestamp() - make_interval(secs => $2)";
    let values: Values<'_> = &[&key(id), &lease_timeout.as_secs_f64()];
    let connections = connections.within(RowScope::All);
    let row = connections.query_one(Again::Harmless, sql, values).await?;
    Ok(row.and_then(|row| NodeId::stored(row.get(0))))
}

/// Acquires a lease after locking the session's head, which settles concurrent attempts.
async fn acquire_locked(
    client: &Client,
    texts: &TextCipher,
    id: &SessionId,
    node: &NodeId,
    lease_timeout: Duration,
    now: Timestamp,
) -> Result<Result<LeaseOutcome, StoreError>, Error> {
    let session = key(id);
    let sql = "SELECT app, holder FROM hob.heads WHERE session = $1 FOR UPDATE";
    let statement = client.prepare_cached(sql).await?;
    let Some(head) = client.query_opt(&statement, &[&session]).await? else {
        return Ok(Ok(LeaseOutcome::Missing));
    };
    let (app, holder): (String, Option<String>) = (head.get(0), head.get(1));
    if let Some(holder) = holder.as_deref().and_then(NodeId::stored).filter(|by| by != node) {
        let sql = "SELECT 1 FROM hob.nodes
             WHERE id = $1 AND heartbeat_at > clock_timestamp() - make_interval(secs => $2)";
        let statement = client.prepare_cached(sql).await?;
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
            [&holder.as_str(), &lease_timeout.as_secs_f64()];
        if client.query_opt(&statement, &values).await?.is_some() {
            return Ok(Ok(LeaseOutcome::HeldBy(holder)));
        }
    }
    let app = match app_name(app) {
        Ok(app) => app,
        Err(error) => return Ok(Err(error)),
    };
    let sql = "UPDATE hob.heads SET fence = fence + 1, holder = $2 WHERE session = $1
         RETURNING fence";
    let statement = client.prepare_cached(sql).await?;
    // The session's app is known now: everything is written within its scope.
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&session, &node.as_str()];
    let scope = RowScope::App(app.as_str());
    let (entered, taken) =
        tokio::join!(biased; scope.enter(client), client.query_one(&statement, &values));
    let fence = entered.and(taken)?.get::<_, i64>(0) as u64;
    let interrupted = interrupt(client, texts, session, app.as_str(), now).await?;
    Ok(Ok(LeaseOutcome::Acquired(Lease { app, session: id.clone(), fence }, interrupted)))
}
