//! The settings of a session's agent: read, and changed by a caller.

use std::time::Duration;

use hob_agents::driver::{self, AgentSettings, SettingRefusal};
use hob_domain::session::EventKind;
use hob_domain::{CommandOutcome, SettingChange, StoreError, StoredConversation};
use serde_json::{Value, json};

use super::context::SessionContext;
use super::error::SessionError;
use super::events::audit_event;
use super::handle::SessionHandle;

/// How long a caller waits for the agent's settings. An agent that does not run is started.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(30);
/// The code of JSON-RPC for a failure.
const INTERNAL_ERROR: i64 = -32603;

/// What came of a change of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangedSettings {
    /// The agent's settings after the change.
    Changed(Value),
    Refused(SettingRefusal),
}

/// Reads the settings of a session's agent, after a change if there is one. A change is stored, so that it is made again
/// when the agent is started again.
pub(super) async fn answer(
    context: &SessionContext,
    handle: &SessionHandle,
    change: Option<SettingChange>,
) -> Result<CommandOutcome, SessionError> {
    let spec = context.options.agents.get(&handle.setup.agent);
    if !spec.is_some_and(|spec| driver::has_settings(spec.driver, handle.setup.permissions)) {
        return Ok(match change {
            None => CommandOutcome::Settings { settings: AgentSettings::default().to_json() },
            Some(_) => refused(SettingRefusal::unsupported()),
        });
    }
    let request = async {
        // Changes are stored in the order in which the agent makes them.
        let changing = match &change {
            Some(_) => Some(handle.lock_settings().await),
            None => None,
        };
        (handle.request_settings(change.clone()).await, changing)
    };
    let failed = |text: &str| SettingRefusal { code: INTERNAL_ERROR, message: text.to_owned() };
    let (settings, _changing) = match tokio::time::timeout(SETTINGS_TIMEOUT, request).await {
        Ok((Ok(Ok(settings)), changing)) => (settings, changing),
        Ok((Ok(Err(refusal)), _)) => return Ok(refused(refusal)),
        // The new lease holder has an agent that answers.
        Ok((Err(_), _)) if handle.is_lost() => return Err(StoreError::Lost.into()),
        Ok((Err(_), _)) => return Ok(refused(failed("the agent ended before it answered"))),
        Err(_) => return Ok(refused(failed("the agent did not answer in time"))),
    };
    if let Some(change) = change {
        let store = context.store();
        let keep = |stored: &mut StoredConversation| stored.choices.apply(&change);
        handle.keep_conversation(store.as_ref(), keep).await?;
        let body = match &change {
            SettingChange::Mode { mode } => json!({"mode": mode}),
            SettingChange::Option { option, value } => json!({"option": option, "value": value,
                "config_options": settings["config_options"]}),
        };
        let event = audit_event(EventKind::Setting, None, body);
        handle.append(store.as_ref(), vec![event]).await?;
    }
    Ok(CommandOutcome::Settings { settings })
}

fn refused(refusal: SettingRefusal) -> CommandOutcome {
    CommandOutcome::Refused { code: refusal.code, message: refusal.message }
}
