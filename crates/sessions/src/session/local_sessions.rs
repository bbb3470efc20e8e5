//! Changes to the sessions whose lease this node holds.

use std::sync::Arc;
use std::time::Duration;

use hob_agents::client_tools::ToolOutput;
use hob_domain::session::{
    DeleteFilter, EventKind, SessionId, TurnEnding, TurnState, TurnUsage, turn_event,
};
use hob_domain::{AppName, CommandOutcome, SessionCommand, StoreError, Timestamp};
use serde_json::{Value, json};

use super::actor::{Actor, AgentStart};
use super::context::SessionContext;
use super::error::SessionError;
use super::events::audit_event;
use super::handle::{AnswerError, CancelTarget, OpenSession, SessionHandle};
use super::node_link::NodeLink;
use super::registry::Registry;
use super::settings;

/// Pause before another attempt to store that a session is closed.
const CLOSE_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The sessions that are open on this node.
pub(super) struct LocalSessions {
    pub context: Arc<SessionContext>,
    pub registry: Registry,
    link: Arc<dyn NodeLink>,
}

impl LocalSessions {
    pub fn new(context: Arc<SessionContext>, link: Arc<dyn NodeLink>) -> LocalSessions {
        LocalSessions { context, registry: Registry::default(), link }
    }

    /// Opens a session on this node and starts its actor.
    pub fn open(&self, session: OpenSession<'_>, start: AgentStart) -> Arc<SessionHandle> {
        let (handle, inbox) = SessionHandle::new(session, self.link.clone());
        self.registry.insert(handle.clone());
        let actor = Actor::new(self.context.clone(), handle.clone(), inbox, start);
        self.context.options.runtime.tasks.spawn(actor.run());
        handle
    }

    /// Executes a command on a session of this node.
    pub async fn execute(
        &self,
        handle: &Arc<SessionHandle>,
        command: SessionCommand,
    ) -> Result<CommandOutcome, SessionError> {
        match command {
            SessionCommand::Cancel => {
                let turn = self.cancel(handle).await?;
                Ok(CommandOutcome::Cancelled { turn })
            }
            SessionCommand::Close => {
                let now = self.close(handle).await?;
                Ok(CommandOutcome::Closed { now })
            }
            SessionCommand::Answer { request, option, content, message } => {
                answer(handle, &request, &option, content, message)?;
                Ok(CommandOutcome::Answered)
            }
            SessionCommand::ToolResult { call, content, is_error } => {
                self.return_result(handle, &call, ToolOutput { content, is_error }).await?;
                Ok(CommandOutcome::Answered)
            }
            SessionCommand::Settings => settings::answer(&self.context, handle, None).await,
            SessionCommand::Configure { change } => {
                settings::answer(&self.context, handle, Some(change)).await
            }
            SessionCommand::Unknown => {
                let message = "the command comes from another version of Hob".to_owned();
                Ok(CommandOutcome::Failed { message })
            }
        }
    }

    /// Returns the result of one of the caller's tools to the agent.
    async fn return_result(
        &self,
        handle: &SessionHandle,
        call: &str,
        output: ToolOutput,
    ) -> Result<(), SessionError> {
        let claimed = handle.tools().and_then(|exchange| exchange.claim(call));
        let claimed = claimed.ok_or(SessionError::NotFound)?;
        let body = json!({"call_id": call, "status": "answered", "is_error": output.is_error,
            "content": output.content});
        let event = audit_event(EventKind::ToolCall, handle.running_turn(), body);
        if let Err(error) = handle.append(self.context.store().as_ref(), vec![event]).await {
            let content = json!("the result could not be recorded");
            claimed.answer(ToolOutput { content, is_error: true });
            return Err(error.into());
        }
        claimed.answer(output);
        Ok(())
    }

    /// Cancels the running turn, else the first one that waits. Returns its number once it is over.
    async fn cancel(&self, handle: &Arc<SessionHandle>) -> Result<Option<u32>, SessionError> {
        // A turn that another node has just accepted can be cancelled as well.
        self.refresh_queue(handle).await;
        match handle.cancel() {
            CancelTarget::Nothing => Ok(None),
            CancelTarget::Running(running) => {
                let body = json!({"turn_index": running.turn});
                let event = audit_event(EventKind::Cancel, Some(running.turn), body);
                handle.append(self.context.store().as_ref(), vec![event]).await?;
                running.over.cancelled().await;
                Ok(Some(running.turn))
            }
            CancelTarget::Queued(turn) => {
                if let Err(error) = self.end_queued_turn(handle, turn).await {
                    handle.requeue(turn);
                    return Err(error.into());
                }
                Ok(Some(turn))
            }
        }
    }

    /// Stores that a waiting turn was cancelled.
    async fn end_queued_turn(&self, handle: &SessionHandle, turn: u32) -> Result<(), StoreError> {
        let reason = Some("cancelled");
        let events = vec![
            audit_event(EventKind::Cancel, Some(turn), json!({"turn_index": turn})),
            turn_event(turn, TurnState::Cancelled, reason),
        ];
        let ending = TurnEnding {
            state: TurnState::Cancelled,
            text: String::new(),
            stop_reason: reason.map(str::to_owned),
            error: None,
            usage: TurnUsage::default(),
            events,
            agent_session: None,
            outbox: None,
        };
        let ended = handle.publish(async {
            let now = Timestamp::now();
            let stored = self.context.store().end_turn(&handle.lease, turn, ending, now).await?;
            Ok(((), stored.unwrap_or_default()))
        });
        ended.await
    }

    async fn close(&self, handle: &Arc<SessionHandle>) -> Result<bool, SessionError> {
        let _intake = handle.lock_intake().await;
        if handle.is_lost() {
            return Err(StoreError::Lost.into());
        }
        self.close_locked(handle, EventKind::Close).await
    }

    /// Closes a session without activity since `since`. Returns `false` if it is not idle.
    pub async fn close_idle(
        &self,
        handle: &Arc<SessionHandle>,
        since: Timestamp,
    ) -> Result<bool, SessionError> {
        let _intake = handle.lock_intake().await;
        // Another node may have just accepted a turn.
        self.refresh_queue(handle).await;
        let session = self.context.session(&handle.app, &handle.id).await?;
        let last = session.last_turn_at.unwrap_or(session.created_at);
        if !handle.is_idle() || last >= since {
            return Ok(false);
        }
        self.close_locked(handle, EventKind::SweepClose).await
    }

    /// Closes a session whose intake the caller has locked, so that no turn is accepted meanwhile.
    async fn close_locked(
        &self,
        handle: &Arc<SessionHandle>,
        kind: EventKind,
    ) -> Result<bool, SessionError> {
        handle.closing.cancel();
        if let CancelTarget::Running(running) = handle.cancel() {
            running.over.cancelled().await;
        }
        let (store, id) = (self.context.store(), &handle.id);
        let closed = loop {
            let closing = handle.publish(async {
                let event = audit_event(kind.clone(), None, json!({}));
                let closed = store.close_session(id, event, Timestamp::now()).await?;
                Ok((closed, Vec::new()))
            });
            let error = match closing.await {
                Ok(closed) => break closed,
                // Another node has the session and closes it.
                Err(StoreError::Lost) => return Err(StoreError::Lost.into()),
                Err(error) => error,
            };
            tracing::error!(%error, session = %id, "failed to close a session");
            // The agent is already ending, so the session cannot stay open.
            tokio::select! {
                () = tokio::time::sleep(CLOSE_RETRY_INTERVAL) => {}
                () = self.context.options.runtime.ending.cancelled() => return Err(error.into()),
            }
        };
        handle.announce_reload();
        self.registry.remove(handle);
        tracing::info!(app = %handle.app, session = %id, %kind, "session closed");
        Ok(closed)
    }

    /// Adds turns to the queue that other nodes have accepted for this session.
    pub async fn refresh_queue(&self, handle: &SessionHandle) {
        match self.context.queued_turns(&handle.app, &handle.id).await {
            Ok(turns) => handle.enqueue_missing(&turns),
            Err(error) => {
                tracing::debug!(%error, session = %handle.id, "failed to read the queued turns");
                self.link.poll_soon();
            }
        }
    }

    /// Ends a session whose lease this node has lost: its agent ends and nothing more is written.
    /// The handle stays until the agent is gone, so that this node does not take the session again
    /// before that.
    pub fn lose(&self, handle: &Arc<SessionHandle>) {
        if handle.mark_lost() {
            let (session, fence) = (&handle.id, handle.lease.fence);
            tracing::warn!(%session, fence, "lost the lease of a session");
        }
        handle.release_permit();
        if handle.ended.is_cancelled() {
            self.registry.remove(handle);
        }
    }

    /// Removes what a deleted session left here, and lets other nodes do the same.
    pub fn clean_up_deleted(&self, id: &SessionId) {
        self.context.remove_workspace(id);
        self.link.notify(id);
    }

    /// Ends and deletes all sessions of a removed app.
    pub async fn delete_app(&self, app: &AppName) -> Result<(), SessionError> {
        let handles = self.registry.remove_app(app);
        for handle in &handles {
            handle.closing.cancel();
            handle.release_permit();
        }
        for handle in &handles {
            handle.ended.cancelled().await;
        }
        let removed = DeleteFilter::App(app.clone());
        for id in self.context.store().delete_sessions(&removed).await? {
            self.clean_up_deleted(&id);
        }
        let folder = self.context.options.claude.join("apps").join(app.as_str());
        self.context.options.runtime.discard(&folder);
        Ok(())
    }

    /// Ends sessions that another process has deleted together with their app.
    pub async fn drop_deleted(&self) {
        for handle in self.registry.all() {
            if let Ok(None) = self.context.store().session(&handle.app, &handle.id).await {
                handle.closing.cancel();
                self.registry.remove(&handle);
                self.context.remove_workspace(&handle.id);
            }
        }
    }
}

/// Answers a permission request of a session.
fn answer(
    handle: &SessionHandle,
    request: &str,
    option: &str,
    content: Option<Value>,
    message: Option<String>,
) -> Result<(), SessionError> {
    handle.answer(request, option, content, message).map_err(|error| match error {
        AnswerError::UnknownRequest => SessionError::NotFound,
        AnswerError::UnknownOption { options } => {
            SessionError::Invalid(format!("option: must be one of {}", options.join(", ")))
        }
        AnswerError::InvalidContent(error) => SessionError::Invalid(error),
    })
}
