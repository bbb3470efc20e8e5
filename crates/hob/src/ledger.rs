//! Opens the ledger that the settings choose, and gives this server its node id.

use std::sync::Arc;

use hob_domain::{ClusterStore, DataKey, LedgerStore, NodeId};
use hob_files::owned;
use hob_sessions::session::ClusterOptions;
use hob_store::PostgresLedger;

use crate::inventory::Inventory;
use crate::known_databases;
use crate::migration_guard::{Opener, open_ledger};
use crate::settings::Resolved;

/// An open ledger.
pub struct OpenLedger {
    pub ledger: Arc<dyn LedgerStore>,
    /// The cluster; `None` for a ledger in a file.
    pub cluster: Option<ClusterOptions>,
}

/// Opens the ledger. Creates it, or migrates its schema, if needed; a command does not migrate it while a server runs.
pub async fn open(
    settings: &Resolved,
    key: &DataKey,
    opener: Opener,
) -> anyhow::Result<OpenLedger> {
    let Some(url) = &settings.values.store_url else {
        let inventory = Inventory::new(&settings.home);
        inventory.check_ledger(key)?;
        let ledger = Arc::new(open_ledger(&settings.home, key, opener)?);
        // A full disk must not keep anyone from reading. A later start notes it.
        if let Err(error) = inventory.note_ledger() {
            tracing::warn!(%error, "cannot note that there is a ledger");
        }
        return Ok(OpenLedger { ledger, cluster: None });
    };
    let ledger =
        Arc::new(PostgresLedger::connect(url, key, settings.values.store_encrypt.into()).await?);
    known_databases::check(&settings.home, url, &ledger).await?;
    let store: Arc<dyn ClusterStore> = ledger.clone();
    let cluster = Some(ClusterOptions {
        store,
        lease: settings.values.cluster_lease,
        max_live: settings.values.cluster_max_live,
        earlier: None,
    });
    Ok(OpenLedger { ledger, cluster })
}

impl OpenLedger {
    /// Returns a node id for this run of the server. The cluster may take over the leases of the
    /// previous run on this home at once: this process has the serve lock, so that one is gone.
    pub fn begin_node(&mut self, settings: &Resolved) -> anyhow::Result<NodeId> {
        let node = NodeId::from_random(uuid::Uuid::new_v4().into_bytes());
        if let Some(cluster) = &mut self.cluster {
            let path = settings.home.node();
            let earlier = owned::read_to_string(&path).unwrap_or_default();
            cluster.earlier = NodeId::stored(earlier.trim());
            hob_files::write_over(&path, node.as_str().as_bytes(), 0o600)?;
        }
        Ok(node)
    }
}
