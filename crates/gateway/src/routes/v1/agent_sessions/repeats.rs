//! Requests that a caller repeats under their idempotency key.

use hob_domain::AppName;
use hob_domain::session::{IdempotencyKey, SessionId};
use serde_json::Value;

use super::steps::{Step, StepKind};
use crate::error::ApiError;
use crate::state::Gateway;

/// Returns the turn that an earlier request with this key started, if any.
pub(super) async fn earlier_turn(
    gateway: &Gateway,
    app: &AppName,
    id: &SessionId,
    key: Option<&IdempotencyKey>,
) -> Result<Option<u32>, ApiError> {
    match key {
        Some(key) => Ok(gateway.sessions.find_repeat(app, id, key).await?),
        None => Ok(None),
    }
}

/// Returns whether a call of one of the caller's tools has this result already.
pub(super) fn has_result(steps: &[Step], call: &str, content: &Value, is_error: bool) -> bool {
    steps.iter().any(|step| match &step.kind {
        StepKind::ClientToolEnded { call: ended, content: known, is_error: was_error, .. } => {
            ended == call && known == content && *was_error == is_error
        }
        _ => false,
    })
}

/// Returns whether the permission request of a tool call was answered this way already. `call` is the number of the
/// call's event.
pub(super) fn has_answer(steps: &[Step], call: u64, is_allowed: bool) -> bool {
    steps.iter().any(|step| match &step.kind {
        StepKind::PermissionAnswered { call: answered, is_allowed: was_allowed, .. } => {
            *answered == call && *was_allowed == is_allowed
        }
        _ => false,
    })
}
