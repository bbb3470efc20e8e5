//! Chooses the module that starts an agent.

use hob_domain::Driver;
use hob_domain::session::Permissions;

use super::live_agent::LiveAgent;
use super::start::{StartError, StartOptions};
use super::{acp, claude_stream, claude_tui};

/// Returns whether agents of this driver may offer settings to a session with these permissions. Claude Code in a terminal
/// offers none: in other modes it would open dialogs there, which nobody could answer.
pub fn has_settings(driver: Driver, permissions: Permissions) -> bool {
    match driver {
        Driver::Acp | Driver::Demo | Driver::ClaudeStream => true,
        Driver::ClaudeTui => permissions == Permissions::Ask,
    }
}

/// Starts an agent with its driver. A missing program is reported with the install advice.
pub async fn start(driver: Driver, options: StartOptions) -> Result<LiveAgent, StartError> {
    let install = options.install.clone();
    let started = match driver {
        Driver::Acp | Driver::Demo => acp::start(options).await,
        Driver::ClaudeStream => claude_stream::start(options).await,
        // A permission dialog can only be answered on the screen, and rejecting it there ends the turn.
        Driver::ClaudeTui if options.permissions == Permissions::Ask => {
            claude_stream::start(options).await
        }
        Driver::ClaudeTui => claude_tui::start(options).await,
    };
    started.map_err(|error| match error {
        StartError::NotInstalled(what) => StartError::NotInstalled(format!("{what}. {install}")),
        error => error,
    })
}
