//! The audit log of everything done with admin rights.

use hob_domain::Timestamp;
use serde_json::Value;

use crate::state::Gateway;

/// Targets come from requests; longer ones are cut.
const MAX_TARGET_CHARS: usize = 200;

/// Writes down that something was done. `detail` is an object without tokens and without words of
/// prompts.
///
/// It never fails: what it tells of has happened or will, and an owner must be able to end things
/// also when the disk is full. What could not be stored is in the log.
pub(crate) async fn record(gateway: &Gateway, action: &'static str, target: &str, detail: Value) {
    let target: String = target.chars().take(MAX_TARGET_CHARS).collect();
    tracing::info!(action, target, "audit");
    let stored = gateway.audit.append_audit(Timestamp::now(), action, &target, &detail).await;
    if let Err(error) = stored {
        tracing::error!(%error, action, target, "an audit entry could not be stored");
    }
}
