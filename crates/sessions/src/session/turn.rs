//! One turn, from the prompt to the last event.

use std::time::Duration;

use hob_domain::session::{
    EventKind, NewEvent, RememberedTurn, SessionTurn, TurnEnding, TurnState, turn_event,
};
use hob_domain::{StoreError, StoredConversation, Timestamp};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use super::agent_host::AgentHost;
use super::events::audit_event;
use super::handle::RunningTurn;
use super::inbox::{ActorInbox, PermissionAnswer};
use super::permission::{self, Decision, Settled};
use super::tool_calls::{call_event, next_tool_call};
use super::turn_progress::{
    NotPrompted, StopCause, TurnOutcome, TurnProgress, TurnStart, TurnStep,
};
use hob_agents::driver::{AgentCommand, AgentEvent, PermissionRequest};

/// How many messages are stored in one step.
const MAX_BATCH_EVENTS: usize = 128;
/// How many bytes of messages are stored in one step. One message may be larger.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// Pause before a failed write to the store is tried again.
const STORE_RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// How many agents are started for a turn if they end before they receive the prompt.
const MAX_AGENT_STARTS: usize = 2;

/// Runs one turn of a session.
pub(super) struct TurnRunner<'a> {
    host: &'a mut AgentHost,
    inbox: &'a mut ActorInbox,
    running: RunningTurn,
}

impl<'a> TurnRunner<'a> {
    pub fn new(
        host: &'a mut AgentHost,
        inbox: &'a mut ActorInbox,
        running: RunningTurn,
    ) -> TurnRunner<'a> {
        TurnRunner { host, inbox, running }
    }

    /// Runs the turn to its durable end, whatever happens.
    pub async fn run(mut self) {
        let index = self.running.turn;
        let handle = self.host.handle.clone();
        match self.store_start().await {
            TurnStart::Started => self.host.handle.announce_start(self.running.turn),
            TurnStart::Over | TurnStart::Postponed => return handle.finish_turn(),
        }
        let started = Instant::now();
        let (turn, outcome) = self.load_and_perform().await;
        self.host.context.counters.count_turn(outcome.state);
        let (state, ms) = (outcome.state.as_str(), started.elapsed().as_millis() as u64);
        let (app, session) = (&handle.app, &handle.id);
        let was_prompted = outcome.was_prompted;
        self.store_end(turn.as_ref(), outcome).await;
        self.host.keep_choices().await;
        if was_prompted && let Err(error) = self.host.folder().write_last_turn(index) {
            tracing::warn!(%error, session = %handle.id, "failed to write the last-turn marker");
        }
        handle.finish_turn();
        tracing::info!(%app, %session, turn = index, state, ms, "turn ended");
    }

    /// Reads the turn from the store and lets the agent work on it.
    async fn load_and_perform(&mut self) -> (Option<SessionTurn>, TurnOutcome) {
        let (context, handle) = (self.host.context.clone(), self.host.handle.clone());
        let failed = |text: &str| TurnOutcome::failed(TurnState::Failed, text);
        let mut read = context.turn(&handle.app, &handle.id, self.running.turn).await;
        // The agent has not been asked yet, so nothing is lost by waiting for the database.
        while let Err(StoreError::Unavailable(error)) = &read
            && !handle.is_lost()
        {
            tracing::error!(%error, session = %handle.id, "failed to read a turn; trying again");
            tokio::select! {
                () = sleep(STORE_RETRY_INTERVAL) => {}
                () = context.options.runtime.ending.cancelled() => break,
            }
            read = context.turn(&handle.app, &handle.id, self.running.turn).await;
        }
        let mut turn = match read {
            Ok(Some(turn)) => turn,
            Ok(None) => return (None, failed("the turn was deleted")),
            Err(error) => {
                tracing::error!(%error, session = %handle.id, "failed to read a turn");
                return (
                    None,
                    failed(
                        "the turn could not be read from the database; see the log of the server",
                    ),
                );
            }
        };
        let files = &context.options.files;
        let outcome = match files.local_paths(&handle.app, &turn.files).await {
            Ok(paths) => {
                turn.files = paths;
                self.perform(&turn).await
            }
            Err(error) => {
                tracing::error!(%error, session = %handle.id, "failed to fetch a turn's files");
                failed("the turn's files could not be fetched")
            }
        };
        (Some(turn), outcome)
    }

    /// Stores that the turn starts, and repeats that until it succeeds or Hob stops.
    async fn store_start(&self) -> TurnStart {
        let (context, handle) = (&self.host.context, &self.host.handle);
        let (store, index) = (context.store(), self.running.turn);
        let mut has_failed = false;
        loop {
            if handle.is_lost() {
                return TurnStart::Over;
            }
            let error = match store.start_turn(&handle.lease, index, Timestamp::now()).await {
                Ok(true) => return TurnStart::Started,
                Ok(false) if !has_failed => return TurnStart::Over,
                Err(StoreError::Lost) => {
                    handle.mark_lost();
                    return TurnStart::Over;
                }
                // An attempt that seemed to fail may have been stored, and only this node runs
                // turns here.
                Ok(false) => match context.turn(&handle.app, &handle.id, index).await {
                    Ok(Some(turn)) if turn.state == TurnState::Running => {
                        return TurnStart::Started;
                    }
                    Ok(_) => return TurnStart::Over,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            has_failed = true;
            tracing::error!(%error, session = %handle.id, "failed to store the start of a turn");
            tokio::select! {
                () = sleep(STORE_RETRY_INTERVAL) => {}
                () = context.options.runtime.ending.cancelled() => return TurnStart::Postponed,
            }
        }
    }

    /// Stores that the turn ended, and repeats that until it succeeds: the turn is not over before.
    async fn store_end(&mut self, turn: Option<&SessionTurn>, outcome: TurnOutcome) {
        let index = self.running.turn;
        let usage = outcome.reader.usage(&mut self.host.cost);
        let (context, handle) = (&self.host.context, &self.host.handle);
        // The end of a turn holds its text several times.
        let _permit = match outcome.reader.is_long() {
            true => context.long_turn_ends.acquire().await.ok(),
            false => None,
        };
        let mut events = outcome.last_events;
        events.push(turn_event(index, outcome.state, outcome.stop_reason.as_deref()));
        let outbox = turn.filter(|_| outcome.was_prompted).map(|turn| RememberedTurn {
            session_id: handle.id.to_string(),
            turn_index: index,
            cwd: handle.setup.cwd.clone(),
            agent: handle.setup.agent.to_string(),
            prompt: turn.rendered_prompt(),
            answers: outcome.reader.segments(),
            asked_at: turn.queued_at,
            ended_at: Timestamp::now(),
        });
        let ending = TurnEnding {
            state: outcome.state,
            text: outcome.reader.text(),
            stop_reason: outcome.stop_reason,
            error: outcome.error,
            usage,
            events,
            agent_session: None,
            outbox,
        };
        loop {
            let attempt = handle.publish(async {
                let now = Timestamp::now();
                let stored = context.store().end_turn(&handle.lease, index, ending.clone(), now);
                let stored = stored.await?;
                Ok((stored.is_some(), stored.unwrap_or_default()))
            });
            let error = match attempt.await {
                Ok(true) => return,
                // The turn is over already, perhaps by an attempt that seemed to fail and told no
                // listener.
                Ok(false) => return handle.announce_reload(),
                // The new lease holder has ended the turn, or the session was deleted.
                Err(StoreError::Lost) => return handle.announce_reload(),
                Err(error) => error,
            };
            tracing::error!(%error, session = %handle.id, "failed to store the end of a turn");
            tokio::select! {
                () = sleep(STORE_RETRY_INTERVAL) => {}
                // The next start marks the turn as interrupted.
                () = context.options.runtime.ending.cancelled() => return,
            }
        }
    }

    async fn perform(&mut self, turn: &SessionTurn) -> TurnOutcome {
        let deadline = Instant::now() + self.host.context.options.limits.turn_timeout;
        for _ in 0..MAX_AGENT_STARTS {
            if let Err(outcome) = self.ensure_agent(deadline).await {
                return outcome;
            }
            match self.converse(turn, deadline).await {
                Ok(outcome) => return outcome,
                Err(NotPrompted) => self.host.agent = None,
            }
        }
        TurnOutcome::failed(TurnState::Died, "the agent ended before it could be asked, twice")
    }

    /// Starts an agent if there is none, and stores its name for the conversation before the first
    /// prompt: from then on the conversation can be resumed.
    async fn ensure_agent(&mut self, deadline: Instant) -> Result<(), TurnOutcome> {
        let (context, handle) = (self.host.context.clone(), self.host.handle.clone());
        if self.host.agent.is_none() {
            let ending = &context.options.runtime.ending;
            let stopped = TurnOutcome::stopped;
            let started = tokio::select! {
                started = self.host.start_agent() => started,
                () = self.running.cancel.cancelled() => return Err(stopped(StopCause::Cancelled)),
                () = handle.closing.cancelled() => return Err(stopped(StopCause::Cancelled)),
                () = ending.cancelled() => return Err(stopped(StopCause::Shutdown)),
                () = sleep_until(deadline) => return Err(stopped(StopCause::TimedOut)),
            };
            started.map_err(TurnOutcome::start_failed)?;
        }
        let Some(agent) = &self.host.agent else { return Ok(()) };
        let name = agent.conversation.clone();
        if handle.conversation().as_deref() != Some(name.as_str()) {
            let keep = |stored: &mut StoredConversation| stored.name = Some(name);
            if let Err(error) = handle.keep_conversation(context.store().as_ref(), keep).await {
                tracing::error!(%error, session = %handle.id, "failed to store the conversation id");
                let text = "the ledger could not be written";
                return Err(TurnOutcome::failed(TurnState::Failed, text));
            }
        }
        Ok(())
    }

    /// Sends the prompt and follows the agent to the end of the turn.
    async fn converse(
        &mut self,
        turn: &SessionTurn,
        deadline: Instant,
    ) -> Result<TurnOutcome, NotPrompted> {
        let stall_after = self.host.context.options.limits.stall_after;
        let mut progress = TurnProgress::new(turn.index, stall_after);
        self.host.tell(AgentCommand::Prompt(turn.rendered_prompt()));
        // Answers to requests of an earlier turn mean nothing now.
        while self.inbox.answers.try_recv().is_ok() {}
        loop {
            match self.next_step(&progress, deadline).await {
                TurnStep::AgentGone => {
                    let text = "the agent has ended".to_owned();
                    return Ok(progress.take_outcome(TurnState::Died, None, Some(text)));
                }
                TurnStep::Agent(AgentEvent::Exited(gone))
                    if gone.prompt_unseen && !progress.has_output && progress.stop.is_none() =>
                {
                    return Err(NotPrompted);
                }
                TurnStep::Agent(event) => {
                    if let Some(outcome) = self.handle_event(&mut progress, event).await {
                        return Ok(outcome);
                    }
                }
                TurnStep::Answered(PermissionAnswer { ask, option, content, message }) => {
                    progress.asks.remove(&ask);
                    let answer = Settled { option: Some(option), content, message, by: "caller" };
                    self.settle_request(&mut progress, &ask, answer).await;
                }
                TurnStep::ToolCalled(call) => {
                    let is_recorded = self.record(call_event(turn.index, &call)).await;
                    if let Some(tools) = self.host.tool_exchange().filter(|_| !is_recorded) {
                        tools.refuse(&call.id, "the call could not be recorded");
                    }
                    progress.tool_calls.insert(call.id);
                }
                TurnStep::SettingsRequested(request) => self.host.pass_settings(request),
                TurnStep::RequestExpired(ask) => self.expire_request(&mut progress, &ask).await,
                TurnStep::Stalled => {
                    progress.has_stalled = true;
                    let text = "nothing has come from the agent for a while";
                    self.record_stall(&progress, text).await;
                }
                TurnStep::Stop(StopCause::Shutdown) => {
                    progress.stop = Some(StopCause::Shutdown);
                    return Ok(self.abandon(progress).await);
                }
                TurnStep::Stop(cause) => self.request_stop(&mut progress, cause).await,
                // Another node may run the session at any moment, so the agent gets no time to stop
                // by itself.
                TurnStep::LeaseLost => return Ok(self.abandon(progress).await),
                TurnStep::StopDeadline => return Ok(self.abandon(progress).await),
            }
        }
    }

    /// Waits for the next thing that concerns the turn.
    async fn next_step(&mut self, progress: &TurnProgress, deadline: Instant) -> TurnStep {
        let is_stopping = progress.stop.is_some();
        let tools = self.host.tool_exchange();
        let can_stall = progress.can_stall() && !tools.as_ref().is_some_and(|t| t.has_waiting());
        let AgentHost { context, handle, agent, .. } = &mut *self.host;
        let Some(agent) = agent else { return TurnStep::AgentGone };
        let ending = &context.options.runtime.ending;
        tokio::select! {
            event = agent.next_event() => TurnStep::Agent(event),
            Some(answer) = self.inbox.answers.recv() => TurnStep::Answered(answer),
            Some(request) = self.inbox.settings.recv() => TurnStep::SettingsRequested(request),
            call = next_tool_call(tools, &progress.tool_calls) => TurnStep::ToolCalled(call),
            ask = progress.next_expiry() => TurnStep::RequestExpired(ask),
            () = sleep_until(progress.stalls_at), if can_stall => TurnStep::Stalled,
            () = handle.lost.cancelled() => TurnStep::LeaseLost,
            () = self.running.cancel.cancelled(), if !is_stopping => {
                TurnStep::Stop(StopCause::Cancelled)
            }
            () = handle.closing.cancelled(), if !is_stopping => {
                TurnStep::Stop(StopCause::Cancelled)
            }
            () = ending.cancelled() => TurnStep::Stop(StopCause::Shutdown),
            () = sleep_until(deadline), if !is_stopping => TurnStep::Stop(StopCause::TimedOut),
            () = sleep_until(progress.stop_deadline), if is_stopping => TurnStep::StopDeadline,
        }
    }

    /// Tells the agent to end the turn, and refuses its open permission requests.
    async fn request_stop(&mut self, progress: &mut TurnProgress, cause: StopCause) {
        progress.request_stop(cause);
        self.host.tell(AgentCommand::Cancel);
        if let Some(tools) = self.host.tool_exchange() {
            tools.refuse_all("the turn was cancelled");
        }
        let asks: Vec<String> = progress.asks.drain().map(|(ask, _)| ask).collect();
        for ask in asks {
            self.settle_request(progress, &ask, Settled::by("cancel", None)).await;
        }
    }

    /// Handles an agent event, together with the messages that have arrived since. Returns the
    /// outcome if the event ended the turn.
    async fn handle_event(
        &mut self,
        progress: &mut TurnProgress,
        event: AgentEvent,
    ) -> Option<TurnOutcome> {
        let mut next = Some(event);
        let mut messages = Vec::new();
        let mut bytes = 0;
        while let Some(AgentEvent::Message(body)) = next {
            bytes += body.len();
            progress.reader.push(&body);
            self.host.context.counters.count_message();
            let notice = self.host.denial_notice(progress.turn, &body);
            let kind = EventKind::Message;
            messages.push(NewEvent { kind, turn: Some(progress.turn), body });
            messages.extend(notice);
            let has_room = messages.len() < MAX_BATCH_EVENTS && bytes < MAX_BATCH_BYTES;
            let agent = self.host.agent.as_mut().filter(|_| has_room);
            next = agent.and_then(|agent| agent.try_next_event());
        }
        progress.note_activity();
        progress.has_output |= !messages.is_empty();
        // The last message is stored with the end.
        if let Some(AgentEvent::TurnEnded(_) | AgentEvent::Exited(_)) = next {
            progress.last_events = messages;
        } else if !messages.is_empty()
            && let Err(outcome) = self.store_events(progress, messages).await
        {
            return Some(outcome);
        }
        if let Some(excess) = progress.reader.excess() {
            self.host.stop_agent().await;
            return Some(progress.take_outcome(TurnState::Failed, None, Some(excess)));
        }
        match next? {
            AgentEvent::Message(_) => None,
            AgentEvent::TurnEnded(result) => Some(progress.take_ended(result)),
            AgentEvent::Exited(gone) => {
                self.host.agent = None;
                Some(progress.take_died(&gone))
            }
            AgentEvent::PermissionRequested(ask) => {
                self.handle_request(progress, ask).await;
                None
            }
            AgentEvent::Stalled(text) => {
                progress.has_stalled = true;
                self.record_stall(progress, &text).await;
                None
            }
        }
    }

    /// Stores messages. Listeners must not receive what was not stored, so a failure ends the turn.
    async fn store_events(
        &mut self,
        progress: &mut TurnProgress,
        events: Vec<NewEvent>,
    ) -> Result<(), TurnOutcome> {
        let handle = &self.host.handle;
        let stored = handle.append(self.host.context.store().as_ref(), events).await;
        let Err(error) = stored else { return Ok(()) };
        tracing::error!(%error, session = %handle.id, "failed to store events");
        self.host.stop_agent().await;
        let text = "the ledger could not be written".to_owned();
        Err(progress.take_outcome(TurnState::Failed, None, Some(text)))
    }

    /// Answers a permission request by the session's policy, or puts it to the caller.
    async fn handle_request(&mut self, progress: &mut TurnProgress, ask: PermissionRequest) {
        let policy = self.host.handle.setup.permissions;
        let policy = permission::policy_for(&ask, policy, self.host.tool_exchange().as_deref());
        match permission::decide(policy, &ask) {
            _ if progress.stop.is_some() => {
                self.settle_request(progress, &ask.id, Settled::by("cancel", None)).await;
            }
            Decision::Answer(option) => {
                self.settle_request(progress, &ask.id, Settled::by("policy", option)).await;
            }
            Decision::AskCaller => {
                let event = permission::asked_event(progress.turn, &ask);
                let timeout = self.host.context.options.limits.permission_timeout;
                progress.asks.insert(ask.id.clone(), Instant::now() + timeout);
                self.host.handle.open_request(ask);
                self.record(event).await;
            }
        }
    }

    /// Rejects a permission request that the caller did not answer in time.
    async fn expire_request(&mut self, progress: &mut TurnProgress, ask: &str) {
        progress.asks.remove(ask);
        // A request that is no longer open was answered at the last moment.
        if let Some(ask) = self.host.handle.close_request(ask) {
            let option = permission::rejection(&ask);
            self.settle_request(progress, &ask.id, Settled::by("timeout", option)).await;
        }
    }

    /// Answers the agent's permission request, and records who decided.
    async fn settle_request(&mut self, progress: &mut TurnProgress, ask: &str, answer: Settled) {
        // Until now the user was silent, not the agent.
        progress.note_activity();
        self.host.handle.close_request(ask);
        let event = permission::answered_event(progress.turn, ask, &answer);
        let Settled { option, content, message, .. } = answer;
        let request = ask.to_owned();
        self.host.tell(AgentCommand::AnswerPermission { request, option, content, message });
        self.record(event).await;
    }

    async fn record_stall(&mut self, progress: &TurnProgress, text: &str) {
        let body = json!({"turn_index": progress.turn, "message": text});
        self.record(audit_event(EventKind::Stalled, Some(progress.turn), body)).await;
    }

    /// Appends an audit event and returns whether it was stored. The turn goes on if it was not.
    async fn record(&mut self, event: NewEvent) -> bool {
        let handle = &self.host.handle;
        let stored = handle.append(self.host.context.store().as_ref(), vec![event]).await;
        if let Err(error) = &stored {
            tracing::error!(%error, session = %handle.id, "failed to store an audit event");
        }
        stored.is_ok()
    }

    /// Stops an agent that does not end its turn. The next turn resumes its conversation.
    async fn abandon(&mut self, mut progress: TurnProgress) -> TurnOutcome {
        self.host.stop_agent().await;
        let cause = progress.stop.unwrap_or(StopCause::Shutdown);
        progress.take_stopped(cause)
    }
}
