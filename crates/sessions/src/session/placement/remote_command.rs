//! Commands to sessions of other nodes, carried by the ledger.
//!
//! A command is stored in the ledger, where the lease holder finds it, and its outcome is read from
//! there. Every command may be executed twice without harm.

use std::time::Duration;

use hob_domain::session::SessionId;
use hob_domain::{AppName, CommandFilter, CommandOutcome, RemoteCommand, SessionCommand};

use super::super::error::SessionError;
use super::membership::Membership;

/// How often the outcome is looked up without a notification.
const OUTCOME_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Makes a command with a random id.
pub(super) fn new(app: &AppName, session: &SessionId, command: SessionCommand) -> RemoteCommand {
    RemoteCommand {
        id: uuid::Uuid::new_v4().simple().to_string(),
        app: app.clone(),
        session: session.clone(),
        body: command,
        outcome: None,
    }
}

/// Sends a command to the lease holder and waits for its outcome. Returns `None` if none came
/// within the lease time: another node may hold the session by now.
pub(super) async fn send(
    membership: &Membership,
    command: &RemoteCommand,
) -> Result<Option<CommandOutcome>, SessionError> {
    let store = membership.store();
    let mut news = membership.watch(&command.session);
    store.enqueue_command(command).await?;
    store.notify(&membership.node, std::slice::from_ref(&command.session)).await?;
    let filter = CommandFilter::Id(command.id.clone());
    let timeout = membership.options.lease.max(OUTCOME_POLL_INTERVAL * 2);
    let deadline = tokio::time::Instant::now() + timeout;
    loop {
        let found = store.commands(&filter).await?.pop();
        if let Some(outcome) = found.and_then(|command| command.outcome) {
            return Ok(Some(outcome));
        }
        if tokio::time::Instant::now() >= deadline {
            return Ok(None);
        }
        let _ = tokio::time::timeout(OUTCOME_POLL_INTERVAL, news.changed()).await;
    }
}

/// Stores the outcome of a command that another node sent, and notifies that node.
pub(super) async fn report(
    membership: &Membership,
    command: &RemoteCommand,
    outcome: &CommandOutcome,
) {
    match membership.store().complete_command(&command.id, outcome).await {
        Ok(()) => {
            let sessions = std::slice::from_ref(&command.session);
            let _ = membership.store().notify(&membership.node, sessions).await;
        }
        Err(error) => tracing::warn!(%error, "failed to store the outcome of a remote command"),
    }
}
