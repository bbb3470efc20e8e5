//! The ledger, wherever the settings say it is kept.

use std::sync::Arc;

use hob_domain::{DataKey, LedgerStore};
use hob_store::{Ledger, PostgresLedger};

use crate::settings::Resolved;

/// Opens it, making it and bringing its schema up to date where needed.
pub async fn open(settings: &Resolved, key: &DataKey) -> anyhow::Result<Arc<dyn LedgerStore>> {
    Ok(match &settings.store {
        Some(url) => Arc::new(PostgresLedger::connect(url).await?),
        None => Arc::new(Ledger::open(&settings.home.ledger(), key)?),
    })
}
