//! What a driver needs to start an agent, and why an agent cannot be started.

use std::path::PathBuf;
use std::time::Duration;

use hob_child::{ChildSpec, Children, SpawnError};
use hob_domain::session::Permissions;
use hob_domain::{AgentChoices, Message};
use hob_terminal::TerminalRegistrar;
use tokio_util::task::TaskTracker;

use crate::app_permits::ReadingPermits;
use crate::claude::TranscriptWatcher;
use crate::mcp_servers::McpServer;

/// The agent to start, and the conversation it starts or resumes.
pub struct StartOptions {
    pub children: Children,
    pub tasks: TaskTracker,
    /// The agent's program with its folder, environment and sandbox. Drivers add arguments.
    pub child: ChildSpec,
    /// The folder for Hob's own Claude Code configuration folders and temporary files.
    pub claude: PathBuf,
    /// Wakes drivers that read transcripts.
    pub changes: TranscriptWatcher,
    /// Advice for the user if the program is not installed.
    pub install: String,
    /// The agent's own id of the conversation to resume.
    pub resume: Option<String>,
    /// The conversation so far. An agent whose own record lies on another node is seeded with it.
    pub history: Vec<Message>,
    pub model: Option<String>,
    /// The variable by which the agent takes the model when it starts.
    pub model_env: Option<String>,
    /// What the conversation has cost so far, in USD.
    pub cost: f64,
    /// The settings that the caller has chosen in this conversation. They win over the model.
    pub choices: AgentChoices,
    pub system: Option<String>,
    pub permissions: Permissions,
    /// The agent's mode for these permissions, unless the caller has chosen one.
    pub mode: Option<String>,
    /// What the caller of a new conversation should know of these permissions.
    pub policy_notice: Option<String>,
    pub mcp_servers: Vec<McpServer>,
    /// A folder that file callbacks may reach in addition to the working folder.
    pub files: PathBuf,
    /// How long the agent may take until it accepts a prompt.
    pub start_timeout: Duration,
    /// The permits by which the agent's output and requests are read.
    pub permits: ReadingPermits,
    /// Registers the agent's terminal, if it has one.
    pub registrar: TerminalRegistrar,
}

/// Why an agent could not be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The program is not installed; the text says what to install.
    #[error("{0}")]
    NotInstalled(String),
    /// The program started but refused to work.
    #[error("{0}")]
    Refused(String),
    /// The agent cannot resume the conversation.
    #[error("{0}")]
    ResumeFailed(String),
    /// The program ended before it accepted a prompt.
    #[error("{message}")]
    Died { message: String, stderr: String },
    /// An error inside Hob.
    #[error("{0}")]
    Internal(String),
}

impl From<SpawnError> for StartError {
    fn from(error: SpawnError) -> StartError {
        match error {
            SpawnError::NotFound(_) | SpawnError::NotRunnable { .. } => {
                StartError::NotInstalled(error.to_string())
            }
            SpawnError::Invalid(_) => StartError::Refused(error.to_string()),
            SpawnError::Folder(_)
            | SpawnError::NotConfined(_)
            | SpawnError::Closing
            | SpawnError::System(_) => StartError::Internal(error.to_string()),
        }
    }
}
