//! One-shot runs: a prompt in, a reply out.

use std::time::Duration;

use crate::session::TurnUsage;

/// A request for a one-shot run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRequest {
    pub prompt: String,
    pub model: Option<String>,
    pub system: Option<String>,
    pub timeout: Duration,
}

/// The answer of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunReply {
    /// The agent's text, unchanged.
    pub text: String,
    pub stop_reason: String,
    /// What the run has used, as far as the agent says it.
    pub usage: TurnUsage,
}

/// Why a run gave no answer. Each variant calls for a different reaction of the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The agent is not installed; the text says what to install.
    #[error("{0}")]
    NotInstalled(String),
    /// The agent ran and failed.
    #[error("{message}")]
    AgentFailed { message: String, stderr: String, stop_reason: String },
    /// The run exceeded its time limit. Its processes have ended.
    #[error("the agent did not answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The limit on live sessions and runs is reached.
    #[error(
        "{live} sessions and runs are open, which is the limit; close one or raise sessions.max_live"
    )]
    PoolFull { live: usize },
    /// Hob is stopping.
    #[error("the server is shutting down and accepts no new work; try again once it is running")]
    Stopping,
    /// The caller went away, so no one waits for the answer.
    #[error("the run was cancelled")]
    Cancelled,
    /// A failure on Hob's side, such as a full disk or process table.
    #[error("{0}")]
    Internal(String),
}

impl RunError {
    /// Returns the error code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            RunError::NotInstalled(_) => "agent_not_installed",
            RunError::AgentFailed { .. } => "agent_failed",
            RunError::TimedOut(_) => "timeout",
            RunError::PoolFull { .. } => "pool_full",
            RunError::Stopping | RunError::Cancelled => "stopping",
            RunError::Internal(_) => "internal",
        }
    }
}
