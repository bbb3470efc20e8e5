//! A cluster with the scripted agents, and clients of its nodes.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use hob_testkit::client::{ASYNC, assert_error, assert_gapless};
use hob_testkit::{Client, Cluster, ClusterOptions, TestHome};

use crate::backend::shared_postgres;

/// Locks out other tests that need the machine for themselves.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Options for nodes whose agents `acp` and `claude` are scripted; `more` comes first in `config.toml`.
pub fn options(nodes: usize, more: &str) -> ClusterOptions {
    let acp = TestHome::scripted_agent("acp", "acp", &["acp"]);
    let claude = TestHome::scripted_agent("claude", "claude-tui", &[]);
    ClusterOptions {
        nodes,
        lease_secs: 2,
        config: format!("{more}\n{acp}{claude}"),
        separate_disks: false,
        proxied: false,
    }
}

/// A cluster and an app on it.
pub struct Nodes {
    pub cluster: Cluster,
    pub token: String,
}

/// A cluster on the common database server.
pub fn nodes(options: &ClusterOptions) -> Nodes {
    let cluster = Cluster::on(shared_postgres(), options);
    let token = cluster.app("tests");
    Nodes { cluster, token }
}

impl Nodes {
    /// Returns the app's client of one node.
    pub fn on(&self, node: usize) -> Client {
        self.cluster.client(node, &self.token)
    }

    /// Returns the lease holder of a session according to the ledger.
    pub fn holder(&self, id: &str) -> Option<String> {
        let statement =
            format!("SELECT coalesce(holder, '') FROM hob.heads WHERE session = '{id}'");
        Some(self.cluster.sql(&statement)).filter(|holder| !holder.is_empty())
    }
}

/// No two nodes ever wrote to one session in turns: the fence never decreases along the log.
#[track_caller]
pub fn assert_fences(cluster: &Cluster) {
    let wrong = cluster.sql(
        "SELECT session, seq, before, fence FROM (
             SELECT session, seq, fence, lag(fence, 1, 0::bigint) OVER (PARTITION BY session ORDER BY seq) AS before
             FROM hob.events) e WHERE fence < before LIMIT 10",
    );
    assert_eq!(wrong, "", "events of an earlier holder after those of a later one");
}
