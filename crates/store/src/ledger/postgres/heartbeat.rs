//! A connection of its own on which a node is heard of and hears. Beats must not wait for a place among those of
//! everybody else: a node that is busy would count as dead.

use std::future::poll_fn;
use std::time::Duration;

use hob_domain::session::SessionId;
use hob_domain::{ClusterEvent, NodeId};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_postgres::AsyncMessage;

use super::PostgresLedger;
use crate::postgres::connections::{beginning, tls};

/// The channel of all nodes.
pub(super) const CHANNEL: &str = "hob";
/// After so long without a connection another is tried.
const AGAIN: Duration = Duration::from_millis(300);

/// The row is the lease. Whoever has not been heard of for a day is of no interest to anybody.
const BEAT: &str = "WITH old AS (
         DELETE FROM hob.nodes WHERE heartbeat_at < clock_timestamp() - interval '1 day' AND id <> $1
     ), beat AS (
         INSERT INTO hob.nodes (id, heartbeat_at) VALUES ($1, clock_timestamp())
         ON CONFLICT (id) DO UPDATE SET heartbeat_at = clock_timestamp()
     ) SELECT EXISTS (SELECT 1 FROM hob.nodes
         WHERE id <> $1 AND heartbeat_at > clock_timestamp() - interval '1 minute')";

impl PostgresLedger {
    pub(super) async fn keep_attending(
        &self,
        node: &NodeId,
        every: Duration,
        tell: &(dyn Fn(ClusterEvent) + Send + Sync),
    ) {
        loop {
            if let Err(error) = self.attend_once(node, every, tell).await {
                tell(ClusterEvent::Disconnected(error));
            }
            sleep(AGAIN).await;
        }
    }

    /// Until the connection is lost.
    async fn attend_once(
        &self,
        node: &NodeId,
        every: Duration,
        tell: &(dyn Fn(ClusterEvent) + Send + Sync),
    ) -> Result<(), String> {
        let words = |error: tokio_postgres::Error| error.to_string();
        let tls = tls(&self.url.tls).map_err(|error| error.to_string())?;
        let (client, mut connection) = self.url.config.connect(tls).await.map_err(words)?;
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let attending = async {
            client.batch_execute(&beginning()).await.map_err(words)?;
            client.batch_execute(&format!("LISTEN {CHANNEL}")).await.map_err(words)?;
            tell(ClusterEvent::Connected);
            let beat = client.prepare(BEAT).await.map_err(words)?;
            loop {
                ticks.tick().await;
                tell(ClusterEvent::HeartbeatSent);
                let row =
                    tokio::time::timeout(every * 2, client.query_one(&beat, &[&node.as_str()]))
                        .await
                        .map_err(|_| "a beat was not answered".to_owned())?
                        .map_err(words)?;
                tell(ClusterEvent::Heartbeat { others: row.get(0) });
            }
        };
        let hearing = async {
            loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notification(note))) => {
                        if let Some(sessions) = rung(note.payload(), node) {
                            tell(ClusterEvent::Notified(sessions));
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(words(error)),
                    None => return Err("it was closed".to_owned()),
                }
            }
        };
        tokio::select! {
            ended = attending => ended,
            ended = hearing => ended,
        }
    }
}

/// The sessions of a notification that is not our own.
fn rung(payload: &str, node: &NodeId) -> Option<Vec<SessionId>> {
    let mut words = payload.split(' ');
    if words.next()? == node.as_str() {
        return None;
    }
    Some(words.filter_map(SessionId::presented).collect())
}
