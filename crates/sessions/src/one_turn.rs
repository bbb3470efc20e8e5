//! A conversation of one turn: how agents without a print mode are run once.

use std::path::PathBuf;
use std::time::Duration;

use hob_child::{ChildSpec, Children};
use hob_domain::session::Permissions;
use hob_domain::{AgentChoices, AgentSpec, Driver, RunError, RunReply};
use tokio_util::task::TaskTracker;

use crate::session::{TurnReader, rejection};
use hob_agents::app_permits::ReadingPermits;
use hob_agents::claude::TranscriptWatcher;
use hob_agents::driver::{self, AgentCommand, AgentEvent, LiveAgent, StartError, StartOptions};
use hob_terminal::TerminalRegistrar;

/// A prompt for one turn of an agent.
pub(crate) struct OneTurn {
    pub driver: Driver,
    pub prompt: String,
    pub model: Option<String>,
    pub system: Option<String>,
    pub files: PathBuf,
    pub permits: ReadingPermits,
    pub tasks: TaskTracker,
    pub changes: TranscriptWatcher,
}

impl OneTurn {
    pub fn start(
        &self,
        children: Children,
        child: ChildSpec,
        agent: &AgentSpec,
        patience: Duration,
    ) -> StartOptions {
        StartOptions {
            children,
            tasks: self.tasks.clone(),
            child,
            claude: PathBuf::new(),
            changes: self.changes.clone(),
            install: agent.install.clone(),
            resume: None,
            history: Vec::new(),
            model: self.model.clone(),
            model_env: agent.model_env.clone(),
            cost: 0.0,
            choices: AgentChoices::default(),
            system: self.system.clone(),
            permissions: Permissions::Deny,
            // Nobody could change the mode or answer a question of a run; its folder is gone afterwards.
            mode: None,
            policy_notice: None,
            mcp_servers: Vec::new(),
            files: self.files.clone(),
            start_timeout: patience,
            permits: self.permits.clone(),
            registrar: TerminalRegistrar::detached(),
        }
    }

    /// Sends the prompt and reads the answer. The caller stops the agent, whatever the result.
    pub async fn ask(
        &self,
        start: StartOptions,
        agent: &mut Option<LiveAgent>,
    ) -> Result<RunReply, RunError> {
        let started = driver::start(self.driver, start).await.map_err(not_started)?;
        let agent = agent.insert(started);
        agent.send(AgentCommand::Prompt(self.prompt.clone()));
        let mut reader = TurnReader::default();
        loop {
            match agent.next_event().await {
                AgentEvent::Message(line) => {
                    reader.push(&line);
                    if let Some(message) = reader.excess() {
                        return Err(failed(message, String::new()));
                    }
                }
                AgentEvent::PermissionRequested(ask) => {
                    let option = rejection(&ask);
                    let request = ask.id;
                    agent.send(AgentCommand::AnswerPermission {
                        request,
                        option,
                        content: None,
                        message: None,
                    });
                }
                AgentEvent::TurnEnded(Ok(stop_reason)) => {
                    let usage = reader.usage(&mut 0.0);
                    return Ok(RunReply { text: reader.text(), stop_reason, usage });
                }
                AgentEvent::TurnEnded(Err(message)) => return Err(failed(message, String::new())),
                AgentEvent::Exited(gone) => {
                    let message = format!("the agent ended with {}", gone.status);
                    return Err(failed(message, gone.stderr));
                }
                AgentEvent::Stalled(_) => {}
            }
        }
    }
}

fn failed(message: String, stderr: String) -> RunError {
    RunError::AgentFailed { message, stderr, stop_reason: "error".to_owned() }
}

fn not_started(error: StartError) -> RunError {
    match error {
        StartError::NotInstalled(text) => RunError::NotInstalled(text),
        StartError::Refused(text) | StartError::ResumeFailed(text) => failed(text, String::new()),
        StartError::Died { message, stderr } => failed(message, stderr),
        StartError::Internal(inside) => RunError::Internal(inside),
    }
}
