//! What callers send to the actor of a session.

use hob_agents::driver::SettingRefusal;
use hob_domain::SettingChange;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

/// The receiving ends of a session's actor.
pub(super) struct ActorInbox {
    pub answers: mpsc::UnboundedReceiver<PermissionAnswer>,
    pub settings: mpsc::UnboundedReceiver<SettingsRequest>,
}

/// A caller's request for the agent's settings.
pub(super) struct SettingsRequest {
    /// What to change before they are returned.
    pub change: Option<SettingChange>,
    pub reply: oneshot::Sender<Result<Value, SettingRefusal>>,
}

/// A caller's answer to an agent's permission request.
#[derive(Debug)]
pub(super) struct PermissionAnswer {
    pub ask: String,
    pub option: String,
    /// The fields of the form that the request has.
    pub content: Option<Value>,
    /// What the caller tells the agent with a rejection.
    pub message: Option<String>,
}
