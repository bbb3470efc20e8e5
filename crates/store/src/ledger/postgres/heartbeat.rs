//! The heartbeat loop, on a connection of its own. Heartbeats must not wait for a pooled connection: a busy node would
//! count as dead.

use std::future::poll_fn;
use std::time::Duration;

use hob_domain::session::SessionId;
use hob_domain::{ClusterEvent, NodeId};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_postgres::AsyncMessage;

use crate::postgres::StoreUrl;
use crate::postgres::connections::connection_settings;
use crate::postgres::row_scope::RowScope;
use crate::postgres::tls;

/// The notification channel of all nodes.
pub(super) const CHANNEL: &str = "hob";
/// The pause before a new connection is tried.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(300);

/// Stores a heartbeat, which renews all leases of the node. Removes nodes whose last heartbeat is a day old.
const HEARTBEAT: &str = "WITH old AS (
         DELETE FROM hob.nodes WHERE heartbeat_at < clock_timestamp() - interval '1 day' AND id <> $1
     ), stored AS (
         INSERT INTO hob.nodes (id, heartbeat_at) VALUES ($1, clock_timestamp())
         ON CONFLICT (id) DO UPDATE SET heartbeat_at = clock_timestamp()
     ) SELECT EXISTS (SELECT 1 FROM hob.nodes
         WHERE id <> $1 AND heartbeat_at > clock_timestamp() - interval '1 minute')";

/// Sends heartbeats and receives notifications for ever, and reconnects after a lost connection.
pub(super) async fn run(
    url: &StoreUrl,
    node: &NodeId,
    every: Duration,
    tell: &(dyn Fn(ClusterEvent) + Send + Sync),
) {
    loop {
        if let Err(error) = run_until_disconnected(url, node, every, tell).await {
            tell(ClusterEvent::Disconnected(error));
        }
        sleep(RECONNECT_INTERVAL).await;
    }
}

/// Sends heartbeats and receives notifications until the connection is lost.
async fn run_until_disconnected(
    url: &StoreUrl,
    node: &NodeId,
    every: Duration,
    tell: &(dyn Fn(ClusterEvent) + Send + Sync),
) -> Result<(), String> {
    let text = |error: tokio_postgres::Error| error.to_string();
    let tls = tls::connector(&url.tls).map_err(|error| error.to_string())?;
    let (client, mut connection) = url.config.connect(tls).await.map_err(text)?;
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let sending = async {
        client.batch_execute(&connection_settings()).await.map_err(text)?;
        client.batch_execute(&RowScope::Shared.for_connection()).await.map_err(text)?;
        client.batch_execute(&format!("LISTEN {CHANNEL}")).await.map_err(text)?;
        tell(ClusterEvent::Connected);
        let heartbeat = client.prepare(HEARTBEAT).await.map_err(text)?;
        loop {
            ticks.tick().await;
            tell(ClusterEvent::HeartbeatSent);
            let row =
                tokio::time::timeout(every * 2, client.query_one(&heartbeat, &[&node.as_str()]))
                    .await
                    .map_err(|_| "a heartbeat was not answered".to_owned())?
                    .map_err(text)?;
            tell(ClusterEvent::Heartbeat { others: row.get(0) });
        }
    };
    let receiving = async {
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(note))) => {
                    if let Some(sessions) = notified(note.payload(), node) {
                        tell(ClusterEvent::Notified(sessions));
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(text(error)),
                None => return Err("the server closed the connection".to_owned()),
            }
        }
    };
    tokio::select! {
        ended = sending => ended,
        ended = receiving => ended,
    }
}

/// Returns the sessions of a notification from another node.
fn notified(payload: &str, node: &NodeId) -> Option<Vec<SessionId>> {
    let mut parts = payload.split(' ');
    if parts.next()? == node.as_str() {
        return None;
    }
    Some(parts.filter_map(SessionId::presented).collect())
}
