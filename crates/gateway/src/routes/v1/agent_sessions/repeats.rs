//! Requests that a caller repeats under their idempotency key.

use hob_domain::AppName;
use hob_domain::session::{IdempotencyKey, SessionId};
use hob_sessions::session::SessionError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::steps::{Step, StepKind};
use crate::error::ApiError;
use crate::state::Gateway;

/// The idempotency key of a request, as the description of a session has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RequestKey {
    key: String,
    digest: String,
}

impl RequestKey {
    pub fn of(key: &IdempotencyKey) -> RequestKey {
        RequestKey { key: key.key.clone(), digest: key.digest.clone() }
    }

    /// Returns whether a request with this key repeats the earlier one. Fails if it is another request.
    pub fn is_repeated_by(&self, key: &IdempotencyKey) -> Result<bool, SessionError> {
        match self.key == key.key {
            true if self.digest != key.digest => Err(SessionError::OtherBody),
            is_repeat => Ok(is_repeat),
        }
    }
}

/// An interrupt that a caller may repeat.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SentInterrupt {
    pub request: RequestKey,
    /// The id of the event, if the API shows one.
    pub event_id: Option<String>,
}

/// Returns the interrupt that an earlier request with this key sent, if any.
pub(super) fn earlier_interrupt(
    sent: &[SentInterrupt],
    key: Option<&IdempotencyKey>,
) -> Result<Option<SentInterrupt>, SessionError> {
    let Some(key) = key else { return Ok(None) };
    for interrupt in sent {
        if interrupt.request.is_repeated_by(key)? {
            return Ok(Some(interrupt.clone()));
        }
    }
    Ok(None)
}

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
