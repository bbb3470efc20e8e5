//! A session's agent: how it is started, resumed and spoken to.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use hob_child::{Stdin, Streams};
use hob_domain::session::{EventKind, EventRange, NewEvent, Session, TurnRange};
use hob_domain::{Driver, Message, StoredConversation};
use serde_json::{Value, json};

use super::context::SessionContext;
use super::events::audit_event;
use super::handle::SessionHandle;
use super::inbox::SettingsRequest;
use super::offered_models;
use super::session_folder::{FolderError, SessionFolder};
use super::turn_reader::is_agent_activity;
use hob_agents::client_tools::{ToolExchange, ToolServer};
use hob_agents::driver::{
    self, AgentCommand, AgentEvent, LiveAgent, SettingRefusal, StartError, StartOptions,
};
use hob_agents::mcp_servers::{self, McpServer};
use hob_agents::sandbox_denials::denial_in;
use hob_terminal::{TerminalKind, TerminalRegistrar};

/// How many turns of a conversation are replayed to an agent that does not know it.
const MAX_REPLAYED_TURNS: usize = 1000;

/// The code of JSON-RPC for a failure.
const INTERNAL_ERROR: i64 = -32603;

/// The place of a session's agent, which may be empty.
pub(super) struct AgentHost {
    pub context: Arc<SessionContext>,
    pub handle: Arc<SessionHandle>,
    pub agent: Option<LiveAgent>,
    /// What the agent's process says it has cost so far, in USD.
    pub cost: f64,
    /// The server of the caller's tools, if the agent has any.
    tools: Option<ToolServer>,
    /// The settings that a notice has named, so that it names each of them once.
    named_settings: HashSet<&'static str>,
}

impl AgentHost {
    pub fn new(context: Arc<SessionContext>, handle: Arc<SessionHandle>) -> AgentHost {
        AgentHost {
            context,
            handle,
            agent: None,
            cost: 0.0,
            tools: None,
            named_settings: HashSet::new(),
        }
    }

    /// Returns the folder that the session works in on this node.
    pub fn folder(&self) -> SessionFolder {
        SessionFolder::of(&self.handle, &self.context.options.workspaces)
    }

    /// Sends the agent a command, if there is an agent.
    pub fn tell(&mut self, command: AgentCommand) {
        if let Some(agent) = &mut self.agent {
            agent.send(command);
        }
    }

    /// Passes a request about the agent's settings on. Without an agent it is refused.
    pub fn pass_settings(&mut self, request: SettingsRequest) {
        let SettingsRequest { change, reply } = request;
        // A caller that no longer waits has got an error for its change.
        if reply.is_closed() {
            return;
        }
        match (&mut self.agent, change) {
            (Some(agent), Some(change)) => agent.send(AgentCommand::Configure { change, reply }),
            (Some(agent), None) => drop(reply.send(Ok(agent.settings.to_json()))),
            (None, _) => {
                let text = "the agent could not be started; its next turn says why";
                let refusal = SettingRefusal { code: INTERNAL_ERROR, message: text.to_owned() };
                let _ = reply.send(Err(refusal));
            }
        }
    }

    /// Keeps the values that the caller's choices have by now: the agent may have changed its mode itself.
    pub async fn keep_choices(&self) {
        let Some(agent) = &self.agent else { return };
        let handle = &self.handle;
        let chosen = handle.choices();
        if agent.settings.current(&chosen) == chosen {
            return;
        }
        let store = self.context.store();
        // A caller may have made another choice since.
        let keep = |stored: &mut StoredConversation| {
            stored.choices = agent.settings.current(&stored.choices);
        };
        if let Err(error) = handle.keep_conversation(store.as_ref(), keep).await {
            tracing::warn!(%error, session = %handle.id, "failed to store an agent's settings");
        }
    }

    /// Returns what the agent does next; pends forever if there is no agent.
    pub async fn next_event(&mut self) -> AgentEvent {
        match &mut self.agent {
            Some(agent) => agent.next_event().await,
            None => std::future::pending().await,
        }
    }

    /// Stops the agent's processes, if there are any.
    pub async fn stop_agent(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.stop().await;
        }
    }

    /// Starts the agent, on its own conversation if it has one. Dropping the future leaves nothing
    /// of the agent.
    pub async fn start_agent(&mut self) -> Result<(), StartError> {
        self.start_or_resume().await?;
        if let Some(agent) = &self.agent {
            let (app, name) = (&self.handle.app, &self.handle.setup.agent);
            let documents = self.context.options.documents.as_ref();
            let models = agent.settings.models();
            if let Err(error) = offered_models::record(documents, app, name, models).await {
                tracing::warn!(%error, agent = %name, "failed to store the models of an agent");
            }
        }
        if let Some(notice) = self.agent.as_mut().and_then(|agent| agent.notice.take()) {
            self.record(EventKind::Notice, json!({"message": notice})).await?;
        }
        Ok(())
    }

    /// Returns the notice for a message that shows a denial of the sandbox, if none has named its setting yet.
    pub fn denial_notice(&mut self, turn: u32, message: &str) -> Option<NewEvent> {
        let user_home = self.context.options.runtime.sandbox.user_home()?;
        let denial = denial_in(message, &self.handle.setup.agent, self.spec().ok()?, user_home)?;
        let is_new = self.named_settings.insert(denial.setting);
        let body = json!({"message": denial.text, "setting": denial.setting});
        is_new.then(|| audit_event(EventKind::Notice, Some(turn), body))
    }

    /// Returns what the agent and the caller exchange about the caller's tools.
    pub fn tool_exchange(&self) -> Option<Arc<ToolExchange>> {
        self.tools.as_ref().map(ToolServer::exchange)
    }

    async fn start_or_resume(&mut self) -> Result<(), StartError> {
        let Some(name) = self.handle.conversation() else {
            let driver = self.spec()?.driver;
            return self.start_fresh(driver).await;
        };
        let (driver, mut request) = match self.resume_request(name) {
            Ok(request) => request,
            Err(error) => {
                let body = json!({"ok": false, "error": error.to_string()});
                self.record(EventKind::Resume, body).await?;
                return Err(error);
            }
        };
        let (history, last) = self.history().await?;
        request.history = history;
        // An agent that resumes its conversation also continues its cost count.
        request.cost = self.session().await?.usage.cost_usd;
        let cost = request.cost;
        if matches!(driver, Driver::Acp | Driver::Demo)
            && self.folder().last_turn().is_some_and(|turn| turn < last)
        {
            // The agent's records here end before those turns. It would continue as if they had
            // never happened.
            let text = "later turns were run on another node, and its records are not shared";
            self.record(EventKind::Resume, json!({"ok": false, "error": text})).await?;
            return Err(StartError::ResumeFailed(text.to_owned()));
        }
        match driver::start(driver, request).await {
            Ok(agent) => {
                self.record(EventKind::Resume, json!({"ok": true})).await?;
                self.agent = Some(agent);
                self.cost = cost;
                Ok(())
            }
            // An agent killed before its first word may not know its conversation. A new
            // conversation loses nothing.
            Err(StartError::ResumeFailed(error)) if self.is_unspoken().await? => {
                self.record(EventKind::Resume, json!({"ok": false, "error": error, "fresh": true}))
                    .await?;
                self.start_fresh(driver).await
            }
            Err(error) => {
                let body = json!({"ok": false, "error": error.to_string()});
                self.record(EventKind::Resume, body).await?;
                Err(error)
            }
        }
    }

    /// Starts the agent on a new conversation.
    async fn start_fresh(&mut self, driver: Driver) -> Result<(), StartError> {
        self.agent = Some(driver::start(driver, self.start_request(None)?).await?);
        self.cost = 0.0;
        Ok(())
    }

    /// Returns the conversation so far and the number of its last turn, if the session has been on
    /// another node.
    async fn history(&self) -> Result<(Vec<Message>, u32), StartError> {
        let handle = &self.handle;
        if !handle.is_shared() || handle.lease.fence <= 1 {
            return Ok((Vec::new(), 0));
        }
        let store = self.context.store();
        let range = TurnRange::Before { before: u32::MAX, limit: MAX_REPLAYED_TURNS };
        let turns = store.turns(&handle.app, &handle.id, range).await;
        let mut turns = turns.map_err(internal)?.unwrap_or_default();
        turns.retain(|turn| !turn.text.is_empty());
        let last = turns.last().map_or(0, |turn| turn.index);
        let messages = turns.into_iter().flat_map(|turn| {
            [Message::user(turn.rendered_prompt()), Message::assistant(turn.text)]
        });
        Ok((messages.collect(), last))
    }

    /// Appends an audit event without a turn.
    async fn record(&self, kind: EventKind, body: Value) -> Result<(), StartError> {
        let event = audit_event(kind, None, body);
        let stored = self.handle.append(self.context.store().as_ref(), vec![event]).await;
        stored.map_err(internal)
    }

    async fn session(&self) -> Result<Session, StartError> {
        let found = self.context.store().session(&self.handle.app, &self.handle.id).await;
        let found = found.map_err(internal)?;
        found.ok_or_else(|| StartError::Refused("the session was deleted".to_owned()))
    }

    /// Returns whether the agent has neither said nor done anything in any turn.
    async fn is_unspoken(&self) -> Result<bool, StartError> {
        for turn in 1..=self.session().await?.turn_count {
            let range = EventRange::Turn(turn);
            let events =
                self.context.store().events(&self.handle.app, &self.handle.id, range).await;
            let spoken = |event: &NewEvent| {
                event.kind == EventKind::Message && is_agent_activity(&event.body)
            };
            let events = events.map_err(internal)?.unwrap_or_default();
            if events.iter().any(|event| spoken(&event.event)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn spec(&self) -> Result<&hob_domain::AgentSpec, StartError> {
        let name = &self.handle.setup.agent;
        self.context.options.agents.get(name).ok_or_else(|| {
            StartError::Refused(format!("the agent {name} is no longer in the settings"))
        })
    }

    /// Returns what resuming the agent's conversation needs.
    fn resume_request(&mut self, name: String) -> Result<(Driver, StartOptions), StartError> {
        let driver = match self.spec() {
            Ok(spec) => spec.driver,
            Err(error) => return Err(StartError::ResumeFailed(error.to_string())),
        };
        Ok((driver, self.start_request(Some(name))?))
    }

    fn start_request(&mut self, resume: Option<String>) -> Result<StartOptions, StartError> {
        let options = &self.context.options;
        let (handle, spec) = (&self.handle, self.spec()?);
        let setup = &handle.setup;
        let folder = self.folder();
        match folder.prepare(&options.workspaces) {
            Ok(()) => {}
            Err(FolderError::Failed(error)) => return Err(internal(error)),
            Err(FolderError::Missing) => {
                let path = folder.path.display();
                let text = format!("the folder {path} no longer exists, or has been replaced");
                return Err(match resume {
                    Some(_) => StartError::ResumeFailed(text),
                    None => StartError::Refused(text),
                });
            }
        }
        let streams = Streams::Pipes { stdin: Stdin::Pipe };
        let child = options
            .runtime
            .sandbox
            .child(&handle.app, spec, Vec::new(), &folder.path, streams, handle.id.as_str())
            .map_err(|error| match error.kind() {
                io::ErrorKind::Unsupported => StartError::Refused(error.to_string()),
                _ => internal(error),
            })?;
        let mut servers: Vec<McpServer> =
            serde_json::from_value(setup.mcp_servers.clone()).map_err(internal)?;
        let tools = mcp_servers::client_tools(&servers);
        let tools = (!tools.is_empty())
            .then(|| options.runtime.tool_servers.open(handle.app.as_str(), tools));
        handle.set_tools(tools.as_ref().map(ToolServer::exchange));
        if let Some(tools) = &tools {
            servers = mcp_servers::with_client_tools(servers, &options.memory, tools);
        }
        let started = StartOptions {
            children: options.runtime.children.clone(),
            tasks: options.runtime.tasks.clone(),
            child,
            claude: options.claude.clone(),
            changes: self.context.changes.clone(),
            install: spec.install.clone(),
            resume,
            history: Vec::new(),
            model: setup.model.clone(),
            model_env: spec.model_env.clone(),
            cost: 0.0,
            choices: handle.choices(),
            system: setup.system.clone(),
            permissions: setup.permissions,
            mode: spec.modes.get(setup.permissions.as_str()).cloned(),
            policy_notice: spec.notices.get(setup.permissions.as_str()).cloned(),
            mcp_servers: mcp_servers::with_memory(servers, &options.memory),
            files: options.runtime.sandbox.files_of(&handle.app),
            start_timeout: options.limits.start_timeout,
            permits: options.runtime.reading_permits(handle.app.as_str()),
            registrar: TerminalRegistrar {
                terminals: options.runtime.terminals.clone(),
                id: handle.id.to_string(),
                kind: TerminalKind::Session,
                agent: setup.agent.to_string(),
            },
        };
        self.tools = tools;
        Ok(started)
    }
}

/// Maps a failure on Hob's side to a start error.
fn internal(error: impl std::fmt::Display) -> StartError {
    StartError::Internal(error.to_string())
}
