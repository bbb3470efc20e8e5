//! The one task of an open session: it owns the agent and runs the turns, one after another.

use std::path::PathBuf;
use std::sync::Arc;

use hob_child::{Stdin, Streams};
use hob_domain::session::{NewEvent, Session};
use hob_domain::{Driver, Message, StoreError};
use serde_json::json;
use tokio::sync::mpsc;

use super::handle::{Answered, Entry};
use super::messages::says_something;
use super::options::SessionsOptions;
use super::permission::rejection;
use super::sessions::{Inner, audit};
use hob_agents::driver::{self, AgentCommand, AgentEvent, LiveAgent, StartError, StartOptions};
use hob_agents::mcp_servers::{self, McpServer};
use hob_terminal::{TerminalKind, TerminalRegistrar};

/// So many turns of a conversation are told to an agent that does not know it.
const REBUILT: usize = 1000;

pub(super) struct Actor {
    pub inner: Arc<Inner>,
    pub entry: Arc<Entry>,
    pub answered: mpsc::UnboundedReceiver<Answered>,
    pub agent: Option<LiveAgent>,
    /// What the agent's process says it has cost.
    pub cost: f64,
    warm: Warm,
}

/// Whether the agent is started before it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Warm {
    AtOnce,
    WhenAsked,
}

impl Actor {
    pub fn of(
        inner: &Arc<Inner>,
        entry: Arc<Entry>,
        answered: mpsc::UnboundedReceiver<Answered>,
    ) -> Actor {
        let inner = inner.clone();
        Actor { inner, entry, answered, agent: None, cost: 0.0, warm: Warm::WhenAsked }
    }

    /// The same with its agent started at once.
    pub fn warm(mut self) -> Actor {
        self.warm = Warm::AtOnce;
        self
    }

    pub fn options(&self) -> &SessionsOptions {
        &self.inner.options
    }

    pub async fn run(mut self) {
        let (entry, ending) = (self.entry.clone(), self.options().ending.clone());
        let stopping = self.options().stopping.clone();
        let most = self.options().limits.turn_timeout;
        let _leaving = Leaving(entry.clone());
        if self.warm == Warm::AtOnce {
            let warmed = tokio::select! {
                warmed = self.start_agent() => warmed.err(),
                () = entry.closing.cancelled() => None,
                () = stopping.cancelled() => None,
                // A turn that waits for it does so no longer than it may take.
                () = tokio::time::sleep(most) => None,
            };
            if let Some(error) = warmed {
                // The first turn tries again and says what is wrong.
                tracing::warn!(session = %entry.id, ?error, "an agent could not be warmed up");
            }
        }
        while !entry.closing.is_cancelled() && !stopping.is_cancelled() {
            if let Some(running) = entry.begin_next() {
                self.run_turn(running).await;
                continue;
            }
            tokio::select! {
                () = entry.wake.notified() => {}
                () = entry.closing.cancelled() => {}
                // What waits is still there after the next start.
                () = stopping.cancelled() => {}
                () = ending.cancelled() => {}
                said = next(&mut self.agent) => self.hear_between_turns(said).await,
            }
        }
        if let Some(agent) = self.agent.take() {
            // A conversation that goes on elsewhere is not closed.
            if entry.closing.is_cancelled() && !entry.is_lost() {
                agent.send(AgentCommand::Close);
            }
            agent.stop().await;
        }
        self.options().sandbox.clean(entry.id.as_str());
        if self.inner.cluster.is_some() && !entry.closing.is_cancelled() {
            self.hand_over().await;
        }
    }

    /// We stop, and another node may go on with it.
    async fn hand_over(&self) {
        match self.options().store.release_lease(&self.entry.lease).await {
            Ok(()) | Err(StoreError::Lost) => {}
            // It is taken when we are not heard of for long enough.
            Err(error) => {
                tracing::warn!(%error, session = %self.entry.id, "a session was not handed over");
            }
        }
    }

    /// What an agent says when nobody asked.
    async fn hear_between_turns(&mut self, said: AgentEvent) {
        match said {
            AgentEvent::Message(body) => {
                let event = NewEvent { kind: "message".to_owned(), turn: None, body };
                let stored = self.entry.append(self.options().store.as_ref(), vec![event]).await;
                if let Err(error) = stored {
                    tracing::error!(%error, session = %self.entry.id, "an event was not stored");
                }
            }
            AgentEvent::PermissionRequested(ask) => {
                if let Some(agent) = &self.agent {
                    let option = rejection(&ask);
                    agent.send(AgentCommand::AnswerPermission { request: ask.id, option });
                }
            }
            AgentEvent::Exited(gone) => {
                tracing::warn!(session = %self.entry.id, how = gone.status, "an idle agent ended");
                self.agent = None;
            }
            AgentEvent::TurnEnded(_) | AgentEvent::Stalled(_) => {}
        }
    }

    /// Starts the agent, on its own conversation where there is one. Dropped before its end, nothing of
    /// it is left.
    pub async fn start_agent(&mut self) -> Result<(), StartError> {
        self.start_or_resume().await?;
        if let Some(notice) = self.agent.as_mut().and_then(|agent| agent.notice.take()) {
            self.write_down("notice", json!({"message": notice})).await?;
        }
        Ok(())
    }

    async fn start_or_resume(&mut self) -> Result<(), StartError> {
        let driver = self.spec()?.driver;
        let Some(name) = self.entry.conversation() else {
            self.agent = Some(driver::start(driver, self.start_request(None)?).await?);
            self.cost = 0.0;
            return Ok(());
        };
        let mut request = self.start_request(Some(name))?;
        let (history, last) = self.history().await?;
        request.history = history;
        if matches!(driver, Driver::Acp | Driver::Demo)
            && self.last_here().is_some_and(|n| n < last)
        {
            // What the agent has here ends before that; it would go on as if the rest had never been said.
            let text = "later turns were run on another node, and its records are not shared";
            self.note_resume(json!({"ok": false, "error": text})).await?;
            return Err(StartError::ResumeFailed(text.to_owned()));
        }
        match driver::start(driver, request).await {
            Ok(agent) => {
                self.note_resume(json!({"ok": true})).await?;
                self.agent = Some(agent);
                // An agent that goes on with its conversation goes on counting, too.
                self.cost = self.session().await?.usage.cost_usd;
            }
            // Killed before it had said a word, an agent may not know its conversation: then there is
            // nothing to go on with, and nothing is lost by beginning again.
            Err(StartError::ResumeFailed(error)) if self.nothing_was_said().await? => {
                self.note_resume(json!({"ok": false, "error": error, "fresh": true})).await?;
                self.agent = Some(driver::start(driver, self.start_request(None)?).await?);
                self.cost = 0.0;
            }
            Err(error) => {
                self.note_resume(json!({"ok": false, "error": error.to_string()})).await?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// What was said so far, where the session has been on another node, and the number of the last turn of it.
    async fn history(&self) -> Result<(Vec<Message>, u32), StartError> {
        let (options, entry) = (self.options(), &self.entry);
        if self.inner.cluster.is_none() || entry.lease.fence <= 1 {
            return Ok((Vec::new(), 0));
        }
        let turns = options.store.turns_before(&entry.app, &entry.id, u32::MAX, REBUILT).await;
        let mut turns =
            turns.map_err(|error| StartError::Internal(error.to_string()))?.unwrap_or_default();
        turns.retain(|turn| !turn.text.is_empty());
        let last = turns.last().map_or(0, |turn| turn.index);
        let said = turns.into_iter();
        let said =
            said.flat_map(|turn| [Message::user(turn.prompt), Message::assistant(turn.text)]);
        Ok((said.collect(), last))
    }

    /// Where it stands, beside the folder that Hob made for the session, which turn ran last with what lies there. It is shared
    /// where the folder is.
    fn last_here_path(&self) -> Option<PathBuf> {
        let cwd = self.cwd();
        let own = cwd.file_name().is_some_and(|name| name == self.entry.id.as_str());
        let cluster = self.inner.cluster.is_some();
        (own && cluster)
            .then(|| cwd.parent().map(|all| all.join(".turns").join(self.entry.id.as_str())))?
    }

    fn last_here(&self) -> Option<u32> {
        std::fs::read_to_string(self.last_here_path()?).ok()?.trim().parse().ok()
    }

    /// A turn has ended here.
    pub fn note_last_here(&self, turn: u32) {
        let Some(path) = self.last_here_path() else { return };
        let folder = path.parent().map(std::fs::create_dir_all);
        let noted = folder.transpose().and_then(|_| std::fs::write(&path, turn.to_string()));
        if let Err(error) = noted {
            tracing::warn!(%error, session = %self.entry.id, "it was not noted which turn ran last here");
        }
    }

    /// The folder it works in. One that another node made for it and that is not shared is made anew among ours.
    fn cwd(&self) -> PathBuf {
        let cwd = PathBuf::from(&self.entry.setup.cwd);
        let own = self.options().workspaces.join(self.entry.id.as_str());
        let elsewhere = self.inner.cluster.is_some() && !cwd.is_dir();
        if elsewhere && cwd.file_name() == own.file_name() { own } else { cwd }
    }

    async fn note_resume(&self, body: serde_json::Value) -> Result<(), StartError> {
        self.write_down("resume", body).await
    }

    async fn write_down(&self, kind: &str, body: serde_json::Value) -> Result<(), StartError> {
        let event = audit(kind, None, body);
        let stored = self.entry.append(self.options().store.as_ref(), vec![event]).await;
        stored.map_err(|error| StartError::Internal(error.to_string()))
    }

    async fn session(&self) -> Result<Session, StartError> {
        let found = self.options().store.session(&self.entry.app, &self.entry.id).await;
        let found = found.map_err(|error| StartError::Internal(error.to_string()))?;
        found.ok_or_else(|| StartError::Refused("the session is gone".to_owned()))
    }

    /// Whether the agent has neither said nor done anything in any turn.
    async fn nothing_was_said(&self) -> Result<bool, StartError> {
        for turn in 1..=self.session().await?.turn_count {
            let events = self.options().store.turn_events(&self.entry.id, turn).await;
            let events = events.map_err(|error| StartError::Internal(error.to_string()))?;
            let said = |event: &NewEvent| event.kind == "message" && says_something(&event.body);
            if events.iter().any(|event| said(&event.event)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn spec(&self) -> Result<&hob_domain::AgentSpec, StartError> {
        let name = &self.entry.setup.agent;
        self.options().agents.get(name).ok_or_else(|| {
            StartError::Refused(format!("the agent {name} is no longer in the settings"))
        })
    }

    fn start_request(&self, resume: Option<String>) -> Result<StartOptions, StartError> {
        let options = self.options();
        let (entry, spec) = (&self.entry, self.spec()?);
        let setup = &entry.setup;
        let internal = |error: &dyn std::fmt::Display| StartError::Internal(error.to_string());
        let cwd = self.cwd();
        let own = options.workspaces.join(entry.id.as_str());
        let elsewhere = self.inner.cluster.is_some() && !cwd.is_dir();
        if cwd == own || cwd.starts_with(&options.workspaces) {
            std::fs::create_dir_all(&cwd).map_err(|error| internal(&error))?;
        } else if !cwd.canonicalize().is_ok_and(|real| real == cwd && real.is_dir()) {
            // Somebody may have put a link in its place: then it leads where nobody allowed it to.
            let text = format!("the folder {} is gone, or another one now", cwd.display());
            return Err(match resume {
                // It may be there on another node.
                Some(_) if elsewhere => StartError::ResumeFailed(text),
                _ => StartError::Refused(text),
            });
        }
        let streams = Streams::Pipes { stdin: Stdin::Pipe };
        let child = options
            .sandbox
            .child(&entry.app, spec, Vec::new(), &cwd, streams, entry.id.as_str())
            .map_err(|error| internal(&error))?;
        let servers: Vec<McpServer> =
            serde_json::from_value(setup.mcp_servers.clone()).map_err(|error| internal(&error))?;
        Ok(StartOptions {
            children: options.children.clone(),
            tasks: options.tasks.clone(),
            child,
            claude: options.claude.clone(),
            changes: self.inner.changes.clone(),
            install: spec.install.clone(),
            resume,
            history: Vec::new(),
            model: setup.model.clone(),
            system: setup.system.clone(),
            permissions: setup.permissions,
            mcp_servers: mcp_servers::with_memory(servers, &options.memory),
            files: options.sandbox.files_of(&entry.app),
            start_timeout: options.limits.start_timeout,
            registrar: TerminalRegistrar {
                terminals: options.terminals.clone(),
                id: entry.id.to_string(),
                kind: TerminalKind::Session,
                agent: setup.agent.to_string(),
            },
        })
    }
}

/// However an actor ends, nobody waits for it any longer.
struct Leaving(Arc<Entry>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.finish();
        self.0.ended.cancel();
    }
}

/// What the agent says next; never, when there is none.
async fn next(agent: &mut Option<LiveAgent>) -> AgentEvent {
    match agent {
        Some(agent) => agent.next_event().await,
        None => std::future::pending().await,
    }
}
