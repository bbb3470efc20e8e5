//! The owner's acts of commands that do not go through the server, in the audit log.

use hob_domain::Timestamp;
use serde_json::json;

use crate::migration_guard::Opener;
use crate::printer::errln;
use crate::settings::Resolved;
use crate::{keys, ledger, memory};

/// Writes an act into the audit log. A home that cannot be written must stay readable, so a failure is a warning.
pub fn record(settings: &Resolved, action: &str, target: &str) {
    if let Err(error) = append(settings, action, target) {
        errln!("hob: warning: cannot write {action} into the audit log: {error:#}");
    }
}

fn append(settings: &Resolved, action: &str, target: &str) -> anyhow::Result<()> {
    let _shared = settings.home.share_store()?;
    let key = keys::data_key(&settings.home, settings.passphrase.as_deref())?;
    memory::runtime()?.block_on(async {
        let store = ledger::open(settings, &key, Opener::Command).await?.ledger;
        store.append_audit(Timestamp::now(), action, target, &json!({})).await?;
        Ok(())
    })
}
