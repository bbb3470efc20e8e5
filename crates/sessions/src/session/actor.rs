//! The one task of an open session: it owns the agent and runs the turns, one after another.

use std::sync::Arc;

use hob_domain::session::{CostTarget, EventKind, NewEvent, UsageNote};
use hob_domain::{StoreError, Timestamp};
use serde_json::json;

use super::agent_host::AgentHost;
use super::context::SessionContext;
use super::events::audit_event;
use super::handle::SessionHandle;
use super::inbox::{ActorInbox, SettingsRequest};
use super::permission::rejection;
use super::turn::TurnRunner;
use super::turn_reader::{TurnReader, idle_excess};
use hob_agents::driver::{AgentCommand, AgentEvent};

/// When a session's agent is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentStart {
    /// At once, so that it is warm when the first turn comes.
    Eager,
    OnFirstTurn,
}

/// The task of one open session.
pub(super) struct Actor {
    host: AgentHost,
    inbox: ActorInbox,
    start: AgentStart,
    /// The bytes of messages since the last turn.
    idle_bytes: usize,
    /// The last turn of the agent that is live.
    last_turn: Option<u32>,
}

impl Actor {
    pub fn new(
        context: Arc<SessionContext>,
        handle: Arc<SessionHandle>,
        inbox: ActorInbox,
        start: AgentStart,
    ) -> Actor {
        let host = AgentHost::new(context, handle);
        Actor { host, inbox, start, idle_bytes: 0, last_turn: None }
    }

    /// Runs turns until the session is closed or Hob stops.
    pub async fn run(mut self) {
        let handle = self.host.handle.clone();
        let options = &self.host.context.clone().options;
        let _ended = EndGuard(handle.clone());
        if self.start == AgentStart::Eager {
            self.warm_up().await;
        }
        while !handle.closing.is_cancelled() && !options.runtime.stopping.is_cancelled() {
            if let Some(running) = handle.start_next_turn() {
                self.last_turn = Some(running.turn);
                TurnRunner::new(&mut self.host, &mut self.inbox, running).run().await;
                self.idle_bytes = 0;
                continue;
            }
            tokio::select! {
                () = handle.wake.notified() => {}
                () = handle.closing.cancelled() => {}
                // Waiting turns are still there after the next start.
                () = options.runtime.stopping.cancelled() => {}
                () = options.runtime.ending.cancelled() => {}
                Some(request) = self.inbox.settings.recv() => self.handle_settings(request).await,
                event = self.host.next_event() => self.handle_idle_event(event).await,
            }
        }
        if let Some(mut agent) = self.host.agent.take() {
            // A conversation that continues on another node stays open.
            if handle.closing.is_cancelled() && !handle.is_lost() {
                agent.send(AgentCommand::Close);
            }
            agent.stop().await;
        }
        options.runtime.discard(&options.runtime.sandbox.temporary_of(handle.id.as_str()));
        if handle.is_shared() && !handle.closing.is_cancelled() {
            self.release_lease().await;
        }
    }

    /// Handles a request about the agent's settings between turns. One start of the agent counts for all requests that wait
    /// for it, and no agent is started for a caller that no longer waits.
    async fn handle_settings(&mut self, request: SettingsRequest) {
        if self.host.agent.is_some() || request.reply.is_closed() {
            return self.host.pass_settings(request);
        }
        self.warm_up().await;
        self.host.pass_settings(request);
        while let Ok(request) = self.inbox.settings.try_recv() {
            self.host.pass_settings(request);
        }
    }

    /// Starts the agent before the next turn. A failure is logged only: the next turn tries again
    /// and reports it.
    async fn warm_up(&mut self) {
        self.last_turn = None;
        let (handle, context) = (self.host.handle.clone(), self.host.context.clone());
        let started = tokio::select! {
            started = self.host.start_agent() => started,
            () = handle.closing.cancelled() => Ok(()),
            () = context.options.runtime.stopping.cancelled() => Ok(()),
            // A turn that waits for the agent may wait no longer than this.
            () = tokio::time::sleep(context.options.limits.turn_timeout) => Ok(()),
        };
        if let Err(error) = started {
            tracing::warn!(session = %handle.id, ?error, "failed to warm up an agent");
        }
    }

    /// Releases the lease when Hob stops, so that another node can continue the session at once.
    async fn release_lease(&self) {
        let handle = &self.host.handle;
        match self.host.context.store().release_lease(&handle.lease).await {
            Ok(()) | Err(StoreError::Lost) => {}
            // Other nodes take the session over once this node's heartbeats are old enough.
            Err(error) => {
                tracing::warn!(%error, session = %handle.id, "failed to release a session's lease");
            }
        }
    }

    /// Adds the cost that an agent names after the end of its turn to that turn.
    async fn add_late_cost(&mut self, message: &str) {
        let Some(index) = self.last_turn else { return };
        let mut reader = TurnReader::default();
        reader.push(message);
        let cost = reader.usage(&mut self.host.cost).cost_usd;
        if cost <= 0.0 {
            return;
        }
        let (handle, context) = (&self.host.handle, &self.host.context);
        let target = CostTarget::Turn { lease: handle.lease.clone(), index };
        if let Err(error) = context
            .store()
            .note_usage(
                &UsageNote::LateCost { target: target.clone(), cost_usd: cost },
                Timestamp::now(),
            )
            .await
        {
            tracing::error!(%error, session = %handle.id, "failed to store the cost of a turn");
        }
    }

    /// Handles what an agent does between turns.
    async fn handle_idle_event(&mut self, event: AgentEvent) {
        if let AgentEvent::Message(body) = &event {
            self.add_late_cost(body).await;
        }
        let (handle, context) = (&self.host.handle, &self.host.context);
        match event {
            AgentEvent::Message(body) => {
                self.idle_bytes += body.len();
                let excess = idle_excess(self.idle_bytes);
                let is_excess = excess.is_some();
                let event = match excess {
                    Some(text) => audit_event(EventKind::Notice, None, json!({"message": text})),
                    None => NewEvent { kind: EventKind::Message, turn: None, body },
                };
                if let Err(error) = handle.append(context.store().as_ref(), vec![event]).await {
                    tracing::error!(%error, session = %handle.id, "failed to store an event");
                }
                if is_excess {
                    (self.idle_bytes, self.last_turn) = (0, None);
                    self.host.stop_agent().await;
                }
            }
            AgentEvent::PermissionRequested(ask) => {
                let option = rejection(&ask);
                let request = ask.id;
                self.host.tell(AgentCommand::AnswerPermission {
                    request,
                    option,
                    content: None,
                    message: None,
                });
            }
            AgentEvent::Exited(gone) => {
                tracing::warn!(session = %handle.id, how = gone.status, "an idle agent ended");
                (self.host.agent, self.last_turn) = (None, None);
            }
            AgentEvent::TurnEnded(_) | AgentEvent::Stalled(_) => {}
        }
    }
}

/// Marks the session's actor as ended, however it ends.
struct EndGuard(Arc<SessionHandle>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.finish_turn();
        self.0.ended.cancel();
    }
}
