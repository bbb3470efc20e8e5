//! Nodes and their leases on sessions. All times are by the database's clock.

use std::time::Duration;

use async_trait::async_trait;
use hob_domain::session::SessionId;
use hob_domain::{Lease, LeaseOutcome, Node, NodeId, NodeStore, StoreError, Timestamp};
use tokio_postgres::Error;

use super::PostgresLedger;
use super::fences::fence;
use super::session_rows::key;
use super::turns::interrupt;
use crate::postgres::connections::{Again, Client};
use crate::values::damaged;

#[async_trait]
impl NodeStore for PostgresLedger {
    async fn heartbeat(&self, node: &NodeId) -> Result<(), StoreError> {
        let sql = "INSERT INTO hob.nodes (id, heartbeat_at) VALUES ($1, clock_timestamp())
             ON CONFLICT (id) DO UPDATE SET heartbeat_at = clock_timestamp()";
        self.connections.query(Again::Harmless, sql, &[&node.as_str()]).await?;
        Ok(())
    }

    async fn nodes(&self) -> Result<Vec<Node>, StoreError> {
        let sql = "SELECT id,
                 extract(epoch FROM clock_timestamp() - heartbeat_at)::double precision
             FROM hob.nodes ORDER BY id";
        let rows = self.connections.query(Again::Harmless, sql, &[]).await?;
        let node = |row: &tokio_postgres::Row| {
            let id = NodeId::stored(row.get(0)).ok_or_else(|| damaged("a node's id"))?;
            let age = Duration::try_from_secs_f64(row.get(1)).unwrap_or_default();
            Ok(Node { id, age })
        };
        rows.iter().map(node).collect()
    }

    async fn remove_node(&self, node: &NodeId) -> Result<(), StoreError> {
        let sql = "DELETE FROM hob.nodes WHERE id = $1";
        self.connections.query(Again::Harmless, sql, &[&node.as_str()]).await.map(drop)
    }
}

impl PostgresLedger {
    pub(super) async fn acquire(
        &self,
        id: &SessionId,
        node: &NodeId,
        lease_timeout: Duration,
        now: Timestamp,
    ) -> Result<LeaseOutcome, StoreError> {
        self.connections
            .transaction(
                |client| async move { acquire_in(&client, id, node, lease_timeout, now).await },
            )
            .await
    }

    /// Not retried: the second attempt would find the lease already released.
    pub(super) async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        let sql =
            "UPDATE hob.heads SET holder = NULL WHERE session = $1 AND fence = $2 RETURNING 1";
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
            [&key(&lease.session), &fence(lease)];
        let released = self.connections.query_one(Again::Never, sql, &values).await?;
        released.map(drop).ok_or(StoreError::Lost)
    }
}

async fn acquire_in(
    client: &Client,
    id: &SessionId,
    node: &NodeId,
    lease_timeout: Duration,
    now: Timestamp,
) -> Result<LeaseOutcome, Error> {
    let session = key(id);
    let sql = "SELECT app, holder FROM hob.heads WHERE session = $1 FOR UPDATE";
    let statement = client.prepare_cached(sql).await?;
    let Some(head) = client.query_opt(&statement, &[&session]).await? else {
        return Ok(LeaseOutcome::Missing);
    };
    let (app, holder): (String, Option<String>) = (head.get(0), head.get(1));
    if let Some(holder) = holder.as_deref().and_then(NodeId::stored).filter(|by| by != node) {
        let sql = "SELECT 1 FROM hob.nodes
             WHERE id = $1 AND heartbeat_at > clock_timestamp() - make_interval(secs => $2)";
        let statement = client.prepare_cached(sql).await?;
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
            [&holder.as_str(), &lease_timeout.as_secs_f64()];
        if client.query_opt(&statement, &values).await?.is_some() {
            return Ok(LeaseOutcome::HeldBy(holder));
        }
    }
    let sql = "UPDATE hob.heads SET fence = fence + 1, holder = $2 WHERE session = $1
         RETURNING fence";
    let statement = client.prepare_cached(sql).await?;
    let taken = client.query_one(&statement, &[&session, &node.as_str()]).await?;
    let fence = taken.get::<_, i64>(0) as u64;
    let interrupted = interrupt(client, session, &app, now).await?;
    Ok(LeaseOutcome::Acquired(Lease { session: id.clone(), fence }, interrupted))
}
