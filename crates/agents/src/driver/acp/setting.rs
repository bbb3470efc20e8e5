//! Changes of an agent's settings: its mode and its options.

use std::future::Future;
use std::pin::Pin;

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    SessionConfigOptionValue, SessionId, SetSessionConfigOptionRequest, SetSessionModeRequest,
};
use agent_client_protocol::{Agent, Error};
use hob_domain::{OptionValue, SettingChange};
use serde_json::{Value, json};

use crate::driver::settings::AgentSettings;

/// A change that the agent has not answered yet.
pub(super) struct SentChange {
    /// The id of the request.
    pub id: Option<Value>,
    /// The agent's answer. Once it is there, the settings show the change.
    pub answer: Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>,
}

/// Sends a change to the agent.
pub(super) fn send(
    wire: &ConnectionTo<Agent>,
    session: &SessionId,
    change: &SettingChange,
    settings: &AgentSettings,
) -> SentChange {
    let settings = settings.clone();
    match change {
        SettingChange::Mode { mode } => {
            let request = SetSessionModeRequest::new(session.clone(), mode.clone());
            let sent = wire.send_request(request);
            let id = serde_json::to_value(sent.raw_id()).ok();
            let mode = mode.clone();
            let answer = Box::pin(async move {
                sent.block_task().await?;
                settings.set_mode(&mode);
                Ok::<(), Error>(())
            });
            SentChange { id, answer }
        }
        SettingChange::Option { option, value } => {
            let value = match value {
                OptionValue::Flag(is_on) => SessionConfigOptionValue::boolean(*is_on),
                OptionValue::Choice(choice) => SessionConfigOptionValue::value_id(choice.clone()),
            };
            let request =
                SetSessionConfigOptionRequest::new(session.clone(), option.clone(), value);
            let sent = wire.send_request(request);
            let id = serde_json::to_value(sent.raw_id()).ok();
            let answer = Box::pin(async move {
                let answer = sent.block_task().await?;
                settings.set_config_options(json!(answer.config_options));
                Ok::<(), Error>(())
            });
            SentChange { id, answer }
        }
    }
}
