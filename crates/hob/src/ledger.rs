//! The ledger, wherever the settings say it is kept, and who we are on it.

use std::sync::Arc;

use hob_domain::{ClusterStore, DataKey, LedgerStore, NodeId};
use hob_sessions::session::ClusterOptions;
use hob_store::{Ledger, PostgresLedger};

use crate::settings::Resolved;

/// The ledger as it was opened.
pub struct Opened {
    pub ledger: Arc<dyn LedgerStore>,
    /// Where there may be others on it.
    pub cluster: Option<ClusterOptions>,
}

/// Opens it, making it and bringing its schema up to date where needed.
pub async fn open(settings: &Resolved, key: &DataKey) -> anyhow::Result<Opened> {
    let Some(url) = &settings.store else {
        let ledger = Arc::new(Ledger::open(&settings.home.ledger(), key)?);
        return Ok(Opened { ledger, cluster: None });
    };
    let ledger = Arc::new(PostgresLedger::connect(url).await?);
    let store: Arc<dyn ClusterStore> = ledger.clone();
    let cluster = Some(ClusterOptions {
        store,
        lease: settings.lease,
        max_live: settings.cluster_max_live,
        earlier: None,
    });
    Ok(Opened { ledger, cluster })
}

impl Opened {
    /// A name for this run of the server. What an earlier one on this home still holds may be taken at once: it is gone,
    /// since the home's lock is ours.
    pub fn begin_node(&mut self, settings: &Resolved) -> anyhow::Result<NodeId> {
        let node = NodeId::from_random(uuid::Uuid::new_v4().into_bytes());
        if let Some(cluster) = &mut self.cluster {
            let path = settings.home.node();
            let earlier = std::fs::read_to_string(&path).unwrap_or_default();
            cluster.earlier = NodeId::stored(earlier.trim());
            hob_files::write_over(&path, node.as_str().as_bytes(), 0o600)?;
        }
        Ok(node)
    }
}
