//! A conversation of one turn: how agents without a print mode are run once.

use std::path::PathBuf;
use std::time::Duration;

use hob_child::{ChildSpec, Children};
use hob_domain::session::Permissions;
use hob_domain::{Driver, RunError, RunReply};
use tokio_util::task::TaskTracker;

use crate::session::{TurnReading, rejection};
use hob_agents::claude::Changes;
use hob_agents::driver::{self, LiveAgent, Order, Said, Start, StartError};
use hob_terminal::Entering;

pub(crate) struct OneTurn {
    pub driver: Driver,
    pub prompt: String,
    pub model: Option<String>,
    pub system: Option<String>,
    pub files: PathBuf,
    pub tasks: TaskTracker,
    pub changes: Changes,
}

impl OneTurn {
    pub fn start(
        &self,
        children: Children,
        child: ChildSpec,
        install: &str,
        patience: Duration,
    ) -> Start {
        Start {
            children,
            tasks: self.tasks.clone(),
            child,
            claude: PathBuf::new(),
            changes: self.changes.clone(),
            install: install.to_owned(),
            resume: None,
            history: Vec::new(),
            model: self.model.clone(),
            system: self.system.clone(),
            permissions: Permissions::Deny,
            mcp_servers: Vec::new(),
            files: self.files.clone(),
            patience,
            entering: Entering::nowhere(),
        }
    }

    /// Asks and hears the answer. The agent is left to the caller, to be stopped whatever happened.
    pub async fn ask(
        &self,
        start: Start,
        agent: &mut Option<LiveAgent>,
    ) -> Result<RunReply, RunError> {
        let started = driver::start(self.driver, start).await.map_err(not_started)?;
        let agent = agent.insert(started);
        agent.tell(Order::Prompt(self.prompt.clone()));
        let mut reading = TurnReading::default();
        loop {
            match agent.next().await {
                Said::Line(line) => reading.push(&line),
                Said::Asks(ask) => {
                    let option = rejection(&ask);
                    agent.tell(Order::Answer { ask: ask.id, option });
                }
                Said::Over(Ok(stop_reason)) => {
                    return Ok(RunReply { text: reading.text(), stop_reason });
                }
                Said::Over(Err(message)) => return Err(failed(message, String::new())),
                Said::Gone(gone) => {
                    let message = format!("the agent ended with {}", gone.how);
                    return Err(failed(message, gone.stderr));
                }
                Said::Stalled(_) => {}
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
        StartError::Refused(text) | StartError::NotResumed(text) => failed(text, String::new()),
        StartError::Died { message, stderr } => failed(message, stderr),
        StartError::Internal(inside) => RunError::Internal(inside),
    }
}
