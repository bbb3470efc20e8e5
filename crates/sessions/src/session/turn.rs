//! One turn, from the prompt to the last event.

use std::time::Duration;

use hob_domain::session::{
    NewEvent, RememberedTurn, SessionTurn, TurnEnding, TurnState, turn_event,
};
use hob_domain::{StoreError, Timestamp};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use super::actor::Actor;
use super::handle::Running;
use super::permission::{self, Choice};
use super::sessions::audit;
use super::turn_progress::{End, Outcome, Talk, Unasked};
use hob_agents::driver::claude_print::last_line;
use hob_agents::driver::{AgentCommand, AgentEvent, PermissionRequest, StartError};

/// An agent that was told to break off gets this long; then it is ended.
const BREAK_OFF: Duration = Duration::from_secs(5);
/// How many messages are stored in one step.
const TOGETHER: usize = 128;
/// A store that can't be written is tried again after this.
const STORE_AGAIN: Duration = Duration::from_millis(500);

impl Actor {
    /// Runs a turn to its durable end, whatever happens.
    pub async fn run_turn(&mut self, running: Running) {
        let index = running.turn;
        let (store, id) = (self.options().store.clone(), self.entry.id.clone());
        let begun = match self.begin_turn(index).await {
            // It is over already, or waits for the next start.
            Some(false) | None => {
                self.entry.finish();
                return;
            }
            Some(true) => store.turn(&self.entry.app, &id, index).await,
        };
        let started = Instant::now();
        let (turn, outcome) = match begun {
            Ok(Some(mut turn)) => {
                let files = &self.options().files;
                let prompt = files.with_files_here(&self.entry.app, turn.prompt.clone()).await;
                let outcome = match prompt {
                    Ok(prompt) => {
                        turn.prompt = prompt;
                        self.perform(&turn, &running).await
                    }
                    Err(error) => {
                        tracing::error!(%error, session = %id, "a turn's files could not be fetched");
                        let text = "the turn's files could not be fetched";
                        Outcome::failed(TurnState::Failed, text)
                    }
                };
                (Some(turn), outcome)
            }
            Ok(None) => (None, Outcome::failed(TurnState::Failed, "the turn is gone")),
            Err(error) => {
                tracing::error!(%error, session = %id, "a turn could not be begun");
                (None, Outcome::failed(TurnState::Failed, "the ledger could not be read"))
            }
        };
        self.inner.counts.turn_ended(outcome.state);
        let (state, ms) = (outcome.state.as_str(), started.elapsed().as_millis() as u64);
        let said = outcome.asked;
        self.end_turn(index, turn.as_ref(), outcome).await;
        if said {
            self.note_last_here(index);
        }
        self.entry.finish();
        tracing::info!(app = %self.entry.app, session = %id, turn = index, state, ms, "a turn ended");
    }

    /// Stores the beginning, for as long as it takes. `None` when hob ends meanwhile.
    async fn begin_turn(&self, index: u32) -> Option<bool> {
        let (options, entry) = (self.options(), &self.entry);
        let mut tried = false;
        loop {
            if entry.is_lost() {
                return Some(false);
            }
            let begun = options.store.start_turn(&entry.lease, index, Timestamp::now()).await;
            let error = match begun {
                Ok(true) => return Some(true),
                Ok(false) if !tried => return Some(false),
                Err(StoreError::Lost) => {
                    entry.lose();
                    return Some(false);
                }
                // An attempt that seemed to fail may have been stored, and nobody but us runs turns here.
                Ok(false) => match options.store.turn(&entry.app, &entry.id, index).await {
                    Ok(turn) => return Some(turn.is_some_and(|t| t.state == TurnState::Running)),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            tried = true;
            tracing::error!(%error, session = %self.entry.id, "the beginning of a turn was not stored");
            tokio::select! {
                () = sleep(STORE_AGAIN) => {}
                () = options.ending.cancelled() => return None,
            }
        }
    }

    /// Stores the end, for as long as it takes: it is not over before that.
    async fn end_turn(&mut self, index: u32, turn: Option<&SessionTurn>, outcome: Outcome) {
        let usage = outcome.reading.usage(&mut self.cost);
        let mut events = outcome.last;
        events.push(turn_event(index, outcome.state, outcome.stop_reason.as_deref()));
        let outbox = turn.filter(|_| outcome.asked).map(|turn| RememberedTurn {
            session_id: self.entry.id.as_str().to_owned(),
            turn_index: index,
            cwd: self.entry.setup.cwd.clone(),
            agent: self.entry.setup.agent.as_str().to_owned(),
            prompt: turn.prompt.clone(),
            answers: outcome.reading.runs(),
            asked_at: turn.queued_at,
            ended_at: Timestamp::now(),
        });
        let ending = TurnEnding {
            state: outcome.state,
            text: outcome.reading.text(),
            stop_reason: outcome.stop_reason,
            error: outcome.error,
            usage,
            events,
            agent_session: None,
            outbox,
        };
        let (store, entry) = (self.options().store.clone(), self.entry.clone());
        let ending_now = self.options().ending.clone();
        loop {
            let attempt = entry.publish(async {
                let now = Timestamp::now();
                let stored = store.end_turn(&entry.lease, index, ending.clone(), now).await?;
                Ok((stored.is_some(), stored.unwrap_or_default()))
            });
            let error = match attempt.await {
                Ok(true) => return,
                // It is over already, perhaps by an attempt that seemed to fail: nobody was told of it.
                Ok(false) => return entry.announce_more(),
                // Whoever has the session now has ended the turn, or the session is gone.
                Err(StoreError::Lost) => return entry.announce_more(),
                Err(error) => error,
            };
            tracing::error!(%error, session = %entry.id, "the end of a turn was not stored");
            tokio::select! {
                () = sleep(STORE_AGAIN) => {}
                // Marked as interrupted at the next start.
                () = ending_now.cancelled() => return,
            }
        }
    }

    async fn perform(&mut self, turn: &SessionTurn, running: &Running) -> Outcome {
        let deadline = Instant::now() + self.options().limits.turn_timeout;
        for _ in 0..2 {
            if let Err(outcome) = self.make_ready(running, deadline).await {
                return outcome;
            }
            match self.converse(turn, running, deadline).await {
                Ok(outcome) => return outcome,
                // Another one can be asked.
                Err(Unasked) => self.agent = None,
            }
        }
        Outcome::failed(TurnState::Died, "the agent ended before it could be asked, twice")
    }

    /// Sees to it that there is an agent, and that its name for the conversation is kept before
    /// anything is said: from then on there is something to go on with.
    async fn make_ready(&mut self, running: &Running, deadline: Instant) -> Result<(), Outcome> {
        if self.agent.is_none() {
            let (ending, closing) = (self.options().ending.clone(), self.entry.closing.clone());
            let started = tokio::select! {
                started = self.start_agent() => started,
                () = running.cancel.cancelled() => return Err(Outcome::unasked(End::Cancelled)),
                () = closing.cancelled() => return Err(Outcome::unasked(End::Cancelled)),
                () = ending.cancelled() => return Err(Outcome::unasked(End::Stopping)),
                () = sleep_until(deadline) => return Err(Outcome::unasked(End::TimedOut)),
            };
            started.map_err(not_started)?;
        }
        let Some(agent) = &self.agent else { return Ok(()) };
        let name = agent.conversation.clone();
        if self.entry.conversation().as_deref() != Some(name.as_str()) {
            let kept = self.options().store.keep_agent_session(&self.entry.lease, &name).await;
            if let Err(error) = kept {
                tracing::error!(%error, session = %self.entry.id, "a conversation was not kept");
                let text = "the ledger could not be written";
                return Err(Outcome::failed(TurnState::Failed, text));
            }
            self.entry.set_conversation(name);
        }
        Ok(())
    }

    /// Asks, and hears the agent out.
    async fn converse(
        &mut self,
        turn: &SessionTurn,
        running: &Running,
        deadline: Instant,
    ) -> Result<Outcome, Unasked> {
        let mut talk = Talk::new(turn.index, self.options().limits.stall_after);
        self.tell(AgentCommand::Prompt(turn.prompt.clone()));
        let (ending, closing) = (self.options().ending.clone(), self.entry.closing.clone());
        // Answers to questions of an earlier turn mean nothing now.
        while self.answered.try_recv().is_ok() {}
        loop {
            let wanted = talk.end.is_none();
            let Some(agent) = &mut self.agent else {
                let text = "the agent is gone".to_owned();
                return Ok(talk.take_outcome(TurnState::Died, None, Some(text)));
            };
            let end = tokio::select! {
                said = agent.next_event() => {
                    let gone = matches!(&said, AgentEvent::Exited(gone) if gone.prompt_unseen);
                    if gone && !talk.answered && talk.end.is_none() {
                        return Err(Unasked);
                    }
                    match self.hear(&mut talk, said).await {
                        Some(outcome) => return Ok(outcome),
                        None => None,
                    }
                }
                Some(answered) = self.answered.recv() => {
                    talk.asks.remove(&answered.ask);
                    let option = Some(answered.option);
                    self.settle(&talk, &answered.ask, option, "caller").await;
                    None
                }
                ask = talk.next_expiry() => {
                    self.expire(&mut talk, &ask).await;
                    None
                }
                () = sleep_until(talk.stalls_at), if talk.may_stall() => {
                    talk.stalled = true;
                    self.note_stall(&talk, "nothing has come from the agent for a while").await;
                    None
                }
                // Another node may run it at any moment: there is no time for manners.
                () = self.entry.lost.cancelled() => return Ok(self.abandon(talk).await),
                () = running.cancel.cancelled(), if wanted => Some(End::Cancelled),
                () = closing.cancelled(), if wanted => Some(End::Cancelled),
                () = ending.cancelled(), if talk.end != Some(End::Stopping) => Some(End::Stopping),
                () = sleep_until(deadline), if wanted => Some(End::TimedOut),
                () = sleep_until(talk.patience), if !wanted => {
                    // It does not let go, so it is let go.
                    return Ok(self.abandon(talk).await);
                }
            };
            match end {
                Some(End::Stopping) => {
                    talk.end = Some(End::Stopping);
                    return Ok(self.abandon(talk).await);
                }
                Some(end) => {
                    talk.end = Some(end);
                    talk.patience = Instant::now() + BREAK_OFF;
                    self.tell(AgentCommand::Cancel);
                    let asks: Vec<String> = talk.asks.drain().map(|(ask, _)| ask).collect();
                    for ask in asks {
                        self.settle(&talk, &ask, None, "cancel").await;
                    }
                }
                None => {}
            }
        }
    }

    /// Takes what the agent said, and what it has said since. Returns the outcome when it was the end.
    async fn hear(&mut self, talk: &mut Talk, said: AgentEvent) -> Option<Outcome> {
        let mut next = Some(said);
        let mut lines = Vec::new();
        while let Some(AgentEvent::Message(body)) = next {
            talk.reading.push(&body);
            self.inner.counts.message();
            lines.push(NewEvent { kind: "message".to_owned(), turn: Some(talk.turn), body });
            let more = lines.len() < TOGETHER;
            next = self.agent.as_mut().filter(|_| more).and_then(|agent| agent.try_next_event());
        }
        talk.heard();
        talk.answered |= !lines.is_empty();
        // The last message is stored with the end.
        if let Some(AgentEvent::TurnEnded(_) | AgentEvent::Exited(_)) = next {
            talk.last = lines;
        } else if !lines.is_empty()
            && let Err(outcome) = self.store_events(talk, lines).await
        {
            return Some(outcome);
        }
        match next? {
            AgentEvent::Message(_) => None,
            AgentEvent::TurnEnded(Ok(reason)) => {
                let state = match (reason.as_str(), talk.end) {
                    ("cancelled", Some(End::TimedOut)) => TurnState::TimedOut,
                    ("cancelled", _) => TurnState::Cancelled,
                    _ => TurnState::Finished,
                };
                let error =
                    (state == TurnState::TimedOut).then(|| End::TimedOut.error().to_owned());
                Some(talk.take_outcome(state, Some(reason), error))
            }
            AgentEvent::TurnEnded(Err(message)) => Some(match talk.end {
                // It was told to break off, and did so in its own way.
                Some(End::Cancelled) => {
                    talk.take_outcome(TurnState::Cancelled, Some("cancelled".to_owned()), None)
                }
                Some(end) => talk.take_outcome(end.state(), None, Some(end.error().to_owned())),
                None => talk.take_outcome(TurnState::Failed, None, Some(message)),
            }),
            AgentEvent::Exited(gone) => {
                self.agent = None;
                Some(match talk.end {
                    Some(End::Cancelled) => {
                        talk.take_outcome(TurnState::Cancelled, Some("cancelled".to_owned()), None)
                    }
                    Some(end) => talk.take_outcome(end.state(), None, Some(end.error().to_owned())),
                    None => {
                        let words = last_line(&gone.stderr);
                        let text = match words {
                            Some(words) => format!("the agent ended with {}: {words}", gone.status),
                            None => format!("the agent ended with {}", gone.status),
                        };
                        talk.take_outcome(TurnState::Died, None, Some(text))
                    }
                })
            }
            AgentEvent::PermissionRequested(ask) => {
                self.consider(talk, ask).await;
                None
            }
            AgentEvent::Stalled(words) => {
                talk.stalled = true;
                self.note_stall(talk, &words).await;
                None
            }
        }
    }

    /// Stores messages. What can't be stored is not told to anyone, and the turn can't go on.
    async fn store_events(
        &mut self,
        talk: &mut Talk,
        events: Vec<NewEvent>,
    ) -> Result<(), Outcome> {
        let store = self.options().store.clone();
        let Err(error) = self.entry.append(store.as_ref(), events).await else { return Ok(()) };
        tracing::error!(%error, session = %self.entry.id, "events were not stored");
        if let Some(agent) = self.agent.take() {
            agent.stop().await;
        }
        let text = "the ledger could not be written".to_owned();
        Err(talk.take_outcome(TurnState::Failed, None, Some(text)))
    }

    /// Answers a question by the session's policy, or puts it to the caller.
    async fn consider(&mut self, talk: &mut Talk, ask: PermissionRequest) {
        let policy = self.entry.setup.permissions;
        match permission::by_policy(policy, &ask) {
            _ if talk.end.is_some() => self.settle(talk, &ask.id, None, "cancel").await,
            Choice::Answer(option) => self.settle(talk, &ask.id, option, "policy").await,
            Choice::AskCaller => {
                let options: Vec<_> = ask
                    .options
                    .iter()
                    .map(|offer| {
                        json!({"option": offer.id, "name": offer.name, "kind": offer.kind.as_str()})
                    })
                    .collect();
                let body = json!({"request_id": ask.id, "turn_index": talk.turn, "status": "asked",
                    "title": ask.title, "options": options});
                let until = Instant::now() + self.options().limits.permission_timeout;
                talk.asks.insert(ask.id.clone(), until);
                self.entry.offer(ask);
                self.note(audit("permission", Some(talk.turn), body)).await;
            }
        }
    }

    /// Nobody has answered.
    async fn expire(&mut self, talk: &mut Talk, ask: &str) {
        talk.asks.remove(ask);
        // An answer that came at the last moment is on its way.
        if let Some(ask) = self.entry.withdraw(ask) {
            self.settle(talk, &ask.id, permission::rejection(&ask), "timeout").await;
        }
    }

    /// Answers the agent, and writes down who decided.
    async fn settle(&mut self, talk: &Talk, ask: &str, option: Option<String>, by: &str) {
        self.entry.withdraw(ask);
        let body = json!({"request_id": ask, "turn_index": talk.turn, "status": "answered",
            "option": option, "by": by});
        self.tell(AgentCommand::AnswerPermission { request: ask.to_owned(), option });
        self.note(audit("permission", Some(talk.turn), body)).await;
    }

    async fn note_stall(&mut self, talk: &Talk, words: &str) {
        let body = json!({"turn_index": talk.turn, "message": words});
        self.note(audit("stalled", Some(talk.turn), body)).await;
    }

    /// Writes into the audit. A turn does not fail for it.
    async fn note(&mut self, event: NewEvent) {
        let store = self.options().store.clone();
        if let Err(error) = self.entry.append(store.as_ref(), vec![event]).await {
            tracing::error!(%error, session = %self.entry.id, "an audit event was not stored");
        }
    }

    fn tell(&self, order: AgentCommand) {
        if let Some(agent) = &self.agent {
            agent.send(order);
        }
    }

    /// Ends an agent that does not end its turn. The next turn takes its conversation up again.
    async fn abandon(&mut self, mut talk: Talk) -> Outcome {
        if let Some(agent) = self.agent.take() {
            agent.stop().await;
        }
        let end = talk.end.unwrap_or(End::Stopping);
        match end {
            End::Cancelled => {
                talk.take_outcome(TurnState::Cancelled, Some("cancelled".to_owned()), None)
            }
            end => talk.take_outcome(end.state(), None, Some(end.error().to_owned())),
        }
    }
}

fn not_started(error: StartError) -> Outcome {
    match error {
        StartError::NotInstalled(text) => Outcome::failed(TurnState::NotInstalled, text),
        StartError::ResumeFailed(text) => Outcome::failed(
            TurnState::ResumeFailed,
            format!("the agent could not take its conversation up again: {text}"),
        ),
        StartError::Refused(text) => Outcome::failed(TurnState::Failed, text),
        StartError::Died { message, stderr } => Outcome::failed(
            TurnState::Died,
            match last_line(&stderr) {
                Some(words) => format!("{message}: {words}"),
                None => message,
            },
        ),
        StartError::Internal(inside) => {
            tracing::error!(error = inside, "an agent could not be started");
            Outcome::failed(TurnState::Failed, "the agent could not be started; the log says why")
        }
    }
}
