//! The audit log of everything done with admin rights.

use hob_domain::Timestamp;
use serde_json::Value;

use crate::state::Gateway;

/// Targets come from requests; longer ones are cut.
const MAX_TARGET_CHARS: usize = 200;

/// Records an admin action. `detail` is an object without tokens and prompt texts.
///
/// It never fails: the action has happened or will happen, and the owner must be able to act when the disk
/// is full. An entry that cannot be stored is logged.
pub(crate) async fn record(gateway: &Gateway, action: &'static str, target: &str, detail: Value) {
    let target: String = target.chars().take(MAX_TARGET_CHARS).collect();
    tracing::info!(action, target, "audit");
    let stored = gateway.audit.append_audit(Timestamp::now(), action, &target, &detail).await;
    if let Err(error) = stored {
        tracing::error!(%error, action, target, "failed to store an audit entry");
    }
}
